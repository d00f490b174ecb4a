// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The page of a run: well-formed, with its figures, and with nothing in it that a name could do.

#include "residency/timeline/html_report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "residency/core/measure/report_text.hpp"
#include "residency/core/measure/stall_report.hpp"
#include "residency/timeline/timeline_recorder.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/recorded_passes.hpp"
#include "tests/support/streaming.hpp"
#include "tests/support/temporary_folder.hpp"

namespace html_report_test {

using namespace residency;
using namespace std::chrono_literals;

namespace {

std::size_t count(std::string_view text, std::string_view part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) { ++found; }
    return found;
}

/// What is wrong with the tags of a page: elements that do not nest, attributes without quotes, stray signs. Empty: nothing.
std::string fault_in(std::string_view page) {
    constexpr std::array<std::string_view, 1> empty_elements{"meta"};
    std::vector<std::string_view> open;
    std::size_t at = 0;
    const auto here = [&] { return " at: " + std::string{page.substr(at, 60)}; };
    if (!page.starts_with("<!doctype html>\n")) { return "no doctype"; }
    at = page.find('\n');
    while (at < page.size()) {
        if (page[at] == '>') { return "a stray >" + here(); }
        if (page[at] == '&') {
            const std::size_t end = page.find(';', at);
            if (end == std::string_view::npos || end - at > 6) { return "a stray &" + here(); }
        }
        if (page[at] != '<') {
            ++at;
            continue;
        }
        const std::size_t end = page.find('>', at);
        if (end == std::string_view::npos) { return "no end of a tag" + here(); }
        std::string_view tag = page.substr(at + 1, end - at - 1);
        const bool closes = tag.starts_with('/');
        const bool is_closed = tag.ends_with('/');
        if (closes) { tag.remove_prefix(1); }
        const std::string_view name = tag.substr(0, tag.find_first_of(" /\n"));
        if (count(tag, "\"") % 2 != 0 || tag.find('<') != std::string_view::npos) { return "a broken tag" + here(); }
        if (closes) {
            if (open.empty() || open.back() != name) { return "an end of another element" + here(); }
            open.pop_back();
        } else if (!is_closed &&
                   std::find(empty_elements.begin(), empty_elements.end(), name) == empty_elements.end()) {
            open.push_back(name);
        }
        at = end + 1;
        if (!closes && (name == "script" || name == "style")) {  // up to its end, nothing is a tag
            at = page.find("</" + std::string{name} + ">", at);
            if (at == std::string_view::npos) { return "no end of " + std::string{name}; }
        }
    }
    return open.empty() ? std::string{} : "no end of " + std::string{open.back()};
}

HtmlReport small_report() {
    HtmlReport report;
    report.title = "decoder & friends";
    report.budget = "8 GiB, by --budget";
    report.statistics.budget_bytes = std::uint64_t{3} << 30;
    report.statistics.floor_bytes = std::uint64_t{1} << 30;
    report.statistics.held_bytes = (std::uint64_t{5} << 30) / 2;
    report.statistics.last_pass.fetched_bytes = std::uint64_t{300} << 20;
    report.statistics.last_pass.calls = 17;
    report.statistics.total.demand_misses = 4711;
    report.statistics.pass_time = 12'345'678ns;
    report.statistics.bound = 12ms;
    PassTimeline& timeline = report.timeline;
    const std::size_t copy = timeline.add_copy({{{"w", std::uint64_t{2} << 20}}, 0ns, 100us});
    timeline.add_memory(0ns, 7, 9);
    timeline.add_stall(50us, 100us, copy);
    timeline.add_kernel({"layer 0", "a", 100us, 130us, 0, 1});
    timeline.add_kernel({"layer 0", "b", 130us, 140us, 0, 1});
    timeline.add_kernel({"layer 1", "c", 144us, 154us, 0, 2});
    timeline.add_pass({"pass 3", 50us, 160us, std::uint64_t{2} << 20});
    timeline.add_kernel({"layer 0", "a", 200us, 220us, 0, 3});
    return report;
}

}  // namespace

TEST_CASE("the page has the figures of the run, and is well-formed") {
    HtmlReport report = small_report();
    report.advice = {"1.2 GiB more budget removes the stall of 3.1 ms"};
    const std::string page = html_page(report);
    CHECK(fault_in(page) == "");
    for (const char* part :
         {"<title>decoder &amp; friends</title>", "8 GiB, by --budget", "3.00 GiB", "the smallest that works: 1.00 GiB",
          "2.50 GiB", "300.0 MiB", "17 copy calls", "4711", "12.346 ms", "12.000 ms", "2.9 % over the bound",
          "<h2>What to change</h2>", "1.2 GiB more budget removes the stall of 3.1 ms", "layer 0: b",
          "pass 3, 2.0 MiB copied", "waits for w", "w, 2.0 MiB",
          // The step ran twice, for 40 and 20 µs, and waited once, for 50 µs.
          "<td>layer 0</td><td>2</td><td>0.030 ms</td><td>0.025 ms</td><td>0.050 ms</td><td>w</td>",
          "<td>layer 1</td><td>1</td><td>0.010 ms</td><td>0.000 ms</td><td>0.000 ms</td><td></td>",
          // 2 MiB in 100 µs.
          "<tr><td>w</td><td>1</td><td>2.0 MiB</td><td>21.0</td></tr>"}) {
        CAPTURE(part);
        CHECK(count(page, part) >= 1);
    }
    CHECK(count(page, "<rect class=\"stall\" x=\"") == 1);
    CHECK(count(page, "<rect class=\"copy") == 1);
    // Nothing to load: the policy of the page forbids it, and nothing asks for it.
    CHECK(count(page, "default-src 'none'") == 1);
    for (const char* part : {"http:", "https:", "src=", "href=", "url(", "@import", "fetch("}) {
        CAPTURE(part);
        CHECK(count(page, part) == 0);
    }
}

TEST_CASE("divergences are said once, also where there is no other advice") {
    HtmlReport report = small_report();
    CHECK(count(html_page(report), "What to change") == 0);
    report.statistics.last_pass.divergences = 3;
    const std::string said = "3 leases of the last pass came out of the order of the schedule";
    std::string page = html_page(report);
    CHECK(count(page, said) == 1);
    CHECK(count(page, "report_stalls says whether they cost something") == 1);  // the page does not know the plan
    report.statistics.last_pass.demand_misses = 1;
    CHECK(count(html_page(report), "mend this first") == 1);
    StallReport stalls;
    stalls.divergences = detail::divergences_in_words(report.statistics, true, false);
    stalls.divergences_first = true;
    stalls.timed_passes = 1;
    stalls.advice.push_back({.cause = StallCause::link, .stalls = {}, .more_bytes = {}, .text = "more budget"});
    report.advice = stalls.lines();
    page = html_page(report);
    CHECK(fault_in(page) == "");
    CHECK(count(page, said) == 1);
    CHECK(page.find(said) < page.find("more budget"));
}

TEST_CASE("what the host left idle between steps is said once, with other advice or without") {
    HtmlReport report = small_report();
    report.timeline.add_kernel({"layer 0", "a", 300us, 310us, 0, 4});
    report.timeline.add_kernel({"layer 1", "c", 340us, 350us, 0, 5});
    report.timeline.add_pass({"pass 4", 300us, 350us, 0});
    const std::string said = "idle between steps: 0.030 ms of 0.050 ms (pass 4), the longest 0.030 ms after layer 0";
    CHECK(count(html_page(report), said) == 1);
    report.advice = {"more budget", report.timeline.idle_in_words()};
    CHECK(count(html_page(report), said) == 1);
}

TEST_CASE("names are text, whatever is in them") {
    const std::string bad = "<script>alert(1)</script>\"'&<img src=x onerror=y>\xff\x01\n";
    HtmlReport report = small_report();
    report.title = report.device = report.budget = report.gaps = bad;
    report.advice = {bad};
    const std::size_t copy = report.timeline.add_copy({{{bad, 5}, {bad + "2", 5}}, 300us, 400us});
    report.timeline.add_stall(300us, 400us, copy);
    report.timeline.add_kernel({bad, bad, 400us, 500us});
    report.timeline.add_pass({bad, 300us, 500us, 0});
    const std::string page = html_page(report);
    CHECK(fault_in(page) == "");
    CHECK(count(page, "<script>") == 1);  // its own
    CHECK(count(page, "</script>") == 1);
    CHECK(count(page, "<img") == 0);
    CHECK(count(page, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;&lt;img") > 8);
    CHECK(page.find('\xff') == std::string::npos);
    CHECK(page.find('\x01') == std::string::npos);
}

TEST_CASE("a page without a timeline, and one with more of it than can be drawn") {
    HtmlReport report;
    report.title = "nothing";
    std::string page = html_page(report);
    CHECK(fault_in(page) == "");
    CHECK(count(page, "No pass was recorded.") == 1);
    CHECK(count(page, "What to change") == 0);
    constexpr int passes = 30, steps = 1000;
    for (int pass = 0; pass < passes; ++pass) {
        for (int step = 0; step < steps; ++step) {
            const auto start = std::chrono::microseconds{pass * steps + step};
            report.timeline.add_kernel(
                {"step " + std::to_string(step), "k", start, start + 1us, 0, std::uint64_t(pass)});
        }
        report.timeline.add_pass({"pass " + std::to_string(pass), std::chrono::microseconds{pass * steps},
                                  std::chrono::microseconds{(pass + 1) * steps}, 0});
    }
    page = html_page(report);
    CHECK(fault_in(page) == "");
    CHECK(count(page, "Only the last passes are drawn") == 1);
    CHECK(count(page, "<title>pass 29,") == 1);
    CHECK(count(page, "<title>pass 9,") == 0);
    CHECK(count(page, "<td>step 999</td><td>30</td><td>0.001 ms</td>") == 1);
    CHECK(count(page, "<title>step ") == 20 * steps);
}

TEST_CASE("the report of a recorded run is written to a file") {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 12, 3 * 4096 + 700);
    const auto stream = streaming::must(device.create_stream());
    const test::TemporaryFolder folder;
    {
        TimelineRecorder<SimulatedDevice> recorder{device};
        compositions::Planned::Options options;
        options.budget = Budget::bytes(std::uint64_t{20} * 4096);
        options.schedule = streaming::in_order(model);
        options.policies.pool.chunk_bytes = 4096;
        auto weights = streaming::must(compositions::Planned::try_create(device, model.catalog, std::move(options)));
        streaming::must(weights.try_observe(&recorder));
        const auto launch = [&](WeightId id, std::span<const std::byte> bytes) {
            SimulatedDevice::Kernel kernel;
            kernel.name = model.catalog.weight(id).name;
            kernel.duration = 2us;
            kernel.reads = {{bytes.data(), bytes.size()}};
            unwrap(device.launch(stream, std::move(kernel)));
        };
        recorded::run_passes(weights, stream, 5, launch);
        HtmlReport report;
        report.title = "a run";
        report.device = device.name();
        report.budget = weights.budget().text;
        report.statistics = weights.statistics();
        report.timeline = recorder.timeline();
        report.gaps = recorder.gaps().text();
        streaming::must(try_write_html_report(folder.path("run.html"), report));
        CHECK_FALSE(try_write_html_report(folder.path("no/run.html"), report));
        streaming::must(weights.try_observe(nullptr));
    }
    std::ifstream file{folder.path("run.html"), std::ios::binary};
    const std::string page{std::istreambuf_iterator<char>{file}, {}};
    CHECK(fault_in(page) == "");
    CHECK(count(page, "<title>pass 4,") == 1);
    CHECK(count(page, "simulated device") == 1);
    CHECK(count(page, "<td>step 11</td><td>5</td>") == 1);
    streaming::must(device.destroy_stream(stream));
}

}  // namespace html_report_test
