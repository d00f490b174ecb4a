// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// learned-times [--list] [--shape TEXT]: the schedules of plan-campaign on a simulated device, in virtual time: passes with the plan for
// declared compute times, with the plan for assumed ones (bytes over the memory's rate), and with the plan for learned ones. Learned in
// eager passes, in passes of which some leave the last step out, in passes of ranges, and in the one pass before a capture; each beside
// passes of the same kind with declared times.
// Records go to benchmarks/results/cpu-learned-times.json (bench::HostRecords); --list prints each schedule instead.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/learned_times/simulated.hpp"
#include "benchmarks/record.hpp"

namespace {

using namespace residency;

struct Series {
    const char* name;
    const char* target;
    std::vector<double> ratios{};
};

void record(bench::HostRecords& records, Series& series) {
    std::sort(series.ratios.begin(), series.ratios.end());
    double logs = 0;
    for (const double ratio : series.ratios) { logs += std::log(ratio); }
    const auto count = static_cast<double>(series.ratios.size());
    const std::string name = std::string{"times."} + series.name;
    records.add(name + ".schedules", count, "schedules");
    records.add(name + ".over_declared.geometric_mean", std::exp(logs / count), "ratio");
    records.add(name + ".over_declared.percentile_95", bench::quantile(series.ratios, 0.95), "ratio");
    records.add(name + ".over_declared.worst", series.ratios.back(), "ratio", series.target);
}

}  // namespace

int main(int count, char** arguments) {
    CLI::App app{"Compares plans for assumed and learned compute times with plans for declared ones.", "learned-times"};
    std::string only;
    bool list = false;
    auto* listing = app.add_flag("--list", list, "print every schedule, and record nothing");
    app.add_option("--shape", only, "only schedules whose name contains this")->needs(listing);
    CLI11_PARSE(app, count, arguments);

    // Kernels that read their weights once, at the memory's rate; and all of the campaign's.
    Series memory_bound{"memory_bound.assumed", "<= 1.02"}, assumed{"all.assumed", ""},
        learned{"all.learned", "<= 1.02"}, skipping{"all.learned_skipping", "<= 1.02"},
        ranges{"all.learned_ranges", "<= 1.02"}, graph{"all.learned_graph", "<= 1.02"};
    std::uint32_t not_done = 0;
    using campaign::Launches;
    using campaign::Passes;
    using campaign::Times;
    const auto cell = [&](const campaign::Shape& shape, double ratio, double share) {
        plan::Problem problem = campaign::with_budget(shape.problem, share);
        campaign::scale_compute(problem, ratio);
        const auto run = [&](const plan::Problem& of, Times times, std::initializer_list<Passes> warm_up = {{8}},
                             Launches launches = Launches::steps) {
            auto result = campaign::simulate(of, times, warm_up, launches);
            if (!result) {
                std::fprintf(stderr, "%s at %g: %s\n", shape.name.c_str(), share, result.error().message().c_str());
                std::exit(1);
            }
            not_done +=
                times == Times::learned && launches != Launches::graph && result->learning.state != LearningState::done
                    ? 1U
                    : 0U;
            return *result;
        };
        const auto compare = [&](Series& series, const campaign::Simulated& with, const campaign::Simulated& declared) {
            series.ratios.push_back(with.seconds_per_pass / declared.seconds_per_pass);
        };
        const auto declared = run(problem, Times::declared);
        compare(assumed, run(problem, Times::assumed), declared);
        const auto after = run(problem, Times::learned);
        compare(learned, after, declared);
        compare(skipping, run(problem, Times::learned, {{1}, {5, problem.steps() - 1}, {8}}), declared);
        compare(ranges, run(problem, Times::learned, {{16}}, Launches::ranges),
                run(problem, Times::declared, {{16}}, Launches::ranges));
        compare(graph, run(problem, Times::learned, {{1}}, Launches::graph),
                run(problem, Times::declared, {{1}}, Launches::graph));
        if (list) {
            std::printf(
                "%-22s %4.2f %4.2f assumed %.4f, learned %.4f, skipping %.4f, ranges %.4f, graph %.4f of declared; "
                "%s\n",
                shape.name.c_str(), ratio, share, assumed.ratios.back(), learned.ratios.back(), skipping.ratios.back(),
                ranges.ratios.back(), graph.ratios.back(), describe(after.learning).c_str());
            std::fflush(stdout);
        }
        if (ratio != 0.01) { return true; }
        plan::Problem bound = problem;
        campaign::bind_to_memory(bound);
        compare(memory_bound, run(bound, Times::assumed), run(bound, Times::declared));
        return true;
    };
    campaign::for_each_cell(only, cell);
    if (list) { return 0; }
    bench::HostRecords records{"cpu-learned-times", count, arguments};
    record(records, memory_bound);
    record(records, assumed);
    for (Series* const each : {&learned, &skipping, &ranges, &graph}) { record(records, *each); }
    records.add("times.all.learned.not_done", not_done, "schedules", "<= 0");
    return 0;
}
