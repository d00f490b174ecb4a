// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <span>

#include "residency/config.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/sort.hpp"
#include "residency/timeline/perfetto.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE void PerfettoTrace::event(std::string_view track, std::string_view name, Time start, Time end,
                                           std::optional<std::uint64_t> bytes, std::string_view note) {
    RESIDENCY_ASSERT(start <= end, "an operation does not end before it starts");
    Event& event = events_.emplace_back();
    event.start = start;
    event.duration = end - start;
    event.track = number_of(track);
    event.name = name;
    if (bytes) { event.details = "\"bytes\":" + std::to_string(*bytes); }
    if (!note.empty()) {
        event.details += event.details.empty() ? "\"note\":" : ",\"note\":";
        append_quoted(event.details, note);
    }
}

RESIDENCY_INLINE void PerfettoTrace::counter(std::string_view name, Time at, std::uint64_t value) {
    Event& event = events_.emplace_back();
    event.start = at;
    event.phase = Phase::counter;
    event.name = name;
    event.details = "\"value\":" + std::to_string(value);
}

RESIDENCY_INLINE void PerfettoTrace::arrow(std::string_view from_track, Time from, std::string_view to_track, Time to) {
    RESIDENCY_ASSERT(from <= to, "an arrow does not point to the past");
    ++arrows_;
    for (const Phase phase : {Phase::arrow_begin, Phase::arrow_end}) {
        const bool begins = phase == Phase::arrow_begin;
        Event& event = events_.emplace_back();
        event.start = begins ? from : to;
        event.track = number_of(begins ? from_track : to_track);
        event.phase = phase;
        event.arrow = arrows_;
        event.name = "waits for";
    }
}

RESIDENCY_INLINE std::string PerfettoTrace::json() const {
    std::vector<std::size_t> order(events_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    // Readers take equal times in the order of the file, and an operation has to be there before what is inside it.
    residency::detail::sort(order, [&](std::size_t a, std::size_t b) {
        const Event& x = events_[a];
        const Event& y = events_[b];
        if (x.start != y.start) { return x.start < y.start; }
        if (x.phase != y.phase) { return x.phase < y.phase; }
        return x.duration != y.duration ? x.duration > y.duration : a < b;
    });
    Time zero{};  // of the file; before that of the times where some are negative
    for (const Event& event : events_) { zero = (std::min)(zero, event.start); }

    std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    const auto begin = [&](const char* phase, std::uint32_t track) {
        out += out.back() == '[' ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
        out += phase;
        out += "\",\"pid\":1,\"tid\":" + std::to_string(track);
    };
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
        const auto number = static_cast<std::uint32_t>(i + 1);
        begin("M", number);
        out += ",\"name\":\"thread_name\",\"args\":{\"name\":";
        append_quoted(out, tracks_[i]);
        out += "}}";
        begin("M", number);
        out += ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(number) + "}}";
    }
    for (const std::size_t i : order) {
        const Event& event = events_[i];
        switch (event.phase) {
            case Phase::operation: begin("X", event.track); break;
            case Phase::arrow_begin: begin("s", event.track); break;
            case Phase::arrow_end: begin("f", event.track); break;
            case Phase::counter: begin("C", 0); break;
        }
        out += ",\"name\":";
        append_quoted(out, event.name);
        out += ",\"ts\":" + microseconds(event.start - zero);
        if (event.phase == Phase::operation) { out += ",\"dur\":" + microseconds(event.duration); }
        if (event.arrow != 0) { out += ",\"cat\":\"wait\",\"id\":" + std::to_string(event.arrow); }
        if (event.phase == Phase::arrow_end) { out += ",\"bp\":\"e\""; }
        if (!event.details.empty()) { out += ",\"args\":{" + event.details + "}"; }
        out += '}';
    }
    return out + "\n]}\n";
}

RESIDENCY_INLINE Status PerfettoTrace::try_save(const std::string& path) const {
    const std::string text = json();
    return detail::write_file(path, std::as_bytes(std::span{text}));
}

RESIDENCY_INLINE std::uint32_t PerfettoTrace::number_of(std::string_view track) {
    const auto found = std::find(tracks_.begin(), tracks_.end(), track);
    const auto number = static_cast<std::uint32_t>(found - tracks_.begin() + 1);
    if (found == tracks_.end()) { tracks_.emplace_back(track); }
    return number;
}

RESIDENCY_INLINE void PerfettoTrace::append_quoted(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const std::size_t bytes = detail::utf8_bytes(text);
        const char c = text.front();
        if (bytes > 1) {
            out += text.substr(0, bytes);
        } else if (bytes == 0 ||
                   static_cast<unsigned char>(c) < 0x20) {  // JSON is UTF-8: other bytes as Latin-1 has them
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            out += escaped;
        } else {
            if (c == '"' || c == '\\') { out += '\\'; }
            out += c;
        }
        text.remove_prefix((std::max)(bytes, std::size_t{1}));
    }
    out += '"';
}

RESIDENCY_INLINE std::string PerfettoTrace::microseconds(Time time) {
    char text[40];
    std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(time.count() / 1000),
                  static_cast<int>(time.count() % 1000));
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
