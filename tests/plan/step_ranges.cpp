// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/step_ranges.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/tuning.hpp"
#include "tests/support/planning.hpp"

namespace step_ranges_test {

namespace plan = residency::plan;
using residency::StepRange;
using residency::testing::Dice;

namespace {

/// Seconds of a pass in which each range is one step of a plan of its own; infinite if a call would wait for the step that it serves.
double seconds_of(const plan::Plan& made, const plan::Problem& problem, const std::vector<StepRange>& ranges) {
    plan::PlanData joined = made.data();
    std::vector<double> compute(ranges.size(), 0);
    std::vector<std::uint32_t> range_of(made.steps());
    for (std::uint32_t r = 0; r < ranges.size(); ++r) {
        for (std::uint32_t i = ranges[r].first; i < ranges[r].last; ++i) {
            range_of[i] = r;
            compute[r] += problem.compute(i);
        }
    }
    joined.steps = static_cast<std::uint32_t>(ranges.size());
    for (plan::Call& call : joined.calls) {
        call.needed_by = range_of[call.needed_by];
        if (!call.wait.exists()) { continue; }
        call.wait.step = range_of[call.wait.step];
        if (call.wait.pass == 0 && call.wait.step >= call.needed_by) { return std::numeric_limits<double>::infinity(); }
    }
    return plan::simulate(joined, problem.link, compute);
}
std::vector<StepRange> single(std::uint32_t steps) {
    std::vector<StepRange> ranges;
    for (std::uint32_t i = 0; i < steps; ++i) { ranges.push_back({i, i + 1}); }
    return ranges;
}
/// The ranges without the boundary before range r.
std::vector<StepRange> joined(std::vector<StepRange> ranges, std::size_t r) {
    ranges[r - 1].last = ranges[r].last;
    ranges.erase(ranges.begin() + static_cast<std::ptrdiff_t>(r));
    return ranges;
}

}  // namespace

TEST_SUITE_BEGIN("step ranges");

TEST_CASE("a pass in ranges takes what it takes step by step, and no two neighbours could be one") {
    std::uint32_t plans = 0, fewer = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = residency::testing::random_problem(dice);
        problem.cyclic = dice(0, 3) != 0;
        const auto floor = plan::chunk_floor(problem);
        REQUIRE(floor);
        const std::uint64_t above = (floor->everything_bytes - floor->floor_bytes) / 4;
        problem.budget_bytes = floor->floor_bytes + above * dice(0, 4);
        plan::Options options;
        options.effort = plan::Effort::quick;
        options.captured = problem.cyclic && dice(0, 2) == 0;
        const auto made = plan::make_plan(problem, options);
        REQUIRE(made);
        const auto ranges = plan::step_ranges(*made, problem.link, problem.compute_seconds);
        REQUIRE_FALSE(ranges.empty());
        CHECK(ranges.front().first == 0);
        CHECK(ranges.back().last == made->steps());
        for (std::size_t r = 0; r < ranges.size(); ++r) {
            CHECK(ranges[r].first < ranges[r].last);
            if (r > 0) { CHECK(ranges[r].first == ranges[r - 1].last); }
        }
        if (made->calls().empty()) {
            CHECK(ranges.size() == 1);
            continue;
        }
        ++plans;
        const double most = seconds_of(*made, problem, single(made->steps())) * (1 + plan::tuning::range_loss);
        const double slack = 1 + 10 * plan::tuning::period_tolerance;
        CHECK(seconds_of(*made, problem, ranges) <= most * slack);
        for (std::size_t r = 1; r < ranges.size(); ++r) {
            CAPTURE(r);
            CHECK(seconds_of(*made, problem, joined(ranges, r)) > most / slack);
        }
        fewer += ranges.size() < made->steps() ? 1 : 0;
    }
    CHECK(plans > 200);
    CHECK(fewer > plans / 2);
}

TEST_CASE("one launch over all steps where everything is resident; one for each where each waits for the one before") {
    const auto at = [](std::uint64_t budget) {
        const plan::Problem problem = residency::testing::one_chunk_each(8, budget);
        const auto made = plan::make_plan(problem, {});
        REQUIRE(made);
        return plan::step_ranges(*made, problem.link, problem.compute_seconds);
    };
    CHECK(at(std::uint64_t{8} * 4096) == std::vector<StepRange>{{0, 8}});
    CHECK(at(4096) == single(8));
}

TEST_CASE("steps that nothing is streamed for join their neighbours") {
    // Two large storages take turns on the rest of the memory; the six between them stay.
    plan::Problem problem = residency::testing::one_chunk_each(8, 0);
    problem.storage_bytes[0] = problem.storage_bytes[4] = std::uint64_t{16} * 4096;
    problem.compute_seconds.assign(8, 1e-3);  // copies are short: they may wait
    problem.budget_bytes = std::uint64_t{22} * 4096;
    const auto made = plan::make_plan(problem, {});
    REQUIRE(made);
    REQUIRE_FALSE(made->calls().empty());
    const auto ranges = plan::step_ranges(*made, problem.link, problem.compute_seconds);
    CHECK(ranges.size() >= 2);
    CHECK(ranges.size() <= 4);
}

TEST_SUITE_END();

}  // namespace step_ranges_test
