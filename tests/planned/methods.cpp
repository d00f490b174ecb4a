// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Methods of one catalog, each with a schedule of its own, that take turns.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace methods_test {

using namespace planned;
using namespace std::chrono_literals;
using residency::Budget;
using residency::LearningState;

namespace {

Model twenty(Device& device) { return uniform_model(device, 20, 3 * chunk); }
/// Reads everything; twice as long at each step, and without the first and last; everything, the even ones first.
std::array<Steps, 3> three_methods() {
    std::array<Steps, 3> methods;
    for (std::uint32_t i = 0; i < 20; ++i) {
        methods[0].push_back({i});
        if (i > 0 && i < 19) { methods[1].push_back({i}); }
        methods[2].push_back({i < 10 ? 2 * i : 2 * i - 19});
    }
    return methods;
}
/// Kernels that take `compute(step)`, and a wait of the host.
template <class Compute>
void timed_pass(Weights& weights, Device& device, const Model& model, Stream stream, Compute compute) {
    auto pass = must(weights.try_begin(stream));
    for (const auto& step : weights.schedule()) {
        auto lease = must(pass.try_acquire(step));
        for (const auto id : step.weights) { verify(device, model, lease, id, stream, compute(step.position)); }
    }
    must(pass.try_end());
    must(device.synchronize(stream));
}

}  // namespace

TEST_SUITE_BEGIN("planned methods");

TEST_CASE("C30: a return to a schedule plans nothing, and brings only what the other plan did not hold") {
    CheckedDevice device;
    const Model model = twenty(device);
    const Stream stream = must(device.create_stream());
    std::uint32_t streaming = 0;
    for (const std::uint64_t chunks : {12U, 20U, 40U, 55U, 200U}) {
        CAPTURE(chunks);
        const auto methods = three_methods();
        std::array<Schedule, 3> schedules;
        for (std::size_t m = 0; m < 3; ++m) {
            schedules[m] = schedule_of(model, methods[m], residency::Cycle::cyclic, m == 1 ? 4us : 2us);
        }
        auto weights = make(device, model, chunks * chunk, schedules[0]);
        run_pass(weights, model, stream);
        for (int turn = 0; turn < 12; ++turn) {
            CAPTURE(turn);
            const std::size_t next = static_cast<std::size_t>(turn + 1) % 3;
            for (int p = 0; p < 3; ++p) { run_pass(weights, model, stream); }
            must(weights.try_drain());
            const auto before = weights.statistics();
            const auto held = held_between_passes(weights.plan());
            const auto generation = weights.generation();
            // The same content, in an object of its own.
            must(weights.try_set_schedule(
                schedule_of(model, methods[next], residency::Cycle::cyclic, next == 1 ? 4us : 2us)));
            const auto& plan = weights.plan();
            if (turn >= 3) {
                CHECK(weights.statistics().total.plans_made == before.total.plans_made);
                CHECK(weights.generation() == generation);
            }
            CHECK(weights.statistics().total.fetched_bytes == before.total.fetched_bytes);
            const auto counters = counted_pass(weights, model, stream);
            if (turn >= 3) {
                std::uint64_t missing = 0;
                const auto wanted = held_between_passes(plan);
                for (std::size_t c = 0; c < wanted.size(); ++c) { missing += wanted[c] && !held[c] ? 1U : 0U; }
                CHECK(counters.fetched_bytes <= bytes_of(plan) + missing * chunk);
            }
            streaming += weights.statistics().streaming ? 1U : 0U;
            expect_back_on_plan(weights, model, stream);
        }
        CHECK(weights.statistics().total.divergences == 0);
    }
    CHECK(streaming > 30);
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("C30: what was learned of a schedule is kept while others are in force, and through changes of the budget") {
    CheckedDevice device;
    const Model model = twenty(device);
    const Stream stream = must(device.create_stream());
    {
        const auto methods = three_methods();
        std::array<Schedule, 2> schedules;
        for (std::size_t m = 0; m < 2; ++m) {
            residency::ScheduleBuilder builder{model.catalog};
            for (const auto& step : methods[m]) { builder.step({weight(step[0])}); }
            schedules[m] = must(builder.try_build());
        }
        const auto compute = [&](std::size_t method) {
            return [method](std::uint32_t step) { return 20us * (1 + (step + method) % 4) * (method + 1); };
        };
        auto learning = options(30 * chunk, schedules[0]);
        learning.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(learning)));
        const auto turn = [&](std::size_t method) {
            must(weights.try_set_schedule(schedules[method]));
            timed_pass(weights, device, model, stream, compute(method));
        };
        // One pass each, in turns: the times of both are collected all the same.
        for (int i = 0; i < 12; ++i) { turn(static_cast<std::size_t>(i % 2)); }
        std::array<Schedule, 2> learned;
        for (std::size_t m = 0; m < 2; ++m) {
            turn(m);
            turn(m);
            const auto report = weights.statistics().learning;
            CHECK(report.state == LearningState::done);
            CHECK(report.timed_steps == schedules[m].size());
            learned[m] = weights.schedule();
            for (const auto& step : learned[m]) {
                CAPTURE(step.position);
                const auto expected = compute(m)(step.position);
                CHECK(step.compute.value() >= expected);
                CHECK(step.compute.value() < expected + 10us);  // what the host takes for calls
            }
        }
        for (const std::uint64_t chunks : {30U, 45U, 12U, 30U}) {
            CAPTURE(chunks);
            must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
            for (std::size_t m = 0; m < 4; ++m) { turn(m % 2); }
            const auto plans = weights.statistics().total.plans_made;
            const auto replans = weights.statistics().learning.replans;
            for (int i = 0; i < 8; ++i) {
                const auto m = static_cast<std::size_t>(i % 2);
                turn(m);
                CHECK(weights.schedule() == learned[m]);
                CHECK(weights.statistics().learning.state == LearningState::done);
            }
            CHECK(weights.statistics().total.plans_made == plans);
            CHECK(weights.statistics().learning.replans == replans);
        }
        // By the schedule that was learned, too; and the one in force again.
        const auto plans = weights.statistics().total.plans_made;
        must(weights.try_set_schedule(learned[0]));
        must(weights.try_set_schedule(schedules[0]));
        CHECK(weights.schedule() == learned[0]);
        CHECK(weights.statistics().learning.state == LearningState::done);
        CHECK(weights.statistics().total.plans_made == plans);
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C30: an order that was learned in place of a guess is there again after another schedule") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto learning = options(12 * chunk, {});
        learning.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(learning)));
        const Schedule guess = weights.schedule();
        const Schedule other = schedule_of(model, {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}});
        const auto backwards = [&] {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t i = 12; i-- > 0;) {
                auto lease = must(pass.try_acquire(weight(i)));
                verify(device, model, lease, weight(i), stream);
            }
            must(pass.try_end());
            must(weights.try_drain());
        };
        for (int i = 0; i < 8; ++i) { backwards(); }
        REQUIRE(weights.statistics().learning.order == residency::OrderOrigin::learned);
        const Schedule learned = weights.schedule();
        REQUIRE(learned[0].weights[0] == weight(11));
        must(weights.try_set_schedule(other));
        CHECK(weights.statistics().learning.order == residency::OrderOrigin::declared);
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        for (const Schedule& name : {guess, learned}) {
            must(weights.try_set_schedule(name));
            CHECK(weights.schedule() == learned);
            CHECK(weights.statistics().learning.order == residency::OrderOrigin::learned);
            for (int i = 0; i < 3; ++i) { backwards(); }
            CHECK(weights.statistics().last_pass.divergences == 0);
            must(weights.try_set_schedule(other));
        }
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C30: whichever call fails in a switch, one of the schedules is in force, and the next switch works") {
    CheckedDevice device;
    const Model model = twenty(device);
    const Stream stream = must(device.create_stream());
    const auto used_before = used_bytes(device);
    {
        const auto methods = three_methods();
        const std::array<Schedule, 2> schedules{schedule_of(model, methods[0]), schedule_of(model, methods[2])};
        auto weights = make(device, model, 20 * chunk, schedules[0]);
        run_pass(weights, model, stream);
        must(weights.try_set_schedule(schedules[1]));
        std::uint64_t failed = 0;
        for (std::uint64_t n = 1; n < 400; ++n) {
            CAPTURE(n);
            const std::size_t next = n % 2;
            run_pass(weights, model, stream);
            const Schedule before = weights.schedule();
            device.fail(Device::CallKind::any, n);
            const auto set = weights.try_set_schedule(schedules[next]);
            device.clear_failures();
            if (!set) { ++failed; }
            CHECK(weights.schedule() == (set ? schedules[next] : before));
            expect_back_on_plan(weights, model, stream);
            must(weights.try_set_schedule(schedules[next]));
            CHECK(weights.schedule() == schedules[next]);
            expect_back_on_plan(weights, model, stream);
            expect_inside_budget(device, weights, used_before);
            if (set && n > 60) { break; }
        }
        CHECK(failed > 5);
        CHECK(*model.wrong == 0);
    }
    CHECK(used_bytes(device) == used_before);
    must(device.destroy_stream(stream));
}

TEST_CASE("more schedules than are remembered: all of them run, and are planned anew") {
    CheckedDevice device;
    const Model model = uniform_model(device, 20, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 10 * chunk, in_order(model));
        for (int round = 0; round < 2; ++round) {
            for (int s = 0; s < 40; ++s) {
                Steps steps;
                for (std::uint32_t i = 0; i < 20; ++i) { steps.push_back({(i + static_cast<std::uint32_t>(s)) % 20}); }
                const auto compute = std::chrono::microseconds{2 + s};
                must(weights.try_set_schedule(schedule_of(model, steps, residency::Cycle::cyclic, compute)));
                run_pass(weights, model, stream);
            }
        }
        CHECK(weights.statistics().total.plans_made == 81);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace methods_test
