// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/compositions.hpp"

namespace schedules_test {

using namespace streaming;
using residency::Cycle;
using residency::ErrorKind;
using residency::Schedule;

TEST_SUITE_BEGIN("core schedules");

TEST_CASE("lenient: what diverges from the schedule is right, and counted; in order nothing is") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0), weight(1)}).step({weight(2)}).step({weight(3), weight(0)}).step({weight(4)});
    const Schedule schedule = must(builder.try_build());
    {
        auto weights = make<OnDemand>(device, model, 3 * 4096, schedule);
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        CHECK(weights.statistics().total.divergences == 0);
        // The same by weights, parts of a step apart, the same part twice.
        auto pass = must(weights.try_begin(stream));
        for (const std::uint32_t w : {0U, 1U, 1U, 2U, 3U, 0U, 4U}) {
            static_cast<void>(must(pass.try_acquire(weight(w))));
        }
        must(pass.try_end());
        CHECK(weights.statistics().last_pass.divergences == 0);
        // A step left out, one that comes back, and a weight of no step.
        pass = must(weights.try_begin(stream));
        std::vector<std::uint64_t> counts;
        const auto diverged = [&] { counts.push_back(weights.statistics().total.divergences); };
        static_cast<void>(must(pass.try_acquire(schedule[0])));
        diverged();
        static_cast<void>(must(pass.try_acquire(schedule[2])));
        diverged();
        static_cast<void>(must(pass.try_acquire(schedule[1])));
        diverged();
        auto lease = must(pass.try_acquire(weight(5)));
        verify(device, model, lease, weight(5), stream);
        lease.end();
        diverged();
        static_cast<void>(must(pass.try_acquire({weight(4), weight(2)})));
        diverged();
        must(pass.try_end());
        CHECK(counts == std::vector<std::uint64_t>{0, 1, 2, 3, 4});
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("strict: an error names what was expected and what came, without side effect, and the pass goes on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 5, 4096);
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0)}, std::nullopt, "first")
        .step({weight(1), weight(2)}, std::nullopt, "second")
        .step({weight(3)});
    const Schedule schedule = must(builder.try_build());
    {
        auto chosen = options<OnDemand>(3 * 4096, schedule);
        chosen.strict = true;
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(chosen)));
        for (int round = 0; round < 2; ++round) {
            auto pass = must(weights.try_begin(stream));
            static_cast<void>(must(pass.try_acquire(schedule[0])));
            const auto before = weights.statistics().total;
            const auto skipped = pass.try_acquire(schedule[2]);
            REQUIRE_FALSE(skipped);
            CHECK(skipped.error().kind() == ErrorKind::divergence);
            const auto* detail = skipped.error().detail<residency::Divergence>();
            REQUIRE(detail != nullptr);
            CHECK(detail->step == 1);
            CHECK(detail->expected == "step 1 (second; w1 and 1 other)");
            CHECK(detail->came == "step 2 (w3)");
            const auto by_weight = pass.try_acquire(weight(3));
            REQUIRE_FALSE(by_weight);
            CHECK(by_weight.error().message().find(
                      "step 1 (second; w1 and 1 other) comes next, but step 2 (w3) was asked "
                      "for") != std::string::npos);
            CHECK(pass.try_acquire(weight(4)).error().kind() == ErrorKind::divergence);
            CHECK(pass.try_acquire(weight(4)).error().message().find("w4") != std::string::npos);
            CHECK(pass.try_acquire({weight(1), weight(3)}).error().kind() == ErrorKind::divergence);
            CHECK(pass.try_request(weight(3)).error().kind() == ErrorKind::divergence);
            CHECK(weights.statistics().total == before);
            CHECK_THROWS_AS(static_cast<void>(pass.acquire(schedule[2])), residency::DivergenceError);
            static_cast<void>(must(pass.try_acquire(weight(1))));
            static_cast<void>(must(pass.try_acquire(weight(2))));
            static_cast<void>(must(pass.try_acquire(schedule[2])));
            must(pass.try_end());
            CHECK(weights.statistics().last_pass.divergences == 0);
        }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a schedule of another catalog is refused at construction and later; the old one stays") {
    CheckedDevice device;
    const Model model = uniform_model(device, 3, 4096);
    const Model other = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    CHECK(OnDemand::try_create(device, model.catalog, options<OnDemand>(0, in_order(other))).error().kind() ==
          ErrorKind::mismatch);
    {
        auto weights = make<OnDemand>(device, model, 0, in_order(model));
        CHECK(weights.try_set_schedule(in_order(other)).error().kind() == ErrorKind::mismatch);
        CHECK(weights.schedule() == in_order(model));
        run_pass(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("another schedule comes into force between passes; one that needs more than the budget is refused") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 4096);
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(7)}).step({weight(3), weight(4)}).step({weight(0)}).step({weight(3)}).step({weight(6)});
    const Schedule second = must(builder.try_build());
    builder.step({weight(0), weight(1), weight(2), weight(3), weight(4)});
    const Schedule large = must(builder.try_build());
    {
        auto weights = make<Ahead>(device, model, 3 * 4096, in_order(model));
        for (int round = 0; round < 3; ++round) {
            for (int i = 0; i < 2; ++i) { run_pass(weights, model, stream); }
            const Schedule was = weights.schedule();
            const auto refused = weights.try_set_schedule(large);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::budget);
            CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == 5 * 4096);
            CHECK(weights.schedule() == was);
            run_pass(weights, model, stream);
            must(weights.try_set_schedule(round % 2 == 0 ? second : in_order(model)));
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weights.schedule()[0]));
            must(pass.try_end());
            CHECK(weights.try_set_schedule(second).error().kind() == ErrorKind::wrong_state);
            lease.end();
        }
        must(weights.try_set_schedule({}));
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t w = 0; w < 8; ++w) {
            auto lease = must(pass.try_acquire(weight(w)));
            verify(device, model, lease, weight(w), stream);
        }
        must(pass.try_end());
        CHECK(weights.statistics().last_pass.divergences == 0);
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(device.peak_used_bytes() <= 3 * 4096);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what a pass really acquired becomes the schedule, and is then followed without divergence") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto chosen = options<Ahead>(4 * 4096);
        chosen.record = true;
        auto weights = must(Ahead::try_create(device, model.catalog, std::move(chosen)));
        CHECK_FALSE(weights.try_recorded_schedule());  // nothing yet
        const auto real_pass = [&] {
            auto pass = must(weights.try_begin(stream));
            for (const std::uint32_t w : {5U, 1U, 3U}) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream);
            }
            auto lease = must(pass.try_acquire({weight(0), weight(2), weight(4)}));
            verify(device, model, lease, weight(4), stream);
            lease.end();
            must(pass.try_end());
        };
        real_pass();
        const Schedule recorded = must(weights.try_recorded_schedule());
        REQUIRE(recorded.size() == 4);
        CHECK(recorded.is_cyclic());
        CHECK(recorded[0].weights.front() == weight(5));
        CHECK(recorded[3].weights.size() == 3);
        CHECK_FALSE(must(weights.try_recorded_schedule(Cycle::one_shot)).is_cyclic());
        must(weights.try_set_schedule(recorded));
        for (int i = 0; i < 3; ++i) {
            real_pass();
            CHECK(weights.statistics().last_pass.divergences == 0);
        }
        CHECK(weights.statistics().last_pass.demand_misses == 0);
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    {
        auto weights = make<Ahead>(device, model, 0);
        CHECK(weights.try_recorded_schedule().error().kind() == ErrorKind::wrong_state);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("a one-shot schedule can be run again and again", Weights, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 7, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 4 * 4096, in_order(model, Cycle::one_shot));
        for (int i = 0; i < 4; ++i) {
            run_pass(weights, model, stream);
            CHECK(weights.statistics().last_pass.divergences == 0);
        }
        must(weights.try_drain());
        CHECK(*model.verified == 4 * 7 * 4096);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a step of no schedule, and one beyond it, are what they read, or an error") {
    CheckedDevice device;
    const Model model = uniform_model(device, 3, 4096);
    const Stream stream = must(device.create_stream());
    const Schedule elsewhere = in_order(model);
    {
        auto weights = make<OnDemand>(device, model, 0);
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(elsewhere[2]));  // another schedule's step
        verify(device, model, lease, weight(2), stream);
        lease.end();
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace schedules_test
