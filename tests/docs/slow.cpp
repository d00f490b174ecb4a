// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/slow.md quotes.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/measure/stall_report.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/timeline/html_report.hpp"
#include "residency/timeline/simulated_timeline.hpp"
#include "residency/timeline/timeline_recorder.hpp"
#include "tests/docs/model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace docs_slow {

using namespace residency;
using docs::Model;
using Weights = Planned<SimulatedDevice>;

namespace {

std::string report;
void print(const std::string& line) { report += line + "\n"; }

void run_passes(Model& model, Weights& weights, int passes, bool backwards = false) {
    for (int i = 0; i < passes; ++i) {
        auto pass = weights.begin(model.stream);
        const auto steps = static_cast<std::uint32_t>(weights.schedule().size());
        for (std::uint32_t k = 0; k < steps; ++k) {
            const auto& step = weights.schedule()[backwards ? steps - 1 - k : k];
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    }
    unwrap(model.gpu.synchronize());
}

void print_report(const Weights& weights) {
    const Statistics statistics = weights.statistics();
    const Counters& pass = statistics.last_pass;
    const auto in_ms = [](std::chrono::nanoseconds time) { return std::to_string(double(time.count()) / 1e6) + " ms"; };

    print(weights.budget().text);          // who asked for what, and the result
    print(describe(statistics.learning));  // where order and times come from
    print(std::to_string(pass.fetched_bytes) + " bytes copied, " + std::to_string(pass.demand_misses) +
          " demand misses, " + std::to_string(pass.divergences) + " divergences, " + std::to_string(pass.host_waits) +
          " host waits in the last pass");
    if (statistics.pass_time) { print("a pass takes " + in_ms(*statistics.pass_time)); }
    if (statistics.bound) { print("no plan of copies takes less than " + in_ms(*statistics.bound)); }
    if (statistics.regret()) { print("over the bound: " + std::to_string(*statistics.regret() * 100) + " %"); }
}

}  // namespace

TEST_CASE("docs/slow.md: the report of a healthy program") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    run_passes(model, weights, 12);
    print_report(weights);
    const Statistics statistics = weights.statistics();
    CHECK(statistics.last_pass.divergences == 0);
    CHECK(statistics.pass_time);
    CHECK(statistics.bound);
    CHECK(report.find("bytes copied, 0 demand misses, 0 divergences, 0 host waits") != std::string::npos);
}

TEST_CASE("docs/slow.md: what to compare a pass with") {
    Model model{32};
    const auto pass_seconds_at = [&](Weights& weights) {
        for (int i = 0; i < 6; ++i) { run_passes(model, weights, 1); }  // waited for: the steps are timed
        run_passes(model, weights, 6);                                  // one behind the other
        return std::chrono::duration<double>{weights.statistics().pass_time.value()}.count();
    };
    double resident_seconds = 0;
    {
        Weights all{model.gpu, model.catalog, {.budget = Budget::parse("100%"), .schedule = model.schedule}};
        resident_seconds = pass_seconds_at(all);
    }
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    const double pass_seconds = pass_seconds_at(weights);

    const plan::Plan& plan = weights.plan();
    const double least = (std::max)({plan.bound_seconds(), plan.latency_floor_seconds(), resident_seconds});
    const double over = pass_seconds / least - 1;  // a few per cent: this is as fast as this budget allows

    CHECK(over > -0.01);
    CHECK(over < 0.02);
    CHECK(weights.statistics().regret().value() > over + 0.05);  // a small model: most of its regret is latency
}

TEST_CASE("docs/slow.md: which step waits, why, and what to change") {
    Model model;
    Weights weights{
        model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule, .time_stalls = true}};
    for (int i = 0; i < 12; ++i) { run_passes(model, weights, 1); }  // waited for: the steps are timed

    weights.drain();
    for (std::uint32_t step = 0; step < weights.step_stalls().size(); ++step) {
        const StallTime waited = weights.step_stalls()[step].sum();
        if (waited.stalls > 0) {
            const WeightId first = weights.schedule()[step].weights.front();
            print("step " + std::to_string(step) + " (" + std::string{weights.catalog().weight(first).name} +
                  ") waits " + std::to_string(waited.time.count()) + " ns");
        }
    }
    print(report_stalls(weights).text());

    CHECK(weights.statistics().stalls.passes == 12);
    CHECK(report.find("more budget removes it") != std::string::npos);
}

TEST_CASE("docs/slow.md: a lease that has to be held, and is declared") {
    Model model{32};
    ScheduleBuilder builder{model.catalog};
    for (const Schedule::Step& step : model.schedule) {
        builder.step(step.weights, step.compute, step.name);
        if (step.position == 0) { builder.live_until(step.weights.front(), 9); }  // read in steps 0 to 9
    }
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = builder.build()}};

    for (int i = 0; i < 4; ++i) {
        auto pass = weights.begin(model.stream);
        Weights::Lease held;
        for (const Schedule::Step& step : weights.schedule()) {
            auto lease = pass.acquire(step.weights.front());
            model.launch(step.weights.front(), lease.data(step.weights.front()));
            if (step.position == 0) { held = std::move(lease); }
            if (step.position == 9) { held.end(); }
        }
    }
    unwrap(model.gpu.synchronize());
    CHECK(weights.statistics().last_pass.demand_misses == 0);
    CHECK(weights.statistics().last_pass.fetched_bytes == weights.plan().bytes_per_pass());
    CHECK(weights.statistics().held_lease.storage == no_storage);
}

TEST_CASE("docs/slow.md: another order than the schedule's shows as divergences") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    run_passes(model, weights, 4);
    const std::uint64_t announced = weights.statistics().last_pass.fetched_bytes;
    run_passes(model, weights, 4, true);
    const Counters pass = weights.statistics().last_pass;
    CHECK(pass.divergences > 0);
    CHECK(pass.fetched_bytes > announced);
}

TEST_CASE("docs/slow.md: what the caller's order is, recorded") {
    Model model;
    Weights weights{
        model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule, .record = true}};
    run_passes(model, weights, 1, true);

    Schedule real = weights.recorded_schedule();
    weights.set_schedule(std::move(real));

    run_passes(model, weights, 4);
    CHECK(weights.statistics().last_pass.divergences == 0);
}

TEST_CASE("docs/slow.md: a picture of passes") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    run_passes(model, weights, 2);

    TimelineRecorder<SimulatedDevice> recorder{model.gpu};
    weights.observe(&recorder);
    run_passes(model, weights, 3);
    weights.drain();
    const PassTimeline timeline = recorder.timeline();
    print(recorder.gaps().text());  // what is missing, if anything

    print(timeline.table());          // of the last pass
    print(timeline.idle_in_words());  // what the host left idle; empty: nothing to speak of

    CHECK(report.find("\nstep    weights") != std::string::npos);
    CHECK(timeline.idle_in_words().empty());
    CHECK(timeline.passes().size() == 3);
    CHECK(timeline.kernels().size() == 3 * model.schedule.size());
    CHECK(recorder.gaps().text().empty());

    const test::TemporaryFolder folder;
    write_html_report(folder.path("run.html"), {.title = "my model",
                                                .device = std::string{model.gpu.name()},
                                                .budget = weights.budget().text,
                                                .statistics = weights.statistics(),
                                                .timeline = timeline,
                                                .gaps = recorder.gaps().text(),
                                                .advice = {}});

    CHECK(std::filesystem::file_size(folder.path("run.html")) > 10'000);
    {
        auto pass = weights.begin(model.stream);
        const WeightId weight{0};
        const auto lease = pass.acquire(weight);

        recorder.kernel("matmul", model.stream, [&] { model.launch(weight, lease.data(weight)); });
    }
    weights.drain();
    CHECK(recorder.timeline().kernels().back().name == "matmul");
    weights.observe(nullptr);
}

TEST_CASE("docs/slow.md: a picture of a simulated pass") {
    Model model;
    SimulatedTimeline simulated;
    simulated.name_weights(model.catalog);
    model.gpu.observe([&](const simulation::ExecutedOperation& operation) { simulated.add(operation); });
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    run_passes(model, weights, 2);
    const std::string json = simulated.timeline().trace().json();  // for ui.perfetto.dev; try_save() writes a file
    CHECK(json.find("layers.0") != std::string::npos);
    CHECK(!simulated.timeline().kernels().empty());
}

}  // namespace docs_slow
