// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/greedy_planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "residency/plan/bounds.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace greedy_planner_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::total_bytes;

namespace {

plan::Problem one_shot(Dice& dice, bool repeats) {
    plan::Problem problem;
    problem.cyclic = false;
    problem.link.latency_seconds = 0;
    problem.chunk_bytes = 4096;
    const std::uint32_t storages = 40, steps = repeats ? 120 : storages;
    for (std::uint32_t s = 0; s < storages; ++s) { problem.storage_bytes.push_back(dice(4, 40) * problem.chunk_bytes); }
    const auto bytes = static_cast<double>(total_bytes(problem));
    const double ratio = 0.05 + dice.real();
    for (std::uint32_t i = 0; i < steps; ++i) {
        const std::uint32_t s = repeats ? dice(0, storages - 1) : i;
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(ratio * bytes / problem.link.bytes_per_second / steps * (0.5 + dice.real()));
    }
    problem.budget_bytes = static_cast<std::uint64_t>(bytes * (0.3 + 0.5 * dice.real()));
    return problem;
}

}  // namespace

TEST_CASE("where each storage is used once the plan moves the deficit and no more") {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = one_shot(dice, false);
        const auto made = plan::make_plan(problem);
        REQUIRE(made.has_value());
        CHECK(made->bytes_per_pass() <= total_bytes(problem) - problem.budget_bytes / 4096 * 4096);
        CHECK(made->predicted_seconds() <= made->bound_seconds() * 1.06);
    }
}

TEST_CASE("a chunk comes once, and what is used first is there before the pass") {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = one_shot(dice, true);
        const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
        const std::uint64_t budget = plan::floor_chunks(image, problem.steps()).chunks + dice(0, 60);
        plan::RingAssignment assignment;
        REQUIRE(plan::GreedyPlanner{problem, image, budget}.run({0, dice(1, 20)}, assignment));
        std::vector<int> comes(image.chunks(), 0);
        std::uint32_t last_there = 0, first_move = problem.steps();
        for (const plan::RingAssignment::Move& move : assignment.residents) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) { ++comes[c]; }
            if (move.needed_by != plan::none) { last_there = std::max(last_there, move.needed_by); }
        }
        for (const plan::RingAssignment::Move& move : assignment.moves) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) { ++comes[c]; }
            first_move = std::min(first_move, move.needed_by);
        }
        std::uint64_t chunks = 0;
        for (const int count : comes) {
            CHECK(count <= 1);
            chunks += count == 1 ? 1 : 0;
        }
        CHECK(chunks == image.filled_chunks());
        if (!assignment.moves.empty()) { CHECK(last_there <= first_move); }
    }
}

TEST_CASE("storages used repeatedly have a plan from the floor on, never faster than the bound") {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = one_shot(dice, true);
        problem.budget_bytes = 0;
        const auto floor = plan::make_plan(problem);
        REQUIRE(floor.has_value());
        for (const std::uint64_t more : {0U, 1U, 40U}) {
            problem.budget_bytes = floor->floor_bytes() + more * problem.chunk_bytes;
            const auto made = plan::make_plan(problem);
            REQUIRE(made.has_value());
            CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
        }
    }
}

TEST_CASE("below the floor there is no assignment") {
    Dice dice{4};
    const plan::Problem problem = one_shot(dice, true);
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::aligned);
    const std::uint64_t floor = plan::floor_chunks(image, problem.steps()).chunks;
    plan::RingAssignment assignment;
    CHECK(plan::GreedyPlanner{problem, image, floor}.run({}, assignment));
    CHECK_FALSE(plan::GreedyPlanner{problem, image, floor - 1}.run({}, assignment));
}

}  // namespace greedy_planner_test
