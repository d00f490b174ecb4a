// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/release_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "benchmarks/plan_campaign/schedules.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/simulate.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace release_search_test {

namespace campaign = residency::campaign;
namespace plan = residency::plan;
using support::random_cases;

namespace {

/// What a pass takes in virtual time, of the larger of exact bound and latency floor.
double over_reference(const plan::Problem& problem, const plan::Options& options) {
    const auto made = plan::make_plan(problem, options);
    REQUIRE(made.has_value());
    CHECK(plan::check(*made, problem).has_value());
    return plan::simulate(made->data(), problem.link, problem.compute_seconds) /
           std::max(made->bound_seconds(), made->latency_floor_seconds());
}

/// 32 steps of one storage each, of 67 KB to 211 MB, that take their bytes over 1.11 TB/s; 52 % fit.
plan::Problem a_few_wide_storages() {
    plan::Problem problem;
    problem.storage_bytes = {105111,  1311350,   522119,    79645,     170886,   114866,   92073,    136427610,
                             1459626, 189711,    157588117, 29566177,  5082464,  66600,    8827043,  48446700,
                             514896,  210582022, 67863,     160897665, 12138402, 32912694, 707474,   3819976,
                             852078,  6437369,   10058216,  95901,     588754,   1854048,  11532016, 234864};
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(std::max(6e-8, static_cast<double>(problem.storage_bytes[s]) / 1.11e12));
    }
    problem.budget_bytes = 437941260;
    return problem;
}

/// One image of a random problem and what its ring may stream, without what small storages share over many steps.
struct Setting {
    plan::Problem problem;
    plan::Image image;
    plan::RingProblem ring_problem;

    explicit Setting(std::uint64_t seed)
        : problem{campaign::wide_problem(seed)},
          image{plan::lay_out(problem, plan::ImageOrder::grouped)},
          ring_problem{problem, image, held(), problem.budget_bytes / problem.chunk_bytes, false, nullptr} {}

    [[nodiscard]] std::vector<bool> held() const {
        std::vector<bool> hold;
        for (const plan::Cell& cell : image.cells) { hold.push_back(cell.last - cell.first > 2); }
        return hold;
    }
};

}  // namespace

TEST_CASE("a few wide storages among small ones: as fast as whole chunks and calls allow") {
    const plan::Problem problem = a_few_wide_storages();
    CHECK(over_reference(problem, {}) <= 1.02);
    CHECK(over_reference(problem, {.effort = plan::Effort::quick}) <= 1.03);
    CHECK(over_reference(problem, {.captured = true}) <= 1.025);
}

TEST_CASE("random problems of a few wide storages near the smallest budgets") {
    const std::uint64_t problems = random_cases(100);
    double sum = 0, worst = 0;
    for (std::uint64_t seed = 1; seed <= problems; ++seed) {
        const double over = over_reference(campaign::wide_problem(seed), {});
        CHECK(over >= 1 - 1e-6);
        sum += over;
        worst = std::max(worst, over);
    }
    MESSAGE("mean " << sum / static_cast<double>(problems) << ", worst " << worst);
    CHECK(sum <= 1.009 * static_cast<double>(problems));  // of 25 with sanitizers
    CHECK(worst <= 1.035);
}

TEST_CASE("more work makes no ring slower, and what improve() finds holds") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        const Setting setting{seed};
        double before = plan::RingCalls::impossible;
        for (const double share : {0.1, 0.5, 1.0}) {
            plan::ReleaseSearch search{setting.ring_problem, {.work_share = share}};
            REQUIRE(search.search({}));
            CHECK(search.solution().seconds <= before);
            before = search.solution().seconds;
            plan::ReleaseSearch again{setting.ring_problem, {.work_share = share}};
            again.improve(search.solution());
            CHECK(again.solution().seconds <= before);
            plan::PlanData data = plan::assemble(setting.problem, setting.image, again.assignment(), false);
            data.budget_bytes = setting.problem.budget_bytes;
            CHECK(plan::check(plan::Plan{data}, setting.problem).has_value());
            CHECK(plan::simulate(data, setting.problem.link, setting.problem.compute_seconds) <=
                  again.solution().seconds * (1 + 1e-4));
        }
    }
}

TEST_CASE("a search ends at its bound, and is the same twice") {
    const Setting setting{1};
    plan::ReleaseSearch free{setting.ring_problem, {}};
    REQUIRE(free.search({}));
    plan::ReleaseSearch aimed{setting.ring_problem, {.bound_seconds = free.solution().seconds * 1.02}};
    REQUIRE(aimed.search({}));
    CHECK(aimed.solution().seconds <= free.solution().seconds * 1.021);
    CHECK(aimed.work() < free.work());
    plan::ReleaseSearch one{setting.ring_problem, {}}, two{setting.ring_problem, {}};
    one.improve(free.solution());
    two.improve(free.solution());
    CHECK(one.solution().seconds < free.solution().seconds);
    CHECK(one.solution().candidate.streamed_per_step == two.solution().candidate.streamed_per_step);
    CHECK(one.work() == two.work());
}

}  // namespace release_search_test
