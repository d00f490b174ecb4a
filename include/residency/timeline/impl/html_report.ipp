// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/report_text.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/sort.hpp"
#include "residency/timeline/html_report.hpp"
#include "residency/version.hpp"

namespace residency { inline namespace RESIDENCY_ABI {
namespace detail {

/// Writes the page of an HtmlReport. Every piece of text goes through text().
class HtmlWriter {
public:
    explicit HtmlWriter(const HtmlReport& report) : report_{&report} {}
    [[nodiscard]] std::string page();

private:
    using Time = PassTimeline::Time;
    static constexpr std::size_t most_shapes = 20'000;
    static constexpr double width = 1200;  // of the drawing, in its own units

    /// What became of one step of the schedule in all passes that are shown.
    struct StepSum {
        std::uint64_t runs = 0, stalls = 0;
        Time time{}, stall{}, longest_stall{};
        std::string awaited;  // the copies of the longest stall
    };
    struct CopySum {
        std::uint64_t copies = 0, bytes = 0;
        double nanoseconds = 0;
    };

    [[nodiscard]] static std::string escaped_html(std::string_view text) {
        std::string out;
        for (const char c : escaped(text)) {
            switch (c) {
                case '&': out += "&amp;"; break;
                case '<': out += "&lt;"; break;
                case '>': out += "&gt;"; break;
                case '"': out += "&quot;"; break;
                case '\'': out += "&#39;"; break;
                default: out += c;
            }
        }
        return out;
    }
    [[nodiscard]] static std::string number(double value, const char* form) {
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), form, value);
        return text.data();
    }
    [[nodiscard]] static std::string bytes(std::uint64_t count) { return in_units(count); }
    [[nodiscard]] static std::string milliseconds(Time time) { return in_ms(time); }

    void raw(std::string_view html) { out_ += html; }
    void text(std::string_view text) { out_ += escaped_html(text); }
    void tile(std::string_view name, std::string_view value, std::string_view note = {});
    void row(std::initializer_list<std::string> cells);
    void sum_up();
    void write_summary();
    void write_advice();
    void write_picture();
    void write_memory(Time begin, Time end);
    void write_steps();
    void write_copies();
    void write_counters();
    /// A shape of the drawing with what it says when it is pointed at.
    void shape(std::string_view kind, Time start, Time end, double top, double height, std::string_view says);
    [[nodiscard]] double x(Time at) const {
        return static_cast<double>((at - begin_).count()) * width / static_cast<double>(length_.count());
    }

    const HtmlReport* report_;
    std::string out_;
    std::vector<std::pair<std::string, StepSum>> steps_;  // in the order in which they first ran
    std::map<std::string, CopySum> copies_;               // by weight
    Time stall_{};                                        // of all passes
    Time begin_{}, length_{1};                            // of what is drawn
};

RESIDENCY_INLINE void HtmlWriter::tile(std::string_view name, std::string_view value, std::string_view note) {
    raw("<div class=\"tile\"><div class=\"name\">");
    text(name);
    raw("</div><div class=\"value\">");
    text(value);
    raw("</div><div class=\"note\">");
    text(note);
    raw("</div></div>\n");
}

RESIDENCY_INLINE void HtmlWriter::row(std::initializer_list<std::string> cells) {
    raw("<tr>");
    for (const std::string& cell : cells) {
        raw("<td>");
        text(cell);
        raw("</td>");
    }
    raw("</tr>\n");
}

RESIDENCY_INLINE void HtmlWriter::sum_up() {
    const PassTimeline& timeline = report_->timeline;
    std::map<std::string, std::size_t> known;
    const auto sum_of = [&](const PassTimeline::Kernel& kernel) -> StepSum& {
        const std::string name = PassTimeline::name_of_step(kernel);
        const auto [at, is_new] = known.try_emplace(name, steps_.size());
        if (is_new) { steps_.emplace_back(name, StepSum{}); }
        return steps_[at->second].second;
    };
    // The kernels of a run follow each other on their row; a run takes from the first to the last of them.
    struct Run {
        std::string step;
        std::uint64_t number = 0;
        Time end{};
    };
    std::map<std::size_t, Run> last;  // by row
    for (const PassTimeline::Kernel& kernel : timeline.kernels()) {
        StepSum& sum = sum_of(kernel);
        Run& run = last[kernel.row];
        const std::string step = PassTimeline::name_of_step(kernel);
        const bool continues = sum.runs > 0 && run.step == step && run.number == kernel.run;
        sum.runs += continues ? 0U : 1U;
        sum.time += kernel.end - (continues ? run.end : kernel.start);
        run = {step, kernel.run, kernel.end};
    }
    for (const PassTimeline::Stall& stall : timeline.stalls()) {
        stall_ += stall.end - stall.start;
        const auto kernel = timeline.kernel_after(stall);
        if (!kernel) { continue; }
        StepSum& sum = sum_of(timeline.kernels()[*kernel]);
        const Time length = stall.end - stall.start;
        ++sum.stalls;
        sum.stall += length;
        if (length > sum.longest_stall) {
            sum.longest_stall = length;
            sum.awaited = stall.copy ? PassTimeline::name_of(timeline.copies()[*stall.copy]) : std::string{};
        }
    }
    for (const PassTimeline::Copy& copy : timeline.copies()) {
        const std::uint64_t all = copy.bytes();
        for (const PassTimeline::Piece& piece : copy.pieces) {
            CopySum& sum = copies_[piece.weight];
            ++sum.copies;
            sum.bytes += piece.bytes;
            if (all > 0) {
                sum.nanoseconds += static_cast<double>((copy.end - copy.start).count()) *
                                   static_cast<double>(piece.bytes) / static_cast<double>(all);
            }
        }
    }
}

RESIDENCY_INLINE void HtmlWriter::write_summary() {
    const Statistics& s = report_->statistics;
    const auto passes = report_->timeline.passes();
    raw("<header><h1>");
    text(report_->title);
    raw("</h1>\n");
    if (!report_->device.empty()) {
        raw("<p>");
        text(report_->device);
        raw("</p>\n");
    }
    if (!report_->budget.empty()) {
        raw("<p>");
        text(report_->budget);
        raw("</p>\n");
    }
    raw("<p>");
    text(describe(s.learning));
    raw("</p></header>\n<section class=\"tiles\">\n");
    if (s.pass_time) {
        tile("a pass takes", milliseconds(*s.pass_time),
             s.regret() ? number(*s.regret() * 100, "%.1f %% over the bound") : std::string{});
    }
    if (s.bound) { tile("no order of copies beats", milliseconds(*s.bound), "the exact bound at this budget"); }
    if (!passes.empty()) {
        tile("waiting for copies", milliseconds(stall_ / static_cast<std::int64_t>(passes.size())),
             "a pass, in the mean of the " + std::to_string(passes.size()) + " that were recorded");
    }
    tile("budget", bytes(s.budget_bytes), "the smallest that works: " + bytes(s.floor_bytes));
    tile("held", bytes(s.held_bytes), s.streaming ? "weights stream" : "everything is resident");
    tile("copied in the last pass", bytes(s.last_pass.fetched_bytes),
         std::to_string(s.last_pass.calls) + " copy calls");
    raw("</section>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_advice() {
    std::vector<std::string> sentences = report_->advice;
    if (sentences.empty()) {
        const Statistics& of = report_->statistics;
        const auto cost = of.last_pass.demand_misses > 0 ? std::optional{true} : std::nullopt;
        std::string said = divergences_in_words(of, cost, holds_leases(of));
        if (!said.empty()) { sentences.push_back(std::move(said)); }
    }
    std::string idle = report_->timeline.idle_in_words();
    if (!idle.empty() && std::find(sentences.begin(), sentences.end(), idle) == sentences.end()) {
        sentences.push_back(std::move(idle));
    }
    if (sentences.empty()) { return; }
    raw("<section><h2>What to change</h2>\n<ul>\n");
    for (const std::string& each : sentences) {
        raw("<li>");
        text(each);
        raw("</li>\n");
    }
    raw("</ul></section>\n");
}

RESIDENCY_INLINE void HtmlWriter::shape(std::string_view kind, Time start, Time end, double top, double height,
                                        std::string_view says) {
    raw("<rect class=\"");
    raw(kind);
    raw("\" x=\"" + number(x(start), "%.3f") + "\" y=\"" + number(top, "%.1f") + "\" width=\"" +
        number((std::max)(x(end) - x(start), 0.05), "%.3f") + "\" height=\"" + number(height, "%.1f") + "\"><title>");
    text(says);
    raw("\n");
    text(milliseconds(end - start));
    raw("</title></rect>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_picture() {
    const PassTimeline& timeline = report_->timeline;
    raw("<section><h2>Timeline</h2>\n");
    if (timeline.kernels().empty() && timeline.copies().empty()) {
        raw("<p>No pass was recorded.</p></section>\n");
        return;
    }
    // From the first moment on that leaves few enough shapes.
    std::vector<Time> starts;
    Time end = (Time::min)();
    std::size_t rows = 0;
    const auto note = [&](Time from, Time to) {
        starts.push_back(from);
        end = (std::max)(end, to);
    };
    for (const auto& kernel : timeline.kernels()) {
        note(kernel.start, kernel.end);
        rows = (std::max)(rows, kernel.row + 1);
    }
    for (const auto& copy : timeline.copies()) { note(copy.start, copy.end); }
    for (const auto& stall : timeline.stalls()) { note(stall.start, stall.end); }
    std::sort(starts.begin(), starts.end());
    const bool is_cut = starts.size() > most_shapes;
    begin_ = is_cut ? starts[starts.size() - most_shapes] : starts.front();
    if (is_cut) {
        for (const auto& pass : timeline.passes()) {
            if (pass.start >= begin_) {
                begin_ = pass.start;
                break;
            }
        }
    }
    length_ = (std::max)(end - begin_, Time{1});
    std::string note_text =
        "Point at a shape to read what it is. Turn the wheel over the drawing to zoom, drag to "
        "move, double-click to see all.";
    if (is_cut) { note_text += " Only the last passes are drawn; the tables are of all."; }
    if (!report_->gaps.empty()) { note_text += " Missing: " + report_->gaps + "."; }
    raw("<p class=\"note\">");
    text(note_text);
    raw("</p>\n<div class=\"key\"><span class=\"pass\">pass</span><span class=\"kernel\">step</span>"
        "<span class=\"stall\">waits for a copy</span><span class=\"copy\">copy to the device</span></div>\n");
    constexpr double row_height = 26;
    const double copies_top = 22 + static_cast<double>(rows) * row_height;
    const double height = copies_top + row_height + 4;
    raw("<svg id=\"timeline\" role=\"img\" aria-label=\"what ran when\" viewBox=\"0 0 1200 " + number(height, "%.0f") +
        "\" preserveAspectRatio=\"none\" style=\"height:" + number(height * 1.6, "%.0f") + "px\">\n");
    for (const auto& pass : timeline.passes()) {
        if (pass.start < begin_) { continue; }
        shape("pass", pass.start, pass.end, 2, 14, pass.name + ", " + bytes(pass.copied_bytes) + " copied");
    }
    const auto top_of = [&](std::size_t row) { return 20 + static_cast<double>(row) * row_height; };
    for (std::size_t i = 0; i < timeline.kernels().size(); ++i) {
        const auto& kernel = timeline.kernels()[i];
        if (kernel.start < begin_) { continue; }
        shape(i % 2 == 0 ? "kernel" : "kernel other", kernel.start, kernel.end, top_of(kernel.row), row_height - 4,
              kernel.step.empty() ? kernel.name : kernel.step + ": " + kernel.name);
    }
    for (const auto& stall : timeline.stalls()) {
        if (stall.start < begin_) { continue; }
        shape("stall", stall.start, stall.end, top_of(stall.row), row_height - 4,
              stall.copy ? "waits for " + PassTimeline::name_of(timeline.copies()[*stall.copy]) : "waits for a copy");
    }
    for (std::size_t i = 0; i < timeline.copies().size(); ++i) {
        const auto& copy = timeline.copies()[i];
        if (copy.start < begin_) { continue; }
        shape(i % 2 == 0 ? "copy" : "copy other", copy.start, copy.end, copies_top, row_height - 4,
              PassTimeline::name_of(copy) + ", " + bytes(copy.bytes()));
    }
    raw("</svg>\n<p class=\"note\">");
    text("From left to right " + milliseconds(length_) + "; from top to bottom: passes, " +
         (rows > 1 ? std::to_string(rows) + " rows of steps" : std::string{"steps"}) + ", copies.");
    raw("</p>\n");
    write_memory(begin_, end);
    raw("</section>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_memory(Time begin, Time end) {
    const auto memory = report_->timeline.memory();
    if (memory.empty()) { return; }
    std::uint64_t most = 1;
    for (const auto& each : memory) { most = (std::max)({most, each.held_bytes, each.budget_bytes}); }
    constexpr double height = 80;
    const auto y = [&](std::uint64_t count) {
        return height - static_cast<double>(count) * (height - 4) / static_cast<double>(most);
    };
    const auto curve = [&](std::string_view kind, auto&& value) {
        // Steps: a value holds until the next one.
        std::string path;
        for (const auto& each : memory) {
            if (each.at > end) { break; }
            const double at = x((std::max)(each.at, begin));
            const double now = y(value(each));
            path += path.empty() ? "M0 " + number(now, "%.2f") : " H" + number(at, "%.3f") + " V" + number(now, "%.2f");
        }
        path += " H1200";
        raw("<path class=\"" + std::string{kind} + "\" d=\"" + path + "\"/>\n");
    };
    raw("<h3>Device memory</h3>\n<div class=\"key\"><span class=\"held\">held</span><span "
        "class=\"budget\">budget</span>"
        "</div>\n<svg id=\"memory\" role=\"img\" aria-label=\"bytes held and budget\" viewBox=\"0 0 1200 80\" "
        "preserveAspectRatio=\"none\" style=\"height:96px\">\n");
    curve("held", [](const PassTimeline::Memory& each) { return each.held_bytes; });
    curve("budget", [](const PassTimeline::Memory& each) { return each.budget_bytes; });
    raw("</svg>\n<p class=\"note\">");
    text("From 0 to " + bytes(most) + ".");
    raw("</p>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_steps() {
    if (steps_.empty()) { return; }
    Time longest{1};
    for (const auto& [name, sum] : steps_) {
        longest = (std::max)(
            longest, (sum.time + sum.stall) / static_cast<std::int64_t>((std::max)(sum.runs, std::uint64_t{1})));
    }
    raw("<section><h2>Steps</h2>\n<p class=\"note\">Means of one run. Click on a heading to sort.</p>\n"
        "<table class=\"sortable\"><thead><tr><th>step</th><th>runs</th><th>runs for</th><th>waits before</th>"
        "<th>longest wait</th><th>for</th><th></th></tr></thead><tbody>\n");
    for (const auto& [name, sum] : steps_) {
        const auto runs = static_cast<std::int64_t>((std::max)(sum.runs, std::uint64_t{1}));
        const Time time = sum.time / runs, stall = sum.stall / runs;
        const auto share = [&](Time of) {
            return number(100.0 * static_cast<double>(of.count()) / static_cast<double>(longest.count()), "%.1f");
        };
        raw("<tr><td>");
        text(name);
        raw("</td><td>" + std::to_string(sum.runs) + "</td><td>" + milliseconds(time) + "</td><td>" +
            milliseconds(stall) + "</td><td>" + milliseconds(sum.longest_stall) + "</td><td>");
        text(sum.awaited);
        raw("</td><td class=\"bar\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\"><rect class=\"stall\" "
            "width=\"" +
            share(stall) + "\" height=\"10\"/><rect class=\"kernel\" x=\"" + share(stall) + "\" width=\"" +
            share(time) + "\" height=\"10\"/></svg></td></tr>\n");
    }
    raw("</tbody></table></section>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_copies() {
    if (copies_.empty()) { return; }
    constexpr std::size_t most = 100;
    std::vector<std::pair<std::string, CopySum>> sorted{copies_.begin(), copies_.end()};
    residency::detail::sort(sorted, [](const auto& a, const auto& b) {
        return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
    });
    raw("<section><h2>Copies</h2>\n");
    if (sorted.size() > most) {
        raw("<p class=\"note\">The 100 of " + std::to_string(sorted.size()) + " weights with the most bytes.</p>\n");
        sorted.resize(most);
    }
    raw("<table class=\"sortable\"><thead><tr><th>weight</th><th>copies</th><th>bytes</th><th>GB/s</th></tr></thead>"
        "<tbody>\n");
    for (const auto& [name, sum] : sorted) {
        row({name, std::to_string(sum.copies), bytes(sum.bytes),
             sum.nanoseconds > 0 ? number(static_cast<double>(sum.bytes) / sum.nanoseconds, "%.1f") : std::string{}});
    }
    raw("</tbody></table></section>\n");
}

RESIDENCY_INLINE void HtmlWriter::write_counters() {
    const Counters& last = report_->statistics.last_pass;
    const Counters& total = report_->statistics.total;
    raw("<section><h2>Counters</h2>\n<table><thead><tr><th></th><th>last pass</th><th>since the start</th></tr></thead>"
        "<tbody>\n");
    const auto count = [&](const char* name, std::uint64_t Counters::* member) {
        row({name, std::to_string(last.*member), std::to_string(total.*member)});
    };
    const auto amount = [&](const char* name, std::uint64_t Counters::* member) {
        row({name, bytes(last.*member), bytes(total.*member)});
    };
    count("passes", &Counters::passes);
    count("leases", &Counters::acquires);
    count("accesses that found the weights there", &Counters::hits);
    count("accesses that found them on their way", &Counters::prefetch_hits);
    count("accesses that had to fetch them", &Counters::demand_misses);
    amount("copied to the device", &Counters::fetched_bytes);
    count("copy calls", &Counters::calls);
    count("evictions", &Counters::evictions);
    amount("evicted", &Counters::evicted_bytes);
    count("prefetches without room", &Counters::dropped_prefetches);
    count("accesses that the schedule did not announce", &Counters::divergences);
    count("waits of the host", &Counters::host_waits);
    count("plans made", &Counters::plans_made);
    raw("</tbody></table></section>\n");
}

RESIDENCY_INLINE std::string HtmlWriter::page() {
    sum_up();
    raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">\n<title>");
    text(report_->title);
    raw("</title>\n");
    raw(R"(<style>
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1c1c1a; --quiet: #62625c; --line: #dddcd6; --tile: #f2f1ec;
  --pass: #b9b8b0; --kernel: #2a6fbb; --kernel-other: #5b93d2; --copy: #2f8f5b; --copy-other: #5fb287; --stall: #d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --page: #191918; --ink: #ececea; --quiet: #a3a39c; --line: #3a3a37; --tile: #252523;
    --pass: #55554f; --kernel: #5b9be6; --kernel-other: #3f78bd; --copy: #52b681; --copy-other: #38845d; --stall: #ec6a7b; } }
body { margin: 0 auto; max-width: 75rem; padding: 1rem 1.5rem 3rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: .5rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; } header p { margin: .1rem 0; color: var(--quiet); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem; margin-top: 1rem; }
.tile { background: var(--tile); border-radius: .4rem; padding: .6rem .8rem; }
.tile .value { font-size: 1.35rem; font-variant-numeric: tabular-nums; } .name, .note { color: var(--quiet); font-size: .85rem; }
svg { display: block; width: 100%; background: var(--tile); border-radius: .4rem; touch-action: none; }
#timeline { cursor: grab; }
rect.pass { fill: var(--pass); } rect.kernel { fill: var(--kernel); } rect.kernel.other { fill: var(--kernel-other); }
rect.copy { fill: var(--copy); } rect.copy.other { fill: var(--copy-other); } rect.stall { fill: var(--stall); }
path { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; } path.held { stroke: var(--copy); }
path.budget { stroke: var(--stall); stroke-dasharray: 6 4; }
.key { display: flex; flex-wrap: wrap; gap: 1rem; font-size: .85rem; margin: .25rem 0; }
.key span::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px; background: var(--c); }
.key .pass { --c: var(--pass); } .key .kernel { --c: var(--kernel); } .key .stall, .key .budget { --c: var(--stall); }
.key .copy, .key .held { --c: var(--copy); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th:first-child, td:first-child, th:nth-child(6), td:nth-child(6) { text-align: left; } .sortable th { cursor: pointer; }
td.bar { width: 20%; } td.bar svg { height: .8rem; } footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
</style>
</head>
<body>
)");
    write_summary();
    write_advice();
    write_picture();
    write_steps();
    write_copies();
    write_counters();
    raw("<footer>");
    text("Residency " + std::to_string(RESIDENCY_VERSION_MAJOR) + "." + std::to_string(RESIDENCY_VERSION_MINOR) + "." +
         std::to_string(RESIDENCY_VERSION_PATCH) + ". This page loads nothing.");
    raw("</footer>\n");
    raw(R"(<script>
"use strict";
const drawing = document.getElementById("timeline");
if (drawing) {
  const all = drawing.viewBox.baseVal, whole = all.width, height = all.height;
  const show = (x, width) => {
    width = Math.min(whole, Math.max(whole / 100000, width));
    drawing.setAttribute("viewBox", `${Math.min(whole - width, Math.max(0, x))} 0 ${width} ${height}`);
  };
  const at = event => all.x + all.width * (event.clientX - drawing.getBoundingClientRect().left) / drawing.clientWidth;
  drawing.addEventListener("wheel", event => {
    event.preventDefault();
    const here = at(event), factor = Math.exp(event.deltaY / 400);
    show(here - (here - all.x) * factor, all.width * factor);
  }, { passive: false });
  let held = null;
  drawing.addEventListener("pointerdown", event => { held = at(event); drawing.setPointerCapture(event.pointerId); });
  drawing.addEventListener("pointermove", event => { if (held !== null) { show(all.x + held - at(event), all.width); } });
  drawing.addEventListener("pointerup", () => { held = null; });
  drawing.addEventListener("dblclick", () => show(0, whole));
}
for (const head of document.querySelectorAll(".sortable th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const units = { B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824, TiB: 1099511627776 };
    const value = row => {
      const [number, unit] = row.cells[column].textContent.split(" ");
      return Number(number) * (units[unit] || 1);
    };
    const text = (a, b) => a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true });
    const order = (a, b) => (column % 5 === 0 ? text(a, b) : value(b) - value(a) || text(a, b));
    body.append(...[...body.rows].sort(order));
  });
}
</script>
</body>
</html>
)");
    return std::move(out_);
}

}  // namespace detail

RESIDENCY_INLINE std::string html_page(const HtmlReport& report) { return detail::HtmlWriter{report}.page(); }

RESIDENCY_INLINE Status try_write_html_report(const std::string& path, const HtmlReport& report) {
    const std::string page = html_page(report);
    return detail::write_file(path, std::as_bytes(std::span{page}));
}

}}  // namespace residency::RESIDENCY_ABI
