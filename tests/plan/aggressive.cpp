// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/aggressive.hpp"

#include <doctest/doctest.h>

#include "residency/plan/bounds.hpp"
#include "residency/plan/draft.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

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
        CHECK(made->is_static());
        CHECK(made->bytes_per_pass() <= total_bytes(problem) - problem.budget_bytes / 4096 * 4096);
        CHECK(made->predicted_seconds() <= made->bound_seconds() * 1.06);
    }
}

TEST_CASE("storages used repeatedly are within some percent of the bound") {
    double sum = 0;
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = one_shot(dice, true);
        const auto made = plan::make_plan(problem, {.fixed_slots = false});
        REQUIRE(made.has_value());
        CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
        CHECK(made->predicted_seconds() <= made->bound_seconds() * 1.25);
        sum += made->predicted_seconds() / made->bound_seconds();
    }
    CHECK(sum / 25 <= 1.05);
}

TEST_CASE("a look-ahead cap saves bytes") {
    Dice dice{3};
    const plan::Problem problem = one_shot(dice, true);
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
    plan::Aggressive planner{problem, image, problem.budget_bytes / problem.chunk_bytes};
    plan::Draft far, near;
    plan::Aggressive::Config config;
    REQUIRE(planner.run(config, {}, far));
    config.look_ahead = 1;
    REQUIRE(planner.run(config, {}, near));
    const auto chunks = [](const plan::Draft& draft) {
        std::uint64_t sum = 0;
        for (const plan::Draft::Move& move : draft.moves) { sum += move.chunk_end - move.chunk_begin; }
        return sum;
    };
    CHECK(chunks(near) <= chunks(far));
}

TEST_CASE("below its floor there is no draft") {
    Dice dice{4};
    const plan::Problem problem = one_shot(dice, true);
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::aligned);
    const std::uint64_t floor = plan::Aggressive{problem, image, 0}.floor().chunks;
    plan::Draft draft;
    plan::Aggressive enough{problem, image, floor};
    CHECK(enough.run({}, {}, draft));
    plan::Aggressive less{problem, image, floor - 1};
    CHECK_FALSE(less.run({}, {}, draft));
}
