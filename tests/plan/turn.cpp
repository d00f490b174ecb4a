// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/turn.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/plan/check.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/held_between_passes.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace turn_test {

namespace plan = residency::plan;
using residency::testing::copied_of;
using residency::testing::Dice;
using residency::testing::random_problem;
using residency::testing::Replay;
using residency::testing::total_bytes;
using support::random_cases;

namespace {

constexpr std::uint64_t g = 4096;

/// Storage 0, of `table` chunks, is read by the first and the last of ten steps; each of the others reads four chunks of its own.
plan::Problem read_first_and_last(std::uint64_t table, double compute_seconds = 1e-6) {
    plan::Problem problem;
    problem.chunk_bytes = g;
    problem.link = {55.5e9, 1e-8, 1e-8};
    problem.storage_bytes.push_back(table * g);
    for (std::uint32_t s = 1; s <= 8; ++s) { problem.storage_bytes.push_back(4 * g); }
    for (std::uint32_t i = 0; i < 10; ++i) {
        const std::uint32_t s = i == 9 ? 0 : i;
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(compute_seconds);
    }
    return problem;
}

/// Whether a call for step `step` brings chunks that the steps before it read too: those of the next pass.
bool brings_for_next_pass(const plan::Plan& plan, const plan::Problem& problem) {
    for (const plan::Call& call : plan.calls()) {
        for (const plan::Copy& copy : plan.copies(call)) {
            for (std::uint32_t i = 0; i < copy.needed_by; ++i) {
                for (const std::uint32_t s : problem.reads(i)) {
                    const std::uint64_t begin = plan.storage_offset(s), end = begin + plan.storage_bytes(s);
                    if (begin < copy.image_end && copy.image_begin < end) { return true; }
                }
            }
        }
    }
    return false;
}

std::string trouble_of(const plan::Plan& plan, const plan::Problem& problem, Dice& dice) {
    if (const auto checked = plan::check(plan, problem); !checked) { return checked.error().message(); }
    Replay replay{plan, problem};
    for (const double factor : {1.0, 30.0}) {
        if (std::string trouble = replay.run(dice, factor, 4); !trouble.empty()) { return trouble; }
    }
    return {};
}

}  // namespace

TEST_CASE("what the last step and the first one read makes room for the steps between") {
    Dice dice{1};
    for (const std::uint64_t table : {4U, 12U, 32U}) {
        CAPTURE(table);
        plan::Problem problem = read_first_and_last(table);
        const auto floor = plan::chunk_floor(problem);
        REQUIRE(floor.has_value());
        CHECK(floor->floor_bytes == std::max<std::uint64_t>(4, table) * g);  // the largest step
        CHECK((table == 4 || floor->step == 0 || floor->step == 9));
        for (const std::uint64_t more : {0U, 1U, 2U, 5U, 8U}) {
            for (const bool captured : {false, true}) {
                CAPTURE(more);
                CAPTURE(captured);
                problem.budget_bytes = floor->floor_bytes + more * g;
                const auto made = plan::make_plan(problem, {.captured = captured});
                REQUIRE(made.has_value());
                CHECK(made->floor_bytes() == floor->floor_bytes);
                CHECK(made->held_bytes() <= problem.budget_bytes);
                CHECK(trouble_of(*made, problem, dice) == "");
                CHECK(copied_of(*made, 0) <= table * g);  // once a pass at most
                if (more == 0 && table >= 12) {           // all other steps need its room
                    CHECK(copied_of(*made, 0) >= 4 * g);
                    CHECK(brings_for_next_pass(*made, problem));
                    CHECK(made->predicted_seconds() < 1.3 * made->bound_seconds());
                }
                CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
            }
        }
    }
}

TEST_CASE("a budget below the floor of a turned pass names a step of the pass") {
    plan::Problem problem = read_first_and_last(12);
    problem.storage_bytes[3] = 20 * g;
    problem.budget_bytes = 19 * g;
    const auto made = plan::make_plan(problem);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().message() ==
          "budget of 77,824 bytes (76 KiB) is below the floor of 81,920 bytes (80 KiB), which step 3 sets");
    const auto floor = plan::chunk_floor(problem);
    REQUIRE(floor.has_value());
    CHECK(floor->step == 3);
    CHECK(floor->floor_bytes == 20 * g);
}

TEST_CASE("a pass is turned only where that lowers the floor") {
    CHECK(plan::detail::best_turn(read_first_and_last(12)) == 9);
    plan::Problem once = read_first_and_last(12);
    once.cyclic = false;
    CHECK(plan::detail::best_turn(once) == 0);
    plan::Problem pinned = read_first_and_last(12);
    pinned.kept = {0};
    CHECK(plan::detail::best_turn(pinned) == 0);
    CHECK(plan::detail::best_turn(residency::testing::one_chunk_each(6, 0)) == 0);
    plan::Problem everywhere = read_first_and_last(12);  // read by every other step: no turn has it away
    for (std::uint32_t i = 1; i < 9; ++i) { everywhere.step_storages[i] = i % 2 == 0 ? 0 : i; }
    CHECK(plan::detail::best_turn(everywhere) == 0);
}

TEST_CASE("random schedules that read storages at both ends: right under any timing, with a floor that is no higher") {
    const std::uint64_t problems = random_cases(250);
    std::uint64_t turned = 0, for_next = 0;
    for (std::uint64_t seed = 1; seed <= problems; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        problem.cyclic = true;
        // Some storages are read by some of the first steps and some of the last ones, too.
        const plan::Problem other = problem;
        const std::uint32_t n = problem.steps();
        problem.step_offsets.clear();
        problem.step_storages.clear();
        const std::uint32_t tied = dice(0, problem.storages() - 1), width = dice(1, 2);
        for (std::uint32_t i = 0; i < n; ++i) {
            std::vector<std::uint32_t> step{other.reads(i).begin(), other.reads(i).end()};
            if (i < width || i + width >= n) { step.push_back(tied); }
            problem.add_step(step);
        }
        const std::uint32_t by = plan::detail::best_turn(problem);
        const auto floor = plan::chunk_floor(problem);
        REQUIRE(floor.has_value());
        std::uint64_t unturned = UINT64_MAX;
        for (const plan::Image& image : plan::candidate_images(problem)) {
            unturned = std::min(unturned, plan::floor_chunks(image, n).chunks * problem.chunk_bytes);
        }
        CHECK((by == 0 ? floor->floor_bytes == unturned : floor->floor_bytes < unturned));
        if (by == 0) { continue; }
        ++turned;
        const std::uint64_t all = std::max(floor->floor_bytes, total_bytes(problem));
        problem.budget_bytes = floor->floor_bytes;
        if (dice(0, 1) != 0) {
            problem.budget_bytes +=
                static_cast<std::uint64_t>(dice.real() * static_cast<double>(all - floor->floor_bytes));
        }
        for (const bool captured : {false, true}) {
            const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick, .captured = captured});
            REQUIRE(made.has_value());
            CHECK(trouble_of(*made, problem, dice) == "");
            CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
            for_next += brings_for_next_pass(*made, problem) ? 1 : 0;
        }
    }
    MESSAGE(turned << " turned, " << for_next << " plans bring something for the next pass");
    CHECK(turned >= problems / 20);
    CHECK(for_next >= turned / 4);
}

TEST_CASE("a plan that brings for the next pass: what the checker refuses") {
    plan::Problem problem = read_first_and_last(12);
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    REQUIRE(plan::check(*made, problem).has_value());
    Dice dice{1};
    const auto refuses = [&](const auto& spoil) {
        plan::PlanData data = made->data();
        spoil(data);
        const plan::Plan spoilt{data};
        CHECK(!plan::check(spoilt, problem).has_value());
        return Replay{spoilt, problem}.run(dice, 30, 4) != "";
    };
    // The first pass does not begin with it.
    CHECK(refuses([](plan::PlanData& data) { data.residents.clear(); }));
    // It begins with a part of it.
    CHECK(refuses([](plan::PlanData& data) { data.residents.front().image_begin += 4096; }));
    // The first pass begins with it too late.
    static_cast<void>(refuses([](plan::PlanData& data) {
        for (plan::Copy& resident : data.residents) { resident.needed_by = 5; }
    }));
    // The next one overwrites it before its first step has ended.
    CHECK(refuses([](plan::PlanData& data) {
        for (plan::Call& call : data.calls) {
            if (call.wait.exists() && call.wait.pass == 0 && call.wait.step == 0) { call.wait = {}; }
        }
    }));
    // The pass overwrites what it has brought for the next one.
    CHECK(refuses([](plan::PlanData& data) {
        std::swap(data.chunk_slot[0], data.chunk_slot[1]);
        data.copies.back().image_begin += 1;
    }));
}

}  // namespace turn_test
