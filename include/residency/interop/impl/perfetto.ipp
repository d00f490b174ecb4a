// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/interop/perfetto.hpp"
#include "residency/model/file.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE void PerfettoTrace::event(std::string_view track, std::string_view name, Time start, Time end,
                                           std::optional<std::uint64_t> bytes) {
    begin("X", number_of(track));
    field("name", name);
    events_ += ",\"ts\":" + microseconds(start) + ",\"dur\":" + microseconds(end - start);
    if (bytes) { events_ += ",\"args\":{\"bytes\":" + std::to_string(*bytes) + "}"; }
    events_ += '}';
}

RESIDENCY_INLINE void PerfettoTrace::counter(std::string_view name, Time at, std::uint64_t value) {
    begin("C", 0);
    field("name", name);
    events_ += ",\"ts\":" + microseconds(at) + ",\"args\":{\"value\":" + std::to_string(value) + "}}";
}

RESIDENCY_INLINE std::string PerfettoTrace::json() const {
    return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events_ + "\n]}\n";
}

RESIDENCY_INLINE Status PerfettoTrace::try_save(const std::string& path) const {
    const std::string text = json();
    return detail::write_file(path, std::as_bytes(std::span{text}));
}

RESIDENCY_INLINE void PerfettoTrace::begin(std::string_view phase, std::uint32_t track) {
    events_ += events_.empty() ? "\n{" : ",\n{";
    events_ += "\"ph\":\"";
    events_ += phase;
    events_ += "\",\"pid\":1,\"tid\":" + std::to_string(track);
}

RESIDENCY_INLINE void PerfettoTrace::field(std::string_view key, std::string_view text) {
    events_ += ",\"";
    events_ += key;
    events_ += "\":";
    append_quoted(text);
}

RESIDENCY_INLINE std::uint32_t PerfettoTrace::number_of(std::string_view track) {
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
        if (tracks_[i] == track) { return static_cast<std::uint32_t>(i + 1); }
    }
    tracks_.emplace_back(track);
    const auto number = static_cast<std::uint32_t>(tracks_.size());
    begin("M", number);
    events_ += ",\"name\":\"thread_name\",\"args\":{\"name\":";
    append_quoted(track);
    events_ += "}}";
    begin("M", number);
    events_ += ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(number) + "}}";
    return number;
}

RESIDENCY_INLINE void PerfettoTrace::append_quoted(std::string_view text) {
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

RESIDENCY_INLINE std::string PerfettoTrace::microseconds(Time time) {
    const std::int64_t ns = time.count();
    const auto rest = static_cast<int>(ns % 1000);
    char text[40];
    std::snprintf(text, sizeof text, "%s%lld.%03d", ns < 0 ? "-" : "",
                  static_cast<long long>(ns < 0 ? -(ns / 1000) : ns / 1000), rest < 0 ? -rest : rest);
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
