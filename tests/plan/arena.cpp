// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/arena.hpp"

#include <doctest/doctest.h>

#include "residency/plan/check.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::total_bytes;

TEST_CASE("whole storages: every byte once, at places that do not overlap while they are read") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem;
        for (std::uint32_t i = 0; i < 60; ++i) {
            problem.storage_bytes.push_back(dice(1, 40) * 1000000);
            problem.add_step({&i, 1});
            problem.compute_seconds.push_back(1e-4 * dice.real());
        }
        problem.budget_bytes = total_bytes(problem) / 10 * dice(2, 9);
        const auto made = plan::make_plan(problem, {.layout = plan::Layout::arena});
        REQUIRE(made.has_value());
        CHECK(made->held_bytes() <= problem.budget_bytes);
        CHECK(plan::check(*made, problem).has_value());
        CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
        CHECK(made->predicted_seconds() <= std::max(made->bound_seconds(), made->latency_floor_seconds()) * 1.35);
        for (const plan::Copy& copy : made->copies()) { CHECK(copy.to % problem.alignment_bytes == 0); }
    }
}

TEST_CASE("the floor of whole storages read by one step each is the largest") {
    plan::Problem problem;
    problem.alignment_bytes = 1;
    problem.storage_bytes = {100, 700, 300};
    for (const std::uint32_t s : {0u, 1u, 2u}) { problem.add_step({&s, 1}); }
    const auto made = plan::make_plan(problem, {.layout = plan::Layout::arena});
    REQUIRE(made.has_value());
    CHECK(made->floor_bytes() == 700);
    CHECK(made->held_bytes() == 700);
    problem.budget_bytes = 699;
    const auto refused = plan::make_plan(problem, {.layout = plan::Layout::arena});
    REQUIRE(!refused.has_value());
    CHECK(refused.error().kind() == residency::ErrorKind::budget);
}
