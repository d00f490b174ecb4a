// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/check.hpp"

#include <doctest/doctest.h>

#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace check_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;
using residency::testing::Replay;
using residency::testing::total_bytes;

namespace {

// A problem whose plan streams, with that plan.
bool streaming_plan(std::uint64_t seed, plan::Problem& problem, plan::PlanData& data) {
    Dice dice{seed};
    problem = random_problem(dice);
    problem.cyclic = true;
    const plan::Options options{.effort = plan::Effort::quick};
    const auto floor = plan::make_plan(problem, options);
    REQUIRE(floor.has_value());
    const std::uint64_t all = std::max(floor->floor_bytes(), total_bytes(problem));
    problem.budget_bytes =
        floor->floor_bytes() +
        static_cast<std::uint64_t>(0.7 * dice.real() * static_cast<double>(all - floor->floor_bytes()));
    const auto made = plan::make_plan(problem, options);
    REQUIRE(made.has_value());
    data = made->data();
    return !data.calls.empty();
}

void count_calls(plan::PlanData& data) {
    data.step_calls.assign(data.steps, 0);
    for (const plan::Call& call : data.calls) { ++data.step_calls[call.needed_by]; }
    for (std::uint32_t i = 1; i < data.steps; ++i) { data.step_calls[i] += data.step_calls[i - 1]; }
}

// A mistake that a planner could make. False where this plan has no place for it.
bool spoil(plan::PlanData& data, Dice& dice, std::uint32_t kind) {
    const auto calls = static_cast<std::uint32_t>(data.calls.size());
    const std::uint32_t k = dice(0, calls - 1);
    plan::Call& call = data.calls[k];
    switch (kind) {
        case 0:  // no wait at all
            for (plan::Call& each : data.calls) { each.wait = {}; }
            return true;
        case 1:  // one wait is forgotten
            call.wait = {};
            return true;
        case 2:  // a step too early
            if (!call.wait.exists() || call.wait.step == 0) { return false; }
            --call.wait.step;
            return true;
        case 3:  // the pass before, where this pass was meant
            if (!call.wait.exists() || call.wait.pass != 0) { return false; }
            call.wait.pass = -1;
            return true;
        case 4:  // two chunks at one place
        {
            const auto slots = static_cast<std::uint32_t>(data.held_bytes / data.chunk_bytes);
            std::uint32_t& slot = data.chunk_slot[data.copies[call.copies_begin].image_begin / data.chunk_bytes];
            slot = (slot + 1) % slots;
            return slots > 1;
        }
        case 5:  // it comes a step too late
            for (std::uint32_t later = k; later < calls; ++later) {
                if (data.calls[later].needed_by + 1 >= data.steps) { return false; }
                ++data.calls[later].needed_by;
                for (std::uint32_t c = data.calls[later].copies_begin; c < data.calls[later].copies_end; ++c) {
                    ++data.copies[c].needed_by;
                }
            }
            count_calls(data);
            return true;
        case 6:  // all but its first byte never comes
            if (data.copies[call.copies_begin].bytes() < 2) { return false; }
            data.copies[call.copies_begin].image_end = data.copies[call.copies_begin].image_begin + 1;
            return true;
        case 7:  // what was to stay does not
            if (data.residents.empty()) { return false; }
            data.residents.pop_back();
            return true;
        default: return false;
    }
}

}  // namespace

TEST_CASE("mistakes put back into good plans are refused whenever they can be seen") {
    std::uint32_t hazards[8] = {}, refused[8] = {}, tried[8] = {};
    for (std::uint64_t seed = 1; seed <= 120; ++seed) {
        CAPTURE(seed);
        plan::Problem problem;
        plan::PlanData good;
        if (!streaming_plan(seed, problem, good)) { continue; }
        CHECK(plan::check(plan::Plan{good}, problem).has_value());
        for (std::uint32_t kind = 0; kind < 8; ++kind) {
            CAPTURE(kind);
            Dice dice{seed * 8 + kind};
            plan::PlanData data = good;
            if (!spoil(data, dice, kind)) { continue; }
            const plan::Plan bad{data};
            ++tried[kind];
            const bool accepted = plan::check(bad, problem).has_value();
            refused[kind] += accepted ? 0 : 1;
            if (!plan::check_shape(bad).has_value()) { continue; }
            bool hazard = false;
            for (int k = 0; k < 4 && !hazard; ++k) {
                Replay replay{bad, problem};
                hazard = !replay.run(dice, 10, 4).empty();
            }
            hazards[kind] += hazard ? 1 : 0;
            CHECK_FALSE((accepted && hazard));
        }
    }
    for (std::uint32_t kind = 0; kind < 8; ++kind) {
        CAPTURE(kind);
        CHECK(tried[kind] > 10);
        CHECK(refused[kind] > tried[kind] / 2);
    }
    CHECK(refused[0] == tried[0]);
    CHECK(refused[6] == tried[6]);
    CHECK(refused[7] == tried[7]);
    // The replay sees what the check refuses: it is not the check alone that fails.
    for (const std::uint32_t kind : {0u, 1u, 2u, 3u, 7u}) {
        CAPTURE(kind);
        CHECK(hazards[kind] > 0);
    }
}

TEST_CASE("plans that do not hold together are refused before anybody replays them") {
    plan::Problem problem;
    plan::PlanData good;
    std::uint64_t seed = 1;
    while (!streaming_plan(seed, problem, good) || good.residents.empty()) { ++seed; }
    CAPTURE(seed);
    const auto refused = [&](auto change) {
        plan::PlanData data = good;
        change(data);
        return !plan::check_shape(plan::Plan{data}).has_value();
    };
    CHECK_FALSE(refused([](plan::PlanData&) {}));
    CHECK(refused(
        [](plan::PlanData& d) { d.held_bytes = d.budget_bytes / d.chunk_bytes * d.chunk_bytes + d.chunk_bytes; }));
    CHECK(refused([](plan::PlanData& d) { d.chunk_bytes += 1; }));
    CHECK(refused([](plan::PlanData& d) { d.chunk_bytes = 0; }));
    CHECK(
        refused([](plan::PlanData& d) { d.chunk_slot[0] = static_cast<std::uint32_t>(d.held_bytes / d.chunk_bytes); }));
    CHECK(refused([](plan::PlanData& d) { d.chunk_slot.pop_back(); }));
    CHECK(refused([](plan::PlanData& d) { d.chunk_slot.clear(); }));
    CHECK(refused([](plan::PlanData& d) { d.chunk_slot[d.copies[0].image_begin / d.chunk_bytes] = plan::none; }));
    CHECK(refused([](plan::PlanData& d) { d.copies[0].image_end = d.copies[0].image_begin; }));
    CHECK(refused([](plan::PlanData& d) { d.copies[0].image_end = d.image_bytes + 1; }));
    CHECK(refused([](plan::PlanData& d) { d.copies[0].needed_by = d.steps; }));
    CHECK(refused([](plan::PlanData& d) { d.calls[0].copies_end = d.calls[0].copies_begin; }));
    CHECK(refused([](plan::PlanData& d) { d.calls.back().copies_end += 1; }));
    CHECK(refused([](plan::PlanData& d) { d.calls[0].wait = {d.steps, 0}; }));
    CHECK(refused([](plan::PlanData& d) { d.calls[0].wait = {d.calls[0].needed_by, 0}; }));
    CHECK(refused([](plan::PlanData& d) { d.calls[0].wait = {0, -2}; }));
    CHECK(refused([](plan::PlanData& d) { d.calls[0].wait = {0, 1}; }));
    CHECK(refused([](plan::PlanData& d) { d.step_calls.back() += 1; }));
    CHECK(refused([](plan::PlanData& d) { d.step_calls.pop_back(); }));
    CHECK(refused([](plan::PlanData& d) { d.cut = 1; }));
    CHECK(refused([](plan::PlanData& d) { d.storage_offsets.pop_back(); }));
    CHECK(refused([](plan::PlanData& d) { d.residents[0].image_end = UINT64_MAX; }));
    CHECK(refused([](plan::PlanData& d) { d.predicted_seconds = -1; }));
    CHECK(refused([](plan::PlanData& d) { d.bound_seconds = std::nan(""); }));
}

TEST_CASE("a plan that streams what must stay is refused, cyclic or one-shot") {
    for (const bool cyclic : {true, false}) {
        CAPTURE(cyclic);
        std::uint32_t streams = 0;
        for (std::uint64_t seed = 1; seed <= 40; ++seed) {
            CAPTURE(seed);
            Dice dice{seed};
            plan::Problem problem = random_problem(dice);
            problem.cyclic = cyclic;
            problem.kept.clear();
            const auto floor = plan::make_plan(problem, {.effort = plan::Effort::quick});
            REQUIRE(floor.has_value());
            problem.budget_bytes = floor->floor_bytes();
            const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
            REQUIRE(made.has_value());
            CHECK(plan::check(*made, problem).has_value());
            if (made->calls().empty()) { continue; }
            ++streams;
            const plan::Copy& copy = made->copies(made->calls().back())[0];
            for (std::uint32_t s = 0; s < problem.storages(); ++s) {
                const std::uint64_t begin = made->storage_offset(s), end = begin + problem.storage_bytes[s];
                if (begin >= copy.image_end || end <= copy.image_begin || begin == end) { continue; }
                problem.kept = {s};
                const auto checked = plan::check(*made, problem);
                REQUIRE_FALSE(checked.has_value());
                CHECK(checked.error().message().find("kept storage " + std::to_string(s) + " streams") !=
                      std::string::npos);
            }
        }
        CHECK(streams > 10);
    }
}

TEST_CASE("a plan is refused for another problem") {
    plan::Problem problem;
    plan::PlanData data;
    std::uint64_t seed = 1;
    while (!streaming_plan(seed, problem, data)) { ++seed; }
    CAPTURE(seed);
    plan::Problem other = problem;
    other.storage_bytes[0] += 1;
    CHECK_FALSE(plan::check(plan::Plan{data}, other).has_value());
    other = problem;
    other.add_step({});
    CHECK_FALSE(plan::check(plan::Plan{data}, other).has_value());
    other = problem;
    other.cyclic = false;
    CHECK_FALSE(plan::check(plan::Plan{data}, other).has_value());
}

}  // namespace check_test
