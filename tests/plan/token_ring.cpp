// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/token_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "residency/plan/bounds.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/simulate.hpp"
#include "tests/support/planning.hpp"

namespace token_ring_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::total_bytes;

namespace {

/// Steps of one storage of whole chunks; `share` of the weights fits.
plan::Problem ring_problem(Dice& dice, std::uint32_t steps, double ratio, double share) {
    plan::Problem problem;
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.storage_bytes.push_back(dice(2, 40) * problem.chunk_bytes);
        problem.add_step({&i, 1});
    }
    const auto bytes = static_cast<double>(total_bytes(problem));
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.compute_seconds.push_back(ratio * bytes / problem.link.bytes_per_second / steps * (0.5 + dice.real()));
    }
    problem.budget_bytes = static_cast<std::uint64_t>(bytes * share) / problem.chunk_bytes * problem.chunk_bytes;
    return problem;
}

}  // namespace

TEST_CASE("a ring streams the deficit and itself, and is as fast as it says") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = ring_problem(dice, 60, 0.01 + dice.real(), 0.3 + 0.6 * dice.real());
        const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
        const std::vector<bool> hold(image.cells.size(), false);
        for (const plan::Effort effort : {plan::Effort::quick, plan::Effort::full}) {
            plan::TokenRing ring{{problem, image, hold, problem.budget_bytes / problem.chunk_bytes, false, nullptr},
                                 {.effort = effort}};
            REQUIRE(ring.deficit() == (total_bytes(problem) - problem.budget_bytes) / problem.chunk_bytes);
            const plan::RingSolution found = ring.search();
            REQUIRE(found.found);
            const std::uint64_t streamed = ring.deficit() + found.ring.shape.slots;
            CHECK(ring.assignment(found).slots.size() == streamed);

            plan::PlanData data = plan::assemble(problem, image, ring.assignment(found), false);
            data.budget_bytes = problem.budget_bytes;
            CHECK(data.held_bytes == problem.budget_bytes);
            CHECK(data.bytes_per_pass == streamed * problem.chunk_bytes);
            CHECK(plan::check(plan::Plan{data}, problem).has_value());
            const double seconds = plan::simulate(data, problem.link, problem.compute_seconds);
            CHECK(seconds == doctest::Approx(found.seconds).epsilon(1e-4));
            const double reference =
                std::max(plan::exact_bound(problem, problem.budget_bytes),
                         plan::latency_floor(problem, problem.budget_bytes, problem.link.latency_seconds));
            CHECK(seconds <= reference * (effort == plan::Effort::full ? 1.03 : 1.05));
        }
    }
}

TEST_CASE("a thorough search is no slower than a quick one") {
    for (std::uint64_t seed = 20; seed <= 25; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = ring_problem(dice, 40, dice.real(), 0.4 + 0.5 * dice.real());
        const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
        const std::vector<bool> hold(image.cells.size(), false);
        const std::uint64_t budget = problem.budget_bytes / problem.chunk_bytes;
        const double quick =
            plan::TokenRing{{problem, image, hold, budget, false, nullptr}, {.effort = plan::Effort::quick}}
                .search()
                .seconds;
        const double full =
            plan::TokenRing{{problem, image, hold, budget, false, nullptr}, {.effort = plan::Effort::full}}
                .search()
                .seconds;
        CHECK(full <= quick * (1 + 3e-3));
    }
}

TEST_CASE("one call may serve several steps; what it waits for comes before all of them") {
    int several = 0;
    for (std::uint64_t seed = 40; seed <= 46; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = ring_problem(dice, 50, 0.02 + 0.3 * dice.real(), 0.5 + 0.4 * dice.real());
        const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
        const std::vector<bool> hold(image.cells.size(), false);
        plan::TokenRing ring{{problem, image, hold, problem.budget_bytes / problem.chunk_bytes, false, nullptr}, {}};
        const plan::RingSolution found = ring.search();
        REQUIRE(found.found);
        plan::PlanData data = plan::assemble(problem, image, ring.assignment(found), false);
        data.budget_bytes = problem.budget_bytes;
        for (const plan::Call& call : data.calls) {
            std::uint32_t last = 0;
            for (std::uint32_t k = call.copies_begin; k < call.copies_end; ++k) {
                last = std::max(last, data.copies[k].needed_by);
            }
            several += last != call.needed_by ? 1 : 0;
            CHECK((call.wait.pass < 0 || call.wait.step < call.needed_by));
        }
        CHECK(plan::check(plan::Plan{data}, problem).has_value());
    }
    CHECK(several > 0);
}

TEST_CASE("the search ends near its target, with less work") {
    Dice dice{70};
    const plan::Problem problem = ring_problem(dice, 50, 0.3, 0.6);
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
    const std::vector<bool> hold(image.cells.size(), false);
    const std::uint64_t budget = problem.budget_bytes / problem.chunk_bytes;
    plan::TokenRing free{{problem, image, hold, budget, false, nullptr}, {}};
    const double best = free.search().seconds;
    plan::TokenRing aimed{{problem, image, hold, budget, false, nullptr}, {.bound_seconds = best * 1.01}};
    CHECK(aimed.search().seconds <= best * 1.012);
    CHECK(aimed.work() < free.work());
}

}  // namespace token_ring_test
