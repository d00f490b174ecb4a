// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What no step reads is not held, and may be leased all the same.
#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace unread_test {

using namespace planned;
using residency::Budget;
using residency::Cycle;
using residency::ErrorKind;
using residency::Placement;
using residency::StorageId;

TEST_SUITE_BEGIN("planned unread");

namespace {

/// Eight weights of two chunks and one of twenty, which the schedules here leave out.
Model vision_tower(Device& device) {
    std::vector<Spec> specs(8, Spec{2 * chunk});
    specs.push_back({20 * chunk});
    return make_model(device, specs);
}
Schedule without_tower(const Model& model, Cycle cycle = Cycle::cyclic) {
    return schedule_of(model, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}, cycle);
}
/// Leases the tower in a pass of its own, between two steps of a pass, and beside a step.
template <class Pass>
void read_tower(Device& device, const Model& model, Pass& pass, Stream stream) {
    auto lease = must(pass.try_acquire(weight(8)));
    verify(device, model, lease, weight(8), stream);
}

}  // namespace

TEST_CASE("C9: what no step reads raises no floor and is not held, at any budget") {
    for (const Cycle cycle : {Cycle::cyclic, Cycle::one_shot}) {
        CheckedDevice device;
        const Model model = vision_tower(device);
        const Stream stream = must(device.create_stream());
        const auto refused = Weights::try_create(device, model.catalog, options(chunk, without_tower(model, cycle)));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == 2 * chunk);
        CHECK(refused.error().message().find("step 0 needs " + residency::detail::in_bytes(2 * chunk) + " at once") !=
              std::string::npos);
        for (const std::uint64_t chunks : {0U, 2U, 3U, 7U, 16U, 20U, 36U, 1000U}) {
            CAPTURE(chunks);
            auto weights = make(device, model, chunks * chunk, without_tower(model, cycle));
            CHECK(weights.statistics().floor_bytes == 2 * chunk);
            CHECK(weights.budget().is_streaming() == (chunks < 16));
            for (int i = 0; i < 3; ++i) {
                run_pass(weights, model, stream);
                CHECK(weights.statistics().held_bytes <= std::min<std::uint64_t>(weights.budget().bytes, 16 * chunk));
                CHECK(weights.statistics().streaming == (chunks < 16));
            }
            weights.drain();
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("what no step reads is brought for a lease within the budget, and leaves again") {
    CheckedDevice device;
    const Model model = vision_tower(device);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t chunks : {20U, 22U, 30U, 36U, 50U}) {
        CAPTURE(chunks);
        const std::uint64_t before = used_bytes(device);
        auto weights = make(device, model, chunks * chunk, without_tower(model));
        const auto generation = weights.generation();
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            read_tower(device, model, pass, stream);
            for (const auto& step : weights.schedule()) {
                run_step(device, model, pass, step, stream);
                if (step.position == 4) { read_tower(device, model, pass, stream); }
            }
            must(pass.try_end());
            CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
        }
        CHECK(weights.generation() == generation);
        // Where there is room for it, it takes nothing from the others.
        run_pass(weights, model, stream);
        if (chunks >= 36) {
            auto pass = must(weights.try_begin(stream));
            read_tower(device, model, pass, stream);
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
            must(pass.try_end());
            CHECK(weights.statistics().last_pass.fetched_bytes == 0);
            CHECK(weights.statistics().last_pass.demand_misses == 0);
        }
        // Another budget, and another schedule, hold what their steps read.
        must(weights.try_set_budget(Budget::bytes(16 * chunk)));
        CHECK(weights.statistics().held_bytes <= 16 * chunk);
        run_pass(weights, model, stream);
        must(weights.try_set_budget(Budget::bytes(36 * chunk)));
        must(weights.try_set_schedule(schedule_of(model, {{8}, {0}})));
        CHECK(weights.statistics().floor_bytes == 20 * chunk);
        run_pass(weights, model, stream);
        run_pass(weights, model, stream);
        CHECK(weights.statistics().held_bytes == 22 * chunk);
        must(weights.try_set_schedule(without_tower(model)));
        run_pass(weights, model, stream);
        CHECK(weights.statistics().held_bytes == 16 * chunk);
        weights.drain();
        CHECK(used_bytes(device) - before <= weights.budget().bytes);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what no step reads and the budget does not hold is refused, and nothing is harmed") {
    CheckedDevice device;
    const Model model = vision_tower(device);
    const Stream stream = must(device.create_stream());
    auto weights = make(device, model, 12 * chunk, without_tower(model));
    for (int i = 0; i < 3; ++i) {
        auto pass = must(weights.try_begin(stream));
        for (const auto& step : weights.schedule()) {
            run_step(device, model, pass, step, stream);
            const auto refused = pass.try_acquire(weight(8));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::budget);
            CHECK(refused.error().message().find("policies.storages_at_once") != std::string::npos);
        }
        must(pass.try_end());
    }
    must(weights.try_drain());
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("graphs outlive a lease of what no step reads") {
    CheckedDevice device;
    const Model model = vision_tower(device);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t chunks : {21U, 40U}) {
        CAPTURE(chunks);
        auto weights = make(device, model, chunks * chunk, without_tower(model));
        run_pass(weights, model, stream);
        auto graph = must(weights.try_capture(stream, [&](Weights::Pass& pass) {
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        }));
        for (int i = 0; i < 3; ++i) {
            must(graph.try_launch(stream));
            auto pass = must(weights.try_begin(stream));
            read_tower(device, model, pass, stream);
            must(pass.try_end());
        }
        must(graph.try_launch(stream));
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C9: as many storages as are said to be asked for at once fit, or the budget is refused when it is made") {
    CheckedDevice device;
    const Model model =
        make_model(device, {{chunk}, {3 * chunk}, {5 * chunk}, {chunk, Placement::resident}, {2 * chunk}});
    const Stream stream = must(device.create_stream());
    for (const bool scheduled : {false, true}) {
        auto chosen = options(8 * chunk, scheduled ? schedule_of(model, {{0}, {3}}) : Schedule{});
        chosen.policies.storages_at_once = 2;
        const auto refused = Weights::try_create(device, model.catalog, chosen);
        REQUIRE_FALSE(refused);
        const std::string message = refused.error().message();
        CAPTURE(message);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == 9 * chunk);
        CHECK(message.find("a request of the 2 largest storages (policies.storages_at_once) needs " +
                           residency::detail::in_bytes(8 * chunk) + " at once") != std::string::npos);
        chosen.budget = Budget::bytes(9 * chunk);
        auto weights = must(Weights::try_create(device, model.catalog, chosen));
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& [a, b] : {std::pair{2U, 1U}, {1U, 4U}, {2U, 4U}, {0U, 2U}}) {
                auto lease = must(pass.try_acquire({weight(a), weight(b)}));
                verify(device, model, lease, weight(a), stream);
                verify(device, model, lease, weight(b), stream);
            }
            must(pass.try_end());
            CHECK(weights.statistics().held_bytes <= 9 * chunk);
        }
        must(weights.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace unread_test
