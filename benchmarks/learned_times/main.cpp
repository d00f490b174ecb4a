// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// learned-times [--list] [--shape TEXT]: the schedules of plan-campaign on a simulated device, in virtual time: passes with the plan for
// declared compute times, with the plan for assumed ones (bytes over the memory's rate), and with the plan for learned ones.
// Records go to benchmarks/results/cpu-learned-times.json (bench::HostRecords); --list prints each schedule instead.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
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
        learned{"all.learned", "<= 1.02"};
    std::uint32_t not_done = 0;
    const auto cell = [&](const campaign::Shape& shape, double ratio, double share) {
        plan::Problem problem = campaign::with_budget(shape.problem, share);
        campaign::scale_compute(problem, ratio);
        const auto run = [&](const plan::Problem& of, campaign::Times times) {
            auto result = campaign::simulate(of, times);
            if (!result) {
                std::fprintf(stderr, "%s at %g: %s\n", shape.name.c_str(), share, result.error().message().c_str());
                std::exit(1);
            }
            return *result;
        };
        const auto declared = run(problem, campaign::Times::declared);
        const auto without = run(problem, campaign::Times::assumed);
        const auto after = run(problem, campaign::Times::learned);
        assumed.ratios.push_back(without.seconds_per_pass / declared.seconds_per_pass);
        learned.ratios.push_back(after.seconds_per_pass / declared.seconds_per_pass);
        not_done += after.learning.state == LearningState::done ? 0U : 1U;
        if (list) {
            std::printf("%-22s %4.2f %4.2f assumed %.4f, learned %.4f of declared; %s\n", shape.name.c_str(), ratio,
                        share, assumed.ratios.back(), learned.ratios.back(), describe(after.learning).c_str());
            std::fflush(stdout);
        }
        if (ratio != 0.01) { return true; }
        plan::Problem bound = problem;
        campaign::bind_to_memory(bound);
        memory_bound.ratios.push_back(run(bound, campaign::Times::assumed).seconds_per_pass /
                                      run(bound, campaign::Times::declared).seconds_per_pass);
        return true;
    };
    campaign::for_each_cell(only, cell);
    if (list) { return 0; }
    bench::HostRecords records{"cpu-learned-times", count, arguments};
    record(records, memory_bound);
    record(records, assumed);
    record(records, learned);
    records.add("times.all.learned.not_done", not_done, "schedules", "<= 0");
    return 0;
}
