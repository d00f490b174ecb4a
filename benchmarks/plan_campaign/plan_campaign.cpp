// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// plan-campaign [--list] [--shape TEXT]: plans many schedules at budgets of 25 to 95 % of the weights, and compares the time that each
// plan predicts with its reference, the larger of the exact bound and the latency floor; planning times; floors of random schedules; a few
// wide storages near the smallest budgets; a residual network of few chunks and a transformer, as a compiler lowers them; short schedules;
// graphs whose copies are many nodes; and what all these plans but those of graphs with nodes take where steps and link are 10 % off.
// Records go to benchmarks/results/cpu-plan-campaign.json (bench::HostRecords); --list prints each plan instead.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/record.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/simulate.hpp"
#include "schedules.hpp"

namespace {

using namespace residency;

struct Outcome {
    double over_reference = 0, over_bound = 0, bytes_over_deficit = 0, milliseconds = 0;
    bool link_bound = false;  // the exact bound is the time of the link for the deficit, to 1 %
    std::uint32_t steps = 0;
};

struct Series {
    const char* name;
    plan::Options options;
    std::vector<Outcome> outcomes{};
    std::vector<double>
        perturbed{};  // what passes with other times take, over the larger of their compute time and their copies
};

// Processor time of this one thread's work, so that a busy machine does not count.
double seconds_since(std::clock_t start) { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; }

void record(bench::HostRecords& records, const Series& series, bool has_targets, const char* time_target) {
    std::vector<double> ratios, bytes, times;
    double logs = 0, bound_logs = 0, bytes_sum = 0;
    for (const Outcome& o : series.outcomes) {
        ratios.push_back(o.over_reference);
        logs += std::log(o.over_reference);
        bound_logs += std::log(o.over_bound);
        if (o.link_bound) {
            bytes.push_back(o.bytes_over_deficit);
            bytes_sum += o.bytes_over_deficit;
        }
        if (o.steps <= 400) { times.push_back(o.milliseconds); }
    }
    const auto count = static_cast<double>(ratios.size());
    std::sort(ratios.begin(), ratios.end());
    std::sort(bytes.begin(), bytes.end());
    std::sort(times.begin(), times.end());
    const std::string name = std::string{"campaign."} + series.name;
    const auto target = [&](const char* text) { return has_targets ? text : ""; };
    records.add(name + ".plans", count, "plans", target(">= 150"));
    records.add(name + ".over_reference.geometric_mean", std::exp(logs / count), "ratio", target("<= 1.005"));
    records.add(name + ".over_reference.percentile_95", bench::quantile(ratios, 0.95), "ratio", target("<= 1.015"));
    records.add(name + ".over_reference.worst", ratios.back(), "ratio", target("<= 1.04"));
    records.add(name + ".over_bound.geometric_mean", std::exp(bound_logs / count), "ratio");
    records.add(name + ".link_bound.plans", static_cast<double>(bytes.size()), "plans");
    records.add(name + ".link_bound.bytes_over_deficit.mean", bytes_sum / static_cast<double>(bytes.size()), "ratio");
    records.add(name + ".link_bound.bytes_over_deficit.worst", bench::quantile(bytes, 1), "ratio", "<= 1.04");
    records.add(name + ".planning_up_to_400_steps.median", bench::quantile(times, 0.5), "ms");
    records.add(name + ".planning_up_to_400_steps.worst", bench::quantile(times, 1), "ms", time_target);
}

}  // namespace

int main(int count, char** arguments) {
    CLI::App app{"Compares plans with the bounds over many schedules.", "plan-campaign"};
    std::string only;
    bool list = false;
    auto* listing = app.add_flag("--list", list, "print every plan, and record nothing");
    app.add_option("--shape", only, "only schedules whose name contains this")->needs(listing);
    CLI11_PARSE(app, count, arguments);

    Series all[] = {{"full", {.effort = plan::Effort::full}},
                    {"quick", {.effort = plan::Effort::quick}},
                    {"captured", {.effort = plan::Effort::full, .captured = true}}};
    Series wide[] = {all[0], all[1], all[2]};
    Series conv[] = {all[0], all[1], all[2]};
    Series compiled[] = {all[0], all[1], all[2]};
    Series short_ones[] = {all[0], all[1], all[2]};
    Series tensors[] = {{"captured", {.effort = plan::Effort::full, .captured = true}},
                        {"quick_captured", {.effort = plan::Effort::quick, .captured = true}}};
    const auto plan_all = [&](const std::string& name, const plan::Problem& problem, std::span<Series> into) {
        double deficit = -static_cast<double>(problem.budget_bytes);
        for (const std::uint64_t bytes : problem.storage_bytes) { deficit += static_cast<double>(bytes); }
        for (Series& series : into) {
            const auto start = std::clock();
            const auto made = plan::make_plan(problem, series.options);
            const double seconds = seconds_since(start);
            if (!made) {
                std::fprintf(stderr, "%s: %s\n", name.c_str(), made.error().message().c_str());
                return false;
            }
            if (Status status = plan::check(*made, problem); !status) {
                std::fprintf(stderr, "%s: %s\n", name.c_str(), status.error().message().c_str());
                return false;
            }
            const double reference = std::max(made->bound_seconds(), made->latency_floor_seconds());
            Outcome o{made->predicted_seconds() / reference,
                      made->predicted_seconds() / made->bound_seconds(),
                      static_cast<double>(made->bytes_per_pass()) / deficit,
                      seconds * 1e3,
                      made->bound_seconds() <= 1.01 * deficit / problem.link.bytes_per_second,
                      problem.steps()};
            if (list) {
                std::printf("%-32s %-9s %.4f of the reference, %.4f of the bound, bytes %.3f D, %zu calls, %.1f ms\n",
                            name.c_str(), series.name, o.over_reference, o.over_bound, o.bytes_over_deficit,
                            made->calls().size(), o.milliseconds);
                std::fflush(stdout);
            }
            series.outcomes.push_back(o);
            if (!series.options.source_offsets.empty()) { continue; }  // the nodes of a call are not simulated
            for (std::uint64_t seed = 1; seed <= campaign::perturbed_passes; ++seed) {
                const plan::Problem pass = campaign::perturbed(problem, seed);
                series.perturbed.push_back(plan::simulate(made->data(), pass.link, pass.compute_seconds) /
                                           plan::usual_bound(pass, problem.budget_bytes));
            }
        }
        return true;
    };
    const auto cell = [&](const campaign::Shape& shape, double ratio, double share) {
        plan::Problem problem = campaign::with_budget(shape.problem, share);
        campaign::scale_compute(problem, ratio);
        char name[64];
        std::snprintf(name, sizeof name, "%-22s %4.2f %4.2f", shape.name.c_str(), ratio, share);
        return plan_all(name, problem, all);
    };
    if (!campaign::for_each_cell(only, cell)) { return 1; }
    for (std::uint64_t seed = 1; seed <= campaign::wide_problems; ++seed) {
        const std::string name = "wide " + std::to_string(seed);
        if (name.find(only) != std::string::npos && !plan_all(name, campaign::wide_problem(seed), wide)) { return 1; }
    }

    for (std::uint64_t seed = 1; seed <= campaign::short_problems; ++seed) {
        const std::string name = "short " + std::to_string(seed);
        if (name.find(only) != std::string::npos && !plan_all(name, campaign::short_problem(seed), short_ones)) {
            return 1;
        }
    }
    for (std::uint64_t seed = 1; seed <= campaign::many_tensors_problems; ++seed) {
        const std::string name = "tensors " + std::to_string(seed);
        if (name.find(only) == std::string::npos) { continue; }
        const campaign::WithSources schedule = campaign::many_tensors(seed);
        for (Series& series : tensors) { series.options.source_offsets = schedule.source_offsets; }
        if (!plan_all(name, schedule.problem, tensors)) { return 1; }
    }

    const campaign::Shape network = campaign::residual_network();
    for (const double ratio : campaign::residual_network_ratios) {
        for (const double share : {0.25, 0.5, 0.75, 0.9}) {
            plan::Problem problem = campaign::with_budget(network.problem, share);
            campaign::scale_compute(problem, ratio);
            char name[64];
            std::snprintf(name, sizeof name, "%-22s %4.2f %4.2f", network.name.c_str(), ratio, share);
            if (network.name.find(only) != std::string::npos && !plan_all(name, problem, conv)) { return 1; }
        }
    }

    const campaign::Shape transformer = campaign::compiled_transformer();
    for (const double share : {0.5, 0.6, 0.75, 0.85}) {
        char name[64];
        std::snprintf(name, sizeof name, "%-27s %4.2f", transformer.name.c_str(), share);
        if (transformer.name.find(only) != std::string::npos &&
            !plan_all(name, campaign::with_budget(transformer.problem, share), compiled)) {
            return 1;
        }
    }

    if (list) { return 0; }
    bench::HostRecords records{"cpu-plan-campaign", count, arguments};
    record(records, all[0], true, "<= 50");
    record(records, all[1], false, "<= 5");
    record(records, all[2], false, "<= 50");
    const auto record_others = [&](const Series& series, const char* of, const char* mean_target,
                                   const char* worst_target) {
        std::vector<double> ratios, times;
        double sum = 0;
        for (const Outcome& o : series.outcomes) {
            ratios.push_back(o.over_reference);
            times.push_back(o.milliseconds);
            sum += o.over_reference;
        }
        std::sort(ratios.begin(), ratios.end());
        std::sort(times.begin(), times.end());
        const std::string name = std::string{of} + "." + series.name;
        const bool has_targets = series.options.effort == plan::Effort::full && !series.options.captured;
        records.add(name + ".plans", static_cast<double>(ratios.size()), "plans");
        records.add(name + ".over_reference.mean", sum / static_cast<double>(ratios.size()), "ratio",
                    has_targets ? mean_target : "");
        records.add(name + ".over_reference.percentile_95", bench::quantile(ratios, 0.95), "ratio");
        records.add(name + ".over_reference.worst", ratios.back(), "ratio", has_targets ? worst_target : "");
        records.add(name + ".planning.median", bench::quantile(times, 0.5), "ms");
        records.add(name + ".planning.worst", times.back(), "ms",
                    series.options.effort == plan::Effort::full ? "<= 50" : "<= 5");
    };
    for (const Series& series : wide) { record_others(series, "wide", "<= 1.008", "<= 1.04"); }
    for (const Series& series : conv) { record_others(series, "conv", "", "<= 1.03"); }
    for (const Series& series : compiled) { record_others(series, "compiled_transformer", "<= 1.02", ""); }
    for (const Series& series : short_ones) { record_others(series, "short", "<= 1.02", ""); }
    for (const Series& series : tensors) { record_others(series, "tensors", "", ""); }
    for (const auto& [of, some] : {std::pair{"campaign", std::span<const Series>{all}},
                                   {"wide", wide},
                                   {"conv", conv},
                                   {"compiled_transformer", compiled},
                                   {"short", short_ones}}) {
        for (const Series& series : some) {
            std::vector<double> ratios = series.perturbed;
            std::sort(ratios.begin(), ratios.end());
            double sum = 0;
            for (const double ratio : ratios) { sum += ratio; }
            const std::string name = std::string{"perturbed."} + of + "." + series.name;
            records.add(name + ".passes", static_cast<double>(ratios.size()), "passes");
            records.add(name + ".over_usual_bound.mean", sum / static_cast<double>(ratios.size()), "ratio");
            records.add(name + ".over_usual_bound.median", bench::quantile(ratios, 0.5), "ratio");
            records.add(name + ".over_usual_bound.percentile_95", bench::quantile(ratios, 0.95), "ratio");
            records.add(name + ".over_usual_bound.worst", bench::quantile(ratios, 1), "ratio");
        }
    }

    // Decode of Llama-3-8B on a card that reads weights at 4 TB/s and takes no less than 2 us a step.
    campaign::Shape llama = campaign::llama("llama-3-8b", 32, 4096, 1024, 14336, 128256);
    std::uint64_t weights = 0;
    for (std::uint32_t i = 0; i < llama.problem.steps(); ++i) {
        const std::uint64_t bytes = llama.problem.storage_bytes[i];
        llama.problem.compute_seconds[i] = (std::max)(2e-6, static_cast<double>(bytes) / 4e12);
        weights += bytes;
    }
    for (const int percent : {10, 25, 50, 75, 90, 95}) {
        plan::Problem problem = llama.problem;
        problem.budget_bytes = weights / 100 * static_cast<std::uint64_t>(percent);
        for (const bool captured : {false, true}) {
            const auto made = plan::make_plan(problem, {.captured = captured});
            if (!made) { return 1; }
            const double floor = plan::latency_floor(problem, made->budget_bytes(), problem.link.latency_seconds);
            const std::string name = "decode." + std::to_string(percent) + (captured ? "%.captured" : "%.eager");
            records.add(name + ".over_bound", made->predicted_seconds() / made->bound_seconds(), "ratio");
            records.add(name + ".over_reference", made->predicted_seconds() / (std::max)(made->bound_seconds(), floor),
                        "ratio");
            records.add(name + ".calls", static_cast<double>(made->calls().size()), "calls");
        }
    }

    for (const std::uint32_t steps : {100u, 400u, 1000u, 10000u, 100000u}) {
        campaign::Shape shape = campaign::random_shape(steps);
        plan::Problem base = shape.problem, problem;
        for (std::uint32_t i = 0; i < steps; ++i) {
            campaign::add_step(problem, {static_cast<double>(base.storage_bytes[i % base.storages()])},
                               base.compute_seconds[i % base.steps()] * (1 + (i * 7919 % 13) * 0.01));
        }
        campaign::scale_compute(problem, 0.3);
        std::uint64_t bytes = 0;
        for (const std::uint64_t b : problem.storage_bytes) { bytes += b; }
        problem.budget_bytes = bytes / 4 * 3;
        for (const auto& [name, effort] : {std::pair{"full", plan::Effort::full}, {"quick", plan::Effort::quick}}) {
            std::vector<double> times;
            double over = 0;
            for (int repeat = 0; repeat < (steps <= 1000 ? 5 : 1); ++repeat) {
                const auto start = std::clock();
                const auto made = plan::make_plan(problem, {.effort = effort});
                times.push_back(seconds_since(start));
                if (!made) { return 1; }
                over = made->predicted_seconds() / std::max(made->bound_seconds(), made->latency_floor_seconds());
            }
            const std::string what = "planning." + std::to_string(steps) + "_steps." + name;
            records.add(what + ".time", bench::median(times) * 1e3, "ms",
                        steps == 10000    ? "<= 1000"
                        : steps == 100000 ? "<= 10000"
                                          : "");
            records.add(what + ".over_reference", over, "ratio");
        }
    }

    std::vector<double> over;
    constexpr std::uint64_t floors = 200;
    for (std::uint64_t seed = 1; seed <= floors; ++seed) {
        campaign::Shape shape = campaign::random_shape(seed);
        campaign::scale_compute(shape.problem, campaign::ratios[seed % 7]);
        const auto made = plan::make_plan(shape.problem, {.effort = plan::Effort::quick});
        if (!made || !plan::check(*made, shape.problem) || made->held_bytes() > made->floor_bytes()) { continue; }
        over.push_back(made->predicted_seconds() / std::max(made->bound_seconds(), made->latency_floor_seconds()));
    }
    std::sort(over.begin(), over.end());
    records.add("floor.planned_of_200", static_cast<double>(over.size()), "schedules", ">= 200");
    records.add("floor.over_reference.median", bench::quantile(over, 0.5), "ratio");
    records.add("floor.over_reference.worst", bench::quantile(over, 1), "ratio");
    return 0;
}
