// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/plan_file.hpp"

#include <doctest/doctest.h>

#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace plan_file_test {

namespace plan = residency::plan;
using residency::ErrorKind;
using residency::testing::Dice;
using residency::testing::random_problem;
using residency::testing::total_bytes;

namespace {

plan::Plan some_plan(std::uint64_t seed,
                     const plan::Options& options = {.effort = plan::Effort::quick, .catalog_hash = 77}) {
    Dice dice{seed};
    plan::Problem problem = random_problem(dice);
    problem.cyclic = seed % 3 != 0;
    const auto floor = plan::make_plan(problem, options);
    REQUIRE(floor.has_value());
    const std::uint64_t all = std::max(floor->floor_bytes(), total_bytes(problem));
    problem.budget_bytes = floor->floor_bytes() + (all - floor->floor_bytes()) / 3;
    auto made = plan::make_plan(problem, options);
    REQUIRE(made.has_value());
    return std::move(made).value();
}

plan::Expected expected_of(const plan::Plan& plan) {
    return {plan.catalog_hash(), plan.budget_bytes(), plan.chunk_bytes()};
}

}  // namespace

TEST_CASE("a plan comes back as it was saved") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        const plan::Options options{.effort = plan::Effort::quick, .captured = seed % 4 == 0, .catalog_hash = seed};
        const plan::Plan saved = some_plan(seed, options);
        const auto bytes = plan::save(saved);
        const auto loaded = plan::load(bytes, expected_of(saved), "a plan");
        REQUIRE_MESSAGE(loaded.has_value(), (loaded.has_value() ? std::string{} : loaded.error().message()));
        CHECK(*loaded == saved);
        CHECK(plan::save(*loaded) == bytes);
        CHECK(plan::hash(*loaded) == plan::hash(saved));
    }
}

TEST_CASE("different plans have different hashes") {
    const plan::Plan one = some_plan(1);
    plan::PlanData data = one.data();
    data.predicted_seconds += 1e-9;
    CHECK(plan::hash(one) != plan::hash(plan::Plan{data}));
    CHECK(plan::hash(one) != plan::hash(some_plan(2)));
}

TEST_CASE("a plan for another catalog, budget or chunk size is refused") {
    const plan::Plan saved = some_plan(4);
    const auto bytes = plan::save(saved);
    const auto refused = [&](auto change) {
        plan::Expected expected = expected_of(saved);
        change(expected);
        const auto loaded = plan::load(bytes, expected, "a plan");
        return !loaded.has_value() && loaded.error().kind() == ErrorKind::mismatch;
    };
    CHECK(refused([](plan::Expected& e) { e.catalog_hash += 1; }));
    CHECK(refused([](plan::Expected& e) { e.budget_bytes += 1; }));
    CHECK(refused([](plan::Expected& e) { e.chunk_bytes *= 2; }));
    CHECK_FALSE(refused([](plan::Expected&) {}));
}

TEST_CASE("every truncation and every changed byte is refused") {
    const plan::Plan saved = some_plan(5);
    auto bytes = plan::save(saved);
    for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 64) {
        CAPTURE(size);
        CHECK_FALSE(plan::load(std::span{bytes}.first(size), expected_of(saved), "a plan").has_value());
    }
    for (std::size_t at = 0; at < bytes.size(); at += 7) {
        CAPTURE(at);
        bytes[at] ^= std::byte{0x41};
        CHECK_FALSE(plan::load(bytes, expected_of(saved), "a plan").has_value());
        bytes[at] ^= std::byte{0x41};
    }
    CHECK(plan::load(bytes, expected_of(saved), "a plan").has_value());
}

TEST_CASE("a plan that is well written and does not hold together is refused") {
    std::uint64_t seed = 1;
    while (some_plan(seed).calls().empty()) { ++seed; }
    const plan::Plan good = some_plan(seed);
    const auto kind = [&](auto change) {
        plan::PlanData data = good.data();
        change(data);
        const plan::Plan bad{data};
        const auto loaded = plan::load(plan::save(bad), expected_of(bad), "a plan");
        REQUIRE(!loaded.has_value());
        return loaded.error().kind();
    };
    CHECK(kind([](plan::PlanData& d) { d.chunk_slot.pop_back(); }) == ErrorKind::malformed);
    CHECK(kind([](plan::PlanData& d) { d.calls[0].wait = {d.calls[0].needed_by, 0}; }) == ErrorKind::malformed);
    CHECK(kind([](plan::PlanData& d) { d.step_calls.back() += 1; }) == ErrorKind::malformed);
    CHECK(kind([](plan::PlanData& d) { d.storage_offsets.clear(); }) == ErrorKind::malformed);
}

}  // namespace plan_file_test
