// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace trace {

/// A picture of what ran when, as JSON in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open. Times count
/// from any common zero; they may be a simulation's.
class Perfetto {
public:
    using Time = std::chrono::nanoseconds;

    /// One operation of a stream, thread or link, which becomes a row of that name. `bytes` are shown with it.
    void event(std::string_view track, std::string_view name, Time start, Time end,
               std::optional<std::uint64_t> bytes = std::nullopt) {
        begin("X", number_of(track));
        field("name", name);
        events_ += ",\"ts\":" + microseconds(start) + ",\"dur\":" + microseconds(end - start);
        if (bytes) { events_ += ",\"args\":{\"bytes\":" + std::to_string(*bytes) + "}"; }
        events_ += '}';
    }
    /// A value from a time on, such as the bytes held, drawn as a curve.
    void counter(std::string_view name, Time at, std::uint64_t value) {
        begin("C", 0);
        field("name", name);
        events_ += ",\"ts\":" + microseconds(at) + ",\"args\":{\"value\":" + std::to_string(value) + "}}";
    }

    /// The whole file.
    [[nodiscard]] std::string json() const {
        return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events_ + "\n]}\n";
    }
    /// Writes it, whole or not at all. Blocks.
    [[nodiscard]] Status try_save(const std::string& path) const {
        const std::string text = json();
        return residency::detail::write_file(path, std::as_bytes(std::span{text}));
    }
#if RESIDENCY_EXCEPTIONS
    void save(const std::string& path) const { unwrap(try_save(path)); }
#endif

private:
    void begin(std::string_view phase, std::uint32_t track) {
        events_ += events_.empty() ? "\n{" : ",\n{";
        events_ += "\"ph\":\"";
        events_ += phase;
        events_ += "\",\"pid\":1,\"tid\":" + std::to_string(track);
    }
    void field(std::string_view key, std::string_view text) {
        events_ += ",\"";
        events_ += key;
        events_ += "\":";
        append_quoted(text);
    }
    [[nodiscard]] std::uint32_t number_of(std::string_view track) {
        const auto found = tracks_.find(track);
        if (found != tracks_.end()) { return found->second; }
        const auto number = static_cast<std::uint32_t>(tracks_.size() + 1);
        tracks_.emplace(track, number);
        begin("M", number);
        events_ += ",\"name\":\"thread_name\",\"args\":{\"name\":";
        append_quoted(track);
        events_ += "}}";
        begin("M", number);
        events_ += ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(number) + "}}";
        return number;
    }
    void append_quoted(std::string_view text) {
        events_ += '"';
        for (const char c : text) {
            if (c == '"' || c == '\\') {
                events_ += '\\';
                events_ += c;
            } else if (static_cast<unsigned char>(c) < 0x20) {
                char escaped[8];
                std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
                events_ += escaped;
            } else {
                events_ += c;
            }
        }
        events_ += '"';
    }
    /// With three decimals: whole nanoseconds, without rounding.
    [[nodiscard]] static std::string microseconds(Time time) {
        const std::int64_t ns = time.count();
        const auto rest = static_cast<int>(ns % 1000);
        char text[40];
        std::snprintf(text, sizeof text, "%s%lld.%03d", ns < 0 ? "-" : "",
                      static_cast<long long>(ns < 0 ? -(ns / 1000) : ns / 1000), rest < 0 ? -rest : rest);
        return text;
    }

    std::string events_;
    std::map<std::string, std::uint32_t, std::less<>> tracks_;
};

}}}  // namespace residency::RESIDENCY_ABI::trace
