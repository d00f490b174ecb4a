// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
//
// What planning costs on one core: plans, bounds, checks, files. The argument is the number of steps.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "residency/plan/bounds.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/plan_file.hpp"
#include "residency/plan/planner.hpp"

namespace {

namespace plan = residency::plan;

/// Steps of one storage, sizes and times that differ; three quarters fit; compute takes 0.3 of what copying all would.
plan::Problem problem_of(std::uint32_t steps, bool repeats = false) {
    plan::Problem problem;
    std::uint64_t state = 88172645463325252U, total = 0;
    const auto random = [&] {
        state ^= state << 13U;
        state ^= state >> 7U;
        state ^= state << 17U;
        return state;
    };
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.storage_bytes.push_back((1 + random() % 40) * 1000000);
        total += problem.storage_bytes.back();
    }
    for (std::uint32_t i = 0; i < steps; ++i) {
        const std::uint32_t reads[] = {i, static_cast<std::uint32_t>(random() % steps)};
        problem.add_step({reads, repeats && i % 8 == 0 ? std::size_t{2} : std::size_t{1}});
        const double copying = static_cast<double>(total) / problem.link.bytes_per_second;
        problem.compute_seconds.push_back(0.3 * copying / steps * (0.5 + static_cast<double>(random() % 100) / 100));
    }
    problem.budget_bytes = total / 4 * 3;
    return problem;
}

void make_plan(benchmark::State& state, plan::Options options) {
    const plan::Problem problem = problem_of(static_cast<std::uint32_t>(state.range(0)));
    double over = 0;
    for (auto _ : state) {
        const auto made = plan::make_plan(problem, options);
        if (!made) {
            state.SkipWithError("no plan");
            return;
        }
        over = made->predicted_seconds() / (std::max)(made->bound_seconds(), made->latency_floor_seconds());
    }
    state.counters["over_reference"] = over;
}

void exact_bound(benchmark::State& state, bool repeats) {
    const plan::Problem problem = problem_of(static_cast<std::uint32_t>(state.range(0)), repeats);
    for (auto _ : state) { benchmark::DoNotOptimize(plan::exact_bound(problem, problem.budget_bytes)); }
}

void verify(benchmark::State& state) {
    const plan::Problem problem = problem_of(static_cast<std::uint32_t>(state.range(0)));
    const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
    for (auto _ : state) {
        if (!plan::check(*made, problem)) { state.SkipWithError("refused"); }
    }
}

void save_and_load(benchmark::State& state) {
    const plan::Problem problem = problem_of(static_cast<std::uint32_t>(state.range(0)));
    const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
    std::size_t bytes = 0;
    for (auto _ : state) {
        const auto saved = plan::save(*made);
        bytes = saved.size();
        if (!plan::load(saved, {0, made->budget_bytes(), made->chunk_bytes()}, "plan")) {
            state.SkipWithError("refused");
        }
    }
    state.counters["bytes"] = static_cast<double>(bytes);
}

}  // namespace

BENCHMARK_CAPTURE(make_plan, full, plan::Options{})
    ->Arg(100)
    ->Arg(400)
    ->Arg(1000)
    ->Arg(10000)
    ->Arg(100000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(make_plan, quick, plan::Options{.effort = plan::Effort::quick})
    ->Arg(100)
    ->Arg(400)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(make_plan, captured, plan::Options{.captured = true})->Arg(400)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exact_bound, each_storage_once, false)->Arg(400)->Arg(10000)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(exact_bound, storages_repeatedly, true)->Arg(400)->Unit(benchmark::kMicrosecond);
BENCHMARK(verify)->Arg(400)->Unit(benchmark::kMillisecond);
BENCHMARK(save_and_load)->Arg(400)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
