// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/advice.hpp"
#include "residency/plan/bounds.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/plan/planner.hpp"

namespace advice_test {

using namespace residency::plan;
using residency::ErrorKind;

TEST_SUITE_BEGIN("plan advice");

namespace {

constexpr std::uint64_t chunk = 1 << 16;

/// Equal steps of some chunks each, at 1 GB/s without latency.
Problem stack(std::uint32_t steps, std::uint64_t chunks, double compute) {
    Problem problem;
    problem.link = {1e9, 0, 0};
    problem.chunk_bytes = chunk;
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.storage_bytes.push_back(chunks * chunk);
        problem.add_step({&i, 1});
        problem.compute_seconds.push_back(compute);
    }
    return problem;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("C25: everything fits") {
    Problem problem = stack(10, 4, 1e-3);
    for (const std::uint64_t budget : {40 * chunk, 40 * chunk + 1, 100 * chunk}) {
        problem.budget_bytes = budget;
        const auto advice = advise(problem);
        REQUIRE(advice);
        CHECK(advice->verdict == Verdict::not_needed);
        CHECK(advice->will_not_help());
        CHECK(advice->budget_bytes == 40 * chunk);
        CHECK(advice->planned_seconds == doctest::Approx(10e-3));
        CHECK(contains(advice->text, "will not help here: everything fits"));
    }
    problem.budget_bytes = 40 * chunk - 1;
    CHECK_FALSE(advise(problem)->will_not_help());
}

TEST_CASE("C25: below the floor, and at it") {
    Problem problem = stack(10, 4, 1e-3);
    problem.budget_bytes = 4 * chunk - 1;
    const auto below = advise(problem);
    REQUIRE(below);
    CHECK(below->verdict == Verdict::impossible);
    CHECK(below->floor_bytes == 4 * chunk);
    CHECK(contains(below->text, residency::detail::in_bytes(4 * chunk)));
    CHECK_FALSE(below->will_not_help());
    problem.budget_bytes = 0;
    const auto floor = advise(problem);
    REQUIRE(floor);
    CHECK(floor->budget_bytes == 4 * chunk);
    CHECK(floor->planned_seconds >= floor->bound_seconds * (1 - 1e-9));
    // One step needs everything, or everything is pinned: no smaller budget works.
    Problem one = stack(1, 4, 1e-3);
    one.budget_bytes = 3 * chunk;
    CHECK(advise(one)->will_not_help());
    CHECK(contains(advise(one)->text, "nothing less than everything works"));
    Problem pinned = stack(4, 2, 1e-3);
    pinned.kept = {0, 1, 2, 3};
    pinned.budget_bytes = 7 * chunk;
    CHECK(advise(pinned)->will_not_help());
}

TEST_CASE("C25: hidden behind the kernels, or waiting for the link") {
    // 4 chunks take 262 µs over the link: at half of the bytes both are about the same, much more compute hides them.
    Problem slow_kernels = stack(16, 4, 2e-3);
    slow_kernels.budget_bytes = 32 * chunk;
    const auto hidden = advise(slow_kernels);
    REQUIRE(hidden);
    CHECK(hidden->verdict == Verdict::hidden);
    CHECK(hidden->planned_seconds == doctest::Approx(32e-3));
    CHECK(hidden->bytes_per_pass >= 32 * chunk);
    Problem fast_kernels = stack(16, 4, 1e-6);
    fast_kernels.budget_bytes = 32 * chunk;
    const auto slower = advise(fast_kernels);
    REQUIRE(slower);
    CHECK(slower->verdict == Verdict::slower);
    CHECK(slower->bound_seconds >= 32 * chunk / 1e9);
    CHECK(slower->planned_seconds >= slower->bound_seconds * (1 - 1e-9));
    CHECK(contains(slower->text, "times what it takes with everything resident"));
}

TEST_CASE("C25: the budget for a wanted speed is enough, and the necessary one is not too much") {
    for (const bool cyclic : {true, false}) {
        CAPTURE(cyclic);
        Problem problem = stack(24, 5, 150e-6);
        problem.cyclic = cyclic;
        const double least = 24 * 150e-6;
        for (const double wanted : {least * 1.02, least * 1.2, least * 1.6, 1.0}) {
            CAPTURE(wanted);
            const auto found = budget_for(problem, wanted);
            REQUIRE(found);
            CHECK(found->necessary_bytes <= found->sufficient_bytes);
            CHECK(found->planned_seconds <= wanted);
            problem.budget_bytes = found->sufficient_bytes;
            CHECK(make_plan(problem, {.effort = Effort::quick})->predicted_seconds() <= wanted);
            if (found->necessary_bytes > 5 * chunk) {
                CHECK(exact_bound(problem, found->necessary_bytes - chunk) > wanted);
            }
            CHECK(exact_bound(problem, found->necessary_bytes) <= wanted);
        }
        CHECK(budget_for(problem, 1.0)->sufficient_bytes == 5 * chunk);
        const auto refused = budget_for(problem, least * 0.99);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(contains(refused.error().message(), "3.6"));
    }
}

TEST_CASE("C25: the wanted speed decides") {
    Problem problem = stack(24, 5, 150e-6);
    problem.budget_bytes = 30 * chunk;
    const auto unreachable = advise(problem, 3e-3);
    REQUIRE(unreachable);
    CHECK(unreachable->verdict == Verdict::unreachable);
    CHECK(unreachable->will_not_help());
    const auto too_slow = advise(problem, 3.7e-3);
    REQUIRE(too_slow);
    CHECK(too_slow->verdict == Verdict::too_slow);
    CHECK_FALSE(too_slow->will_not_help());
    CHECK(contains(too_slow->text, "takes a budget of"));
    const auto fine = advise(problem, 1.0);
    REQUIRE(fine);
    CHECK(fine->verdict == Verdict::slower);
}

TEST_CASE("what is malformed is refused") {
    Problem problem = stack(2, 1, 1e-3);
    problem.chunk_bytes = 3;
    CHECK(advise(problem).error().kind() == ErrorKind::invalid_argument);
    CHECK(budget_for(problem, 1).error().kind() == ErrorKind::invalid_argument);
    Problem unknown = stack(4, 2, 0);
    unknown.compute_seconds.clear();
    unknown.budget_bytes = 4 * chunk;
    const auto advice = advise(unknown);
    REQUIRE(advice);
    CHECK(advice->compute_seconds == 0);
    CHECK(advice->verdict == Verdict::slower);
    CHECK(budget_for(unknown, 1e-9)->sufficient_bytes == 8 * chunk);
}

TEST_SUITE_END();

}  // namespace advice_test
