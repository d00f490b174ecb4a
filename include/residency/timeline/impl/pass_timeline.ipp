// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "residency/config.hpp"
#include "residency/core/measure/report_text.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/sort.hpp"
#include "residency/timeline/pass_timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::string PassTimeline::name_of_row(std::size_t row) {
    return std::string{compute_row} + (row == 0 ? "" : " " + std::to_string(row + 1));
}

RESIDENCY_INLINE std::string PassTimeline::name_of(const Copy& copy) {
    if (copy.pieces.empty()) { return "copy"; }
    const std::string& first = copy.pieces.front().weight;
    const std::size_t more = copy.pieces.size() - 1;
    return more == 0 ? first : first + " and " + std::to_string(more) + " more";
}

RESIDENCY_INLINE std::string PassTimeline::name_of(const Catalog& catalog, StorageId storage) {
    const auto weights = catalog.weights_of(storage);
    if (weights.empty()) { return "storage " + std::to_string(index(storage)); }
    const std::string& first = catalog.weight(weights.front()).name;
    return weights.size() == 1 ? first : first + " (and " + std::to_string(weights.size() - 1) + " on the same bytes)";
}

RESIDENCY_INLINE std::optional<std::size_t> PassTimeline::kernel_after(const Stall& stall) const noexcept {
    for (std::size_t i = stall.next_kernel; i < kernels_.size(); ++i) {
        if (kernels_[i].row == stall.row) { return i; }
    }
    return std::nullopt;
}

RESIDENCY_INLINE std::size_t PassTimeline::last_of_step(std::size_t first) const {
    const Kernel& of = kernels_[first];
    std::size_t last = first;
    for (std::size_t i = first + 1; i < kernels_.size(); ++i) {
        if (kernels_[i].row != of.row) { continue; }
        if (kernels_[i].step != of.step || kernels_[i].run != of.run) { break; }
        last = i;
    }
    return last;
}

RESIDENCY_INLINE std::vector<PassTimeline::Gap> PassTimeline::gaps(Time from, Time to) const {
    constexpr std::size_t no_kernel = (std::numeric_limits<std::size_t>::max)();
    struct Busy {
        Time start{}, end{};
        std::size_t kernel = no_kernel;
    };
    std::vector<Busy> busy;
    busy.reserve(kernels_.size() + stalls_.size());
    Time first = to;  // that a kernel of these begins
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
        if (kernels_[i].end <= from || kernels_[i].start >= to) { continue; }
        busy.push_back({kernels_[i].start, kernels_[i].end, i});
        if (kernels_[i].start >= from) { first = (std::min)(first, kernels_[i].start); }
    }
    if (first == to) { return {}; }
    for (const Stall& stall : stalls_) {
        if (stall.end > from && stall.start < to) { busy.push_back({stall.start, stall.end, no_kernel}); }
    }
    residency::detail::sort(busy, [](const Busy& a, const Busy& b) {
        return a.start != b.start ? a.start < b.start : a.kernel < b.kernel;
    });
    std::vector<Gap> found;
    std::size_t before = no_kernel;
    Time until{};
    for (const Busy& each : busy) {
        if (before != no_kernel && until >= first && each.start - until >= least_gap) {
            found.push_back({until, each.start, before});
        }
        if (each.end < until) { continue; }
        until = each.end;
        if (each.kernel != no_kernel) { before = each.kernel; }
    }
    return found;
}

RESIDENCY_INLINE std::string PassTimeline::idle_in_words() const {
    if (passes_.empty()) { return {}; }
    const Pass& pass = passes_.back();
    Time sum{}, longest{};
    std::string after;
    for (const Gap& gap : gaps(pass.start, pass.end)) {
        const Time length = gap.end - gap.start;
        sum += length;
        if (length <= longest) { continue; }
        longest = length;
        after = name_of_step(kernels_[gap.after]);
    }
    const Time all = pass.end - pass.start;
    if (sum * 100 < all * 3 || sum == Time{}) { return {}; }
    return "idle between steps: " + detail::in_ms(sum) + " of " + detail::in_ms(all) + " (" + pass.name +
           "), the longest " + detail::in_ms(longest) + " after " + detail::escaped(after) +
           "; the host did not submit in time: it waited (a synchronize of your own), or had other work. Kernels "
           "outside leases count here too, unless TimelineRecorder::kernel names them";
}

RESIDENCY_INLINE bool PassTimeline::began_late(const Stall& stall) const {
    if (!stall.copy) { return false; }
    std::size_t first = 0;  // of the copies since the stall before
    Time before = stall.start;
    for (const Stall& each : stalls_) {
        if (each.copy && each.end <= stall.start && *each.copy < *stall.copy) {
            first = (std::max)(first, *each.copy + 1);
        }
    }
    if (first > 0) { before = copies_[first - 1].end; }
    Time idle{};
    for (std::size_t i = first; i <= *stall.copy; ++i) {
        idle += (std::max)(copies_[i].start - before, Time{});
        before = (std::max)(before, copies_[i].end);
    }
    return cause_of_stall(stall.end - stall.start, {}, {}, idle) != StallCause::link;
}

RESIDENCY_INLINE std::string PassTimeline::cause_of(const Stall& stall) const {
    if (!stall.copy) { return "a copy"; }
    return "copy of " + name_of(copies_[*stall.copy]) +
           (began_late(stall) ? ": it began late, the link had stood idle" : ": the link was busy");
}

RESIDENCY_INLINE std::string PassTimeline::table(std::optional<std::size_t> pass) const {
    Time from = (Time::min)(), to = (Time::max)(), zero{};
    std::string text;
    if (!passes_.empty()) {
        RESIDENCY_ASSERT(!pass || *pass < passes_.size(), "pass the number of a pass of the timeline");
        const Pass& of = passes_[pass.value_or(passes_.size() - 1)];
        from = zero = of.start;
        to = of.end;
        text = detail::escaped(of.name) + ": " + detail::in_ms(of.end - of.start) + ", " +
               detail::in_units(of.copied_bytes) + " copied\n";
    }
    enum class Kind : std::uint8_t { copy, idle, step };
    struct Line {
        Time start{}, end{};
        Kind kind = Kind::step;
        std::size_t number = 0;
        std::array<std::string, 6> cells;
    };
    constexpr std::size_t widest = 48;
    std::vector<Line> lines;
    const auto add = [&](Time start, Time end, Kind kind, const std::string& step, const std::string& name, Time waits,
                         const std::string& why) {
        const auto at = [&](Time time) {
            std::array<char, 32> number{};
            std::snprintf(number.data(), number.size(), "%.3f", static_cast<double>(time.count()) / 1e6);
            return std::string{number.data()};
        };
        const auto of_line = [&](const std::string& cell) { return detail::escaped(detail::shortened(cell, widest)); };
        lines.push_back({start,
                         end,
                         kind,
                         lines.size(),
                         {of_line(step), of_line(name), at(start - zero), at(end - zero),
                          waits > Time{} ? at(waits) : std::string{}, detail::escaped(why)}});
    };
    for (const Copy& copy : copies_) {
        if (copy.start < from || copy.start >= to) { continue; }
        add(copy.start, copy.end, Kind::copy, "copy", name_of(copy) + ", " + detail::in_units(copy.bytes()), {}, {});
    }
    for (const Gap& gap : gaps(from, to)) { add(gap.start, gap.end, Kind::idle, "idle", "nothing ran", {}, {}); }
    std::vector<bool> is_told(kernels_.size(), false);
    std::vector<Time> waits(kernels_.size());
    std::vector<std::string> causes(kernels_.size());
    for (const Stall& stall : stalls_) {
        const auto next = kernel_after(stall);
        if (!next || kernels_[*next].start < from || kernels_[*next].start >= to) { continue; }
        waits[*next] += stall.end - stall.start;
        causes[*next] = cause_of(stall);
    }
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
        const Kernel& first = kernels_[i];
        if (is_told[i] || first.start < from || first.start >= to) { continue; }
        const std::size_t last = first.step.empty() ? i : last_of_step(i);
        Time waited{};
        std::string why;
        std::size_t more = 0;
        for (std::size_t k = i; k <= last; ++k) {
            if (kernels_[k].row != first.row) { continue; }
            is_told[k] = true;
            more += k > i ? 1 : 0;
            waited += waits[k];
            if (!causes[k].empty()) { why = causes[k]; }
        }
        const std::string name = first.name + (more > 0 ? " and " + std::to_string(more) + " more" : std::string{});
        add(first.start, kernels_[last].end, Kind::step, first.step.empty() ? "-" : first.step, name, waited, why);
    }
    residency::detail::sort(lines, [](const Line& a, const Line& b) {
        if (a.start != b.start) { return a.start < b.start; }
        return a.kind != b.kind ? a.kind < b.kind : a.number < b.number;
    });
    const std::array<std::string, 6> heading{"step", "weights", "start", "end", "waits", "for"};
    std::array<std::size_t, 6> widths{};
    const auto width_of = [](const std::string& cell) {  // characters of UTF-8
        return static_cast<std::size_t>(std::count_if(
            cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    };
    const auto widen = [&](const std::array<std::string, 6>& cells) {
        for (std::size_t i = 0; i < cells.size(); ++i) { widths[i] = (std::max)(widths[i], width_of(cells[i])); }
    };
    widen(heading);
    for (const Line& line : lines) { widen(line.cells); }
    const auto write = [&](const std::array<std::string, 6>& cells) {
        std::string line;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string fill(widths[i] - width_of(cells[i]), ' ');
            const bool is_number = i >= 2 && i <= 4;
            line += (i == 0 ? "" : "  ") + (is_number ? fill + cells[i] : cells[i] + fill);
        }
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    write(heading);
    for (const Line& line : lines) { write(line.cells); }
    return text;
}

RESIDENCY_INLINE PerfettoTrace PassTimeline::trace() const {
    PerfettoTrace trace;
    for (const Pass& pass : passes_) { trace.event(pass_row, pass.name, pass.start, pass.end, pass.copied_bytes); }
    std::size_t rows = 0;
    for (const Kernel& kernel : kernels_) { rows = (std::max)(rows, kernel.row + 1); }
    for (std::size_t row = 0; row < rows; ++row) {
        const std::string name = name_of_row(row);
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            const Kernel& first = kernels_[i];
            if (first.row != row || first.step.empty()) { continue; }
            const std::size_t last = last_of_step(i);
            trace.event(name, first.step, first.start, kernels_[last].end);
            i = last;
        }
        for (const Kernel& kernel : kernels_) {
            if (kernel.row == row) {
                trace.event(name, kernel.name, kernel.start, kernel.end, std::nullopt, kernel.step);
            }
        }
    }
    for (const Copy& copy : copies_) {
        const std::uint64_t bytes = copy.bytes();
        trace.event(copy_row, name_of(copy), copy.start, copy.end, bytes);
        if (copy.pieces.size() < 2 || bytes == 0) { continue; }
        // Inside a call each weight takes the link for its share of the bytes.
        const double length = static_cast<double>((copy.end - copy.start).count()) / static_cast<double>(bytes);
        std::uint64_t before = 0;
        for (const Piece& piece : copy.pieces) {
            const auto at = [&](std::uint64_t sum) {
                return copy.start + Time{static_cast<Time::rep>(static_cast<double>(sum) * length)};
            };
            trace.event(copy_row, piece.weight, at(before), (std::min)(at(before + piece.bytes), copy.end),
                        piece.bytes);
            before += piece.bytes;
        }
    }
    for (const Copy& copy : copies_back_) {
        trace.event(copy_back_row, "copy", copy.start, copy.end, copy.pieces.front().bytes);
    }
    for (const Stall& stall : stalls_) {
        const std::string awaited = stall.copy ? name_of(copies_[*stall.copy]) : std::string{};
        trace.event(name_of_row(stall.row), awaited.empty() ? "stall" : "stall: waits for " + awaited, stall.start,
                    stall.end);
        const auto next = kernel_after(stall);
        if (!stall.copy || !next) { continue; }
        // An arrow begins and ends inside an operation.
        if (copies_[*stall.copy].start == copies_[*stall.copy].end || kernels_[*next].start == kernels_[*next].end) {
            continue;
        }
        trace.arrow(copy_row, copies_[*stall.copy].start, name_of_row(stall.row), kernels_[*next].start);
    }
    for (const Memory& memory : memory_) {
        trace.counter("held bytes", memory.at, memory.held_bytes);
        trace.counter("budget bytes", memory.at, memory.budget_bytes);
    }
    return trace;
}

}}  // namespace residency::RESIDENCY_ABI
