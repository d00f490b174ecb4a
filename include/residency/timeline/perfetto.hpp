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

/// A picture of what ran when, in Chrome's trace event format (JSON), which ui.perfetto.dev and chrome://tracing open. Times count from
/// one common zero, such as that of a simulation. In the file no time is negative: those that would be move it all to the right.
class PerfettoTrace {
public:
    using Time = std::chrono::nanoseconds;  ///< ns

    /// Adds one operation of a stream, thread or link. `track` names it: each track is a row. Operations of a row lie one after the
    /// other or inside each other; of those that begin together the longer is around the shorter, and of equal ones the one that was
    /// added first. `bytes` and `note` are shown with the operation. Precondition: start <= end.
    void event(std::string_view track, std::string_view name, Time start, Time end,
               std::optional<std::uint64_t> bytes = std::nullopt, std::string_view note = {});
    /// Adds a value that holds from a time on, such as the bytes held. It is drawn as a curve.
    void counter(std::string_view name, Time at, std::uint64_t value);
    /// Adds an arrow between the operations that are innermost on two rows at two times, such as from a copy to the kernel that waited
    /// for it. An operation counts from its start until before its end. Precondition: from <= to.
    void arrow(std::string_view from_track, Time from, std::string_view to_track, Time to);

    /// The whole file.
    [[nodiscard]] std::string json() const;
    /// Blocks. Writes the file, whole or not at all. Error io.
    [[nodiscard]] Status try_save(const std::string& path) const;
#if RESIDENCY_EXCEPTIONS
    /// As try_save(), but throws Exception.
    void save(const std::string& path) const { unwrap(try_save(path)); }
#endif

private:
    /// In the order of drawing where times are equal.
    enum class Phase : std::uint8_t { operation, arrow_begin, arrow_end, counter };
    struct Event {
        Time start{}, duration{};
        std::uint32_t track = 0;
        Phase phase = Phase::operation;
        std::uint64_t arrow = 0;  ///< its number
        std::string name;
        std::string details;  ///< JSON members, or empty
    };

    /// The number of a track, from 1 on. A new one is added.
    [[nodiscard]] std::uint32_t number_of(std::string_view track);
    static void append_quoted(std::string& out, std::string_view text);
    /// With three decimals: whole nanoseconds. Precondition: not negative.
    [[nodiscard]] static std::string microseconds(Time time);

    std::vector<Event> events_;
    std::vector<std::string> tracks_;  // number - 1 → name
    std::uint64_t arrows_ = 0;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/timeline/impl/perfetto.ipp"
#endif
