// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// A picture of what ran when, in Chrome's trace event format (JSON), which ui.perfetto.dev and chrome://tracing open. Every event
/// was added with times since one common zero, which may be that of a simulation.
class PerfettoTrace {
public:
    using Time = std::chrono::nanoseconds;

    /// Adds one operation of a stream, thread or link. `track` names it: each track is a row. `bytes` are shown with the operation.
    void event(std::string_view track, std::string_view name, Time start, Time end,
               std::optional<std::uint64_t> bytes = std::nullopt);
    /// Adds a value that holds from a time on, such as the bytes held. It is drawn as a curve.
    void counter(std::string_view name, Time at, std::uint64_t value);

    /// The whole file.
    [[nodiscard]] std::string json() const;
    /// Blocks. Writes the file, whole or not at all. Error io.
    [[nodiscard]] Status try_save(const std::string& path) const;
#if RESIDENCY_EXCEPTIONS
    void save(const std::string& path) const { unwrap(try_save(path)); }
#endif

private:
    void begin(std::string_view phase, std::uint32_t track);
    void field(std::string_view key, std::string_view text);
    /// The number of a track, from 1 on; a new one is given its name and its place.
    [[nodiscard]] std::uint32_t number_of(std::string_view track);
    void append_quoted(std::string_view text);
    /// With three decimals: whole nanoseconds.
    [[nodiscard]] static std::string microseconds(Time time);

    std::string events_;               // JSON, without the brackets around all
    std::vector<std::string> tracks_;  // number - 1 → name
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/interop/impl/perfetto.ipp"
#endif
