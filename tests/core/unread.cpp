// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What no step reads raises no floor, and may be leased all the same; what is asked for at once without a step does, if it is said.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "residency/prefetch/scheduled.hpp"
#include "tests/core/compositions.hpp"

namespace unread_test {

using namespace streaming;
using residency::Budget;
using residency::ErrorKind;
using residency::Placement;

TEST_SUITE_BEGIN("core unread");

namespace {

constexpr std::uint64_t unit = 4096;

Model vision_tower(Device& device) {
    std::vector<Spec> specs(8, Spec{2 * unit});
    specs.push_back({20 * unit});
    return make_model(device, specs);
}
residency::Schedule steps_of(const Model& model, const std::vector<std::uint32_t>& weights) {
    residency::ScheduleBuilder builder{model.catalog};
    for (const std::uint32_t each : weights) { builder.step({weight(each)}); }
    return must(builder.try_build());
}

}  // namespace

TEST_CASE_TEMPLATE("C9: what no step reads raises no floor, and is brought for a lease where there is room", Weights,
                   OnDemand, Ahead, compositions::Hinted) {
    CheckedDevice device;
    const Model model = vision_tower(device);
    const auto schedule = steps_of(model, {0, 1, 2, 3, 4, 5, 6, 7});
    const Stream stream = must(device.create_stream());
    const auto refused = Weights::try_create(device, model.catalog, options<Weights>(unit, schedule));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().template detail<residency::BudgetNumbers>()->floor_bytes == 2 * unit);
    CHECK(refused.error().message().find("step 0 needs " + residency::detail::in_bytes(2 * unit) + " at once") !=
          std::string::npos);
    for (const std::uint64_t units : {2U, 6U, 20U, 22U, 36U, 60U}) {
        CAPTURE(units);
        auto weights = make<Weights>(device, model, units * unit, schedule);
        CHECK(weights.statistics().floor_bytes == 2 * unit);
        for (int i = 0; i < 3; ++i) {
            run_pass(weights, model, stream);
            if (i == 0) { CHECK(weights.statistics().requested_bytes <= 16 * unit); }
            auto pass = must(weights.try_begin(stream));
            auto lease = pass.try_acquire(weight(8));
            CHECK(lease.has_value() == (units >= 20));
            if (lease) {
                verify(device, model, *lease, weight(8), stream);
                lease->end();
            } else {
                CHECK(lease.error().kind() == ErrorKind::budget);
                CHECK(lease.error().message().find("policies.storages_at_once") != std::string::npos);
            }
            must(pass.try_end());
            CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
        }
        if (units >= 20) {  // a schedule that reads it
            must(weights.try_set_schedule(steps_of(model, {0, 8, 1})));
            CHECK(weights.statistics().floor_bytes == 20 * unit);
            for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
            must(weights.try_set_schedule(schedule));
            CHECK(weights.statistics().floor_bytes == 2 * unit);
            for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
            must(weights.try_set_budget(Budget::bytes(2 * unit)));
            run_pass(weights, model, stream);
        }
        must(weights.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C9: a cache below what is said to be asked for at once is refused when it is made", Weights,
                   OnDemand, Ahead, compositions::Hinted) {
    CheckedDevice device;
    const Model model = make_model(
        device, {{unit}, {4 * unit}, {4 * unit}, {4 * unit}, {4 * unit}, {unit, Placement::resident}, {2 * unit}});
    const Stream stream = must(device.create_stream());
    for (const bool scheduled : {false, true}) {
        auto chosen = options<Weights>(8 * unit, scheduled ? steps_of(model, {0, 5}) : residency::Schedule{});
        chosen.policies.storages_at_once = 2;
        const auto refused = Weights::try_create(device, model.catalog, chosen);
        REQUIRE_FALSE(refused);
        const std::string message = refused.error().message();
        CAPTURE(message);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(refused.error().template detail<residency::BudgetNumbers>()->floor_bytes == 9 * unit);
        CHECK(message.find("a request of the 2 largest storages (policies.storages_at_once) needs " +
                           residency::detail::in_bytes(8 * unit) + " at once") != std::string::npos);
        chosen.budget = Budget::bytes(9 * unit);
        auto weights = must(Weights::try_create(device, model.catalog, chosen));
        CHECK_FALSE(weights.try_set_budget(Budget::bytes(9 * unit - 1)));
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& [a, b] : {std::pair{1U, 2U}, {3U, 4U}, {1U, 6U}, {2U, 4U}}) {
                auto lease = must(pass.try_acquire({weight(a), weight(b)}));
                verify(device, model, lease, weight(a), stream);
                verify(device, model, lease, weight(b), stream);
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace unread_test
