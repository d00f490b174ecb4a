// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"

namespace budgets_test {

using namespace streaming;
using residency::Budget;
using residency::ErrorKind;
using residency::Placement;
using residency::WeightId;
using CallKind = Device::CallKind;

TEST_SUITE_BEGIN("core budgets");

namespace {

/// Steps of 4096, 3 × 4096 and 2 × 4096 bytes, the second one named.
residency::Schedule steps_of(const Model& model) {
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0)});
    builder.step({weight(1), weight(2), weight(3)}, std::nullopt, "experts");
    builder.step({weight(4), weight(5)});
    return must(builder.try_build());
}

}  // namespace

TEST_CASE_TEMPLATE("C9: below the floor is refused, with the floor, the step that sets it and a value that works",
                   Weights, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = make_model(
        device, {{4096}, {4096}, {4096}, {4096}, {4096}, {4096}, {4096}, {4096}, {1000, Placement::resident}});
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    const auto refused = Weights::try_create(device, model.catalog, options<Weights>(2 * 4096, steps_of(model)));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    const auto* numbers = refused.error().template detail<residency::BudgetNumbers>();
    REQUIRE(numbers != nullptr);
    CHECK(numbers->asked_bytes == 2 * 4096);
    CHECK(numbers->step == 1);
    CHECK(numbers->floor_bytes >= 4 * 4096);
    CHECK(refused.error().message().find("experts") != std::string::npos);
    CHECK(refused.error().message().find(std::to_string(numbers->floor_bytes)) != std::string::npos);
    CHECK(must(device.memory()).free_bytes == before);
    {
        auto weights = make<Weights>(device, model, numbers->floor_bytes, steps_of(model));
        CHECK(weights.statistics().floor_bytes == numbers->floor_bytes);
        CHECK(weights.statistics().streaming);
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(device.peak_used_bytes() <= numbers->floor_bytes);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C9: without a schedule no step is named, but the largest weight", Weights, OnDemand,
                   compositions::Planned) {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {4096}, {20480}, {30000, Placement::resident}, {4096}});
    auto with = options<Weights>(30000 + 4096);
    if constexpr (std::is_same_v<Weights, compositions::Planned>) { with.policies.pool.chunk_bytes = 4096; }
    const auto refused = Weights::try_create(device, model.catalog, with);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(refused.error().template detail<residency::BudgetNumbers>()->step == UINT32_MAX);
    const std::string& message = refused.error().message();
    CAPTURE(message);
    CHECK(message.find("step") == std::string::npos);
    CHECK(message.find("the largest weight, \"w2\", needs ") != std::string::npos);
    const auto same = Weights::try_resolve_budget(device, model.catalog, with);
    REQUIRE_FALSE(same);
    CHECK(same.error().message() == message);
    // With a schedule the same budget names its step.
    with.schedule = in_order(model);
    const auto scheduled = Weights::try_create(device, model.catalog, with);
    REQUIRE_FALSE(scheduled);
    CHECK(scheduled.error().template detail<residency::BudgetNumbers>()->step == 2);
    CHECK(scheduled.error().message().find("step 2 needs ") != std::string::npos);
}

TEST_CASE("C9: the floor names a step also where that step reads one storage only, the largest") {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {16384}, {4096}});
    const auto refused = OnDemand::try_create(device, model.catalog, options<OnDemand>(4096, in_order(model)));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().detail<residency::BudgetNumbers>()->step == 1);
}

TEST_CASE("C9: with equal slots it is the step of the most storages that sets the floor") {
    CheckedDevice device;
    const Model model = make_model(device, {{16384}, {4096}, {256}, {256}, {256}, {256}});
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0), weight(1)}).step({weight(2), weight(3), weight(4), weight(5)});
    const auto refused = Ahead::try_create(device, model.catalog, options<Ahead>(16384, must(builder.try_build())));
    REQUIRE_FALSE(refused);
    const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
    CHECK(numbers->floor_bytes == 4 * 16384);
    CHECK(numbers->step == 1);
}

/// Storages that leave much of the segments of a stream-ordered pool unused.
Device::Config coarse_config() {
    auto config = small_config();
    config.pool_granularity = 65536;
    return config;
}

TEST_CASE(
    "C9 C10: a stream-ordered pool counts what its segments leave unused, at the floor and where everything fits") {
    for (const std::uint64_t bytes : {20000U, 33000U, 40960U, 70000U}) {
        for (const std::size_t each : {1U, 2U, 3U, 8U}) {
            CAPTURE(bytes);
            CAPTURE(each);
            CheckedDevice device{coarse_config()};
            const Model model = uniform_model(device, 16, bytes);
            residency::ScheduleBuilder builder{model.catalog};
            for (std::uint32_t i = 0; i < 16; i += static_cast<std::uint32_t>(each)) {
                std::vector<residency::WeightId> step;
                for (std::uint32_t k = i; k < std::min<std::size_t>(i + each, 16); ++k) { step.push_back(weight(k)); }
                builder.step(std::span<const residency::WeightId>{step});
            }
            const auto schedule = must(builder.try_build());
            const Stream stream = must(device.create_stream());
            for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
                auto weights = make<OnDemand>(device, model, budget, schedule);
                for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
                must(weights.try_drain());
                const auto statistics = weights.statistics();
                CHECK(statistics.held_bytes <= weights.budget().bytes);
                if (budget != 0) {
                    CHECK_FALSE(statistics.streaming);
                    CHECK(statistics.last_pass.fetched_bytes == 0);
                    CHECK(statistics.total.evictions == 0);
                }
            }
            CHECK(*model.wrong == 0);
            must(device.destroy_stream(stream));
        }
    }
}

TEST_CASE_TEMPLATE("C10: zero is the smallest that works, and every pass runs there", Weights, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {300}, {4096}, {1}, {2048}, {4096}, {4096}, {4096}});
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 0, steps_of(model));
        CHECK(weights.budget().adjustment == residency::BudgetAdjustment::zero_to_floor);
        CHECK(weights.budget().bytes == weights.statistics().floor_bytes);
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 3 * (4096 + 300 + 4096 + 1 + 2048 + 4096));
        CHECK(device.peak_used_bytes() <= weights.budget().bytes);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE(
    "C10: at the total and above everything stays, streaming is off, and the ends of leases record nothing", Weights,
    OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {300}, {4096}, {1}, {2048}, {4096}, {777, Placement::resident}});
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, std::uint64_t{1} << 40, steps_of(model));
        CHECK(weights.budget().is_clamped());
        CHECK(weights.budget().bytes == weights.budget().total_bytes);
        const std::uint64_t total = weights.budget().total_bytes;
        CHECK_FALSE(weights.statistics().streaming);
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        CHECK(weights.statistics().total.evictions == 0);
        CHECK(weights.statistics().last_pass.hits == 6);
        CHECK(weights.statistics().last_pass.fetched_bytes == 0);
        must(weights.try_drain());
        const auto before = device.statistics();
        run_pass(weights, model, stream);
        const auto after = device.statistics();
        CHECK(after.of(CallKind::record) - before.of(CallKind::record) == 2);  // the pass's two timing events
        CHECK(after.of(CallKind::wait) == before.of(CallKind::wait));
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(device.peak_used_bytes() <= total);
    }
    {
        // One below the total still streams; the total itself does not.
        auto all = make<Weights>(device, model, 0, steps_of(model));
        const std::uint64_t total = all.budget().total_bytes;
        CHECK(make<Weights>(device, model, total - 4096, steps_of(model)).statistics().streaming);
        CHECK_FALSE(make<Weights>(device, model, total, steps_of(model)).statistics().streaming);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C11: what whoever runs the model says beats what came with it; neither falls back, only automatic does") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 4096);
    auto chosen = options<OnDemand>(4 * 4096);
    chosen.stored_budget = Budget::bytes(6 * 4096);
    CHECK(must(OnDemand::try_create(device, model.catalog, chosen)).budget().bytes == 4 * 4096);
    chosen.budget.reset();
    CHECK(must(OnDemand::try_create(device, model.catalog, chosen)).budget().bytes == 6 * 4096);
    chosen.stored_budget = Budget::bytes(1);
    CHECK_FALSE(OnDemand::try_create(device, model.catalog, chosen));
    chosen.stored_budget.reset();
    chosen.reserve_bytes = std::uint64_t{1} << 40;  // more than there is
    const auto floor = must(OnDemand::try_create(device, model.catalog, chosen));
    CHECK(floor.budget().adjustment == residency::BudgetAdjustment::raised_to_floor);
    chosen.reserve_bytes = 0;
    CHECK_FALSE(must(OnDemand::try_create(device, model.catalog, chosen)).statistics().streaming);
}

TEST_CASE_TEMPLATE("where others hold the device, the error is the budget's: what is asked, free, and the floor", W,
                   compositions::Planned, Ahead) {
    constexpr std::uint64_t unit = 4096;
    Device::Config config = small_config();
    config.memory_bytes = 100 * unit;
    CheckedDevice device{config};
    const Model model = uniform_model(device, 16, 4 * unit);
    const Stream stream = must(device.create_stream());
    void* others = must(device.allocate(60 * unit));
    const auto refused = [&](const residency::Error& error, std::uint64_t budget, std::uint64_t free) {
        CAPTURE(error.message());
        CHECK(error.kind() == ErrorKind::budget);
        CHECK(error.message().find("create_chunk") == std::string::npos);
        CHECK(error.message().find("others hold") != std::string::npos);
        const auto* numbers = error.detail<residency::BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->budget_bytes == budget);
        CHECK(numbers->free_bytes == free);
        CHECK(numbers->floor_bytes >= 4 * unit);
    };
    const auto create = [&](const Budget& budget) {
        auto with = options<W>(0, in_order(model));
        with.budget = budget;
        with.reserve_bytes = 0;
        if constexpr (std::is_same_v<W, compositions::Planned>) { with.policies.pool.chunk_bytes = unit; }
        return W::try_create(device, model.catalog, std::move(with));
    };
    const auto all = create(Budget::percent_of_weights(100));
    REQUIRE_FALSE(all);
    refused(all.error(), 64 * unit, 40 * unit);
    CHECK(all.error().message().find("163,840 bytes (160 KiB) free") != std::string::npos);
    CHECK(all.error().message().find("others hold 245,760 bytes (240 KiB)") != std::string::npos);
    const auto some = create(Budget::bytes(48 * unit));
    REQUIRE_FALSE(some);
    refused(some.error(), 48 * unit, 40 * unit);
    {
        auto weights = must(create(Budget::automatic()));
        CHECK(weights.budget().bytes == 40 * unit);
        run_pass(weights, model, stream);
        must(weights.try_set_budget(Budget::bytes(16 * unit)));
        const auto more = weights.try_set_budget(Budget::bytes(64 * unit));
        REQUIRE_FALSE(more);
        refused(more.error(), 64 * unit, 40 * unit);
        CHECK(weights.budget().bytes == 16 * unit);
        run_pass(weights, model, stream);
        must(weights.try_suspend());
        void* more_of_others = must(device.allocate(30 * unit));
        const auto resumed = weights.try_resume();
        REQUIRE_FALSE(resumed);
        refused(resumed.error(), 16 * unit, 10 * unit);
        must(device.deallocate(more_of_others));
        must(weights.try_resume());
        run_pass(weights, model, stream);
        must(weights.try_drain());
    }
    // Less than the floor.
    void* nearly_all = must(device.allocate(38 * unit));
    for (const Budget& budget : {Budget::automatic(), Budget::bytes(0), Budget::bytes(20 * unit)}) {
        const auto least = create(budget);
        REQUIRE_FALSE(least);
        CAPTURE(least.error().message());
        CHECK(least.error().kind() == ErrorKind::budget);
        CHECK(least.error().message().find("have to give memory back first") != std::string::npos);
        CHECK(least.error().template detail<residency::BudgetNumbers>()->free_bytes == 2 * unit);
    }
    CHECK(*model.wrong == 0);
    must(device.deallocate(nearly_all));
    must(device.deallocate(others));
    must(device.destroy_stream(stream));
}

TEST_CASE("equal slots that one storage makes large: errors and the budget's text name it, and what to do") {
    using Weights = compositions::OnSlab;
    constexpr std::uint64_t unit = 4096;
    constexpr const char* advice =
        "every slot of the pool is as large as \"w0\", 262,144 bytes (256 KiB), and most storages are much smaller: "
        "place "
        "that one resident or host, or take another pool";
    CheckedDevice device;
    const auto model_of = [&](Placement placement) {
        return make_model(device, {{64 * unit, placement}, {unit}, {unit}, {unit}, {unit}, {unit}, {unit}});
    };
    const Model model = model_of(Placement::streamed);
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0)}).step({weight(1), weight(2), weight(3)});
    const auto schedule = must(builder.try_build());
    const auto refused = Weights::try_create(device, model.catalog, options<Weights>(2 * 64 * unit, schedule));
    REQUIRE_FALSE(refused);
    CAPTURE(refused.error().message());
    CHECK(refused.error().message().find(std::string{": step 1 needs 12,288 bytes (12 KiB) at once, "} +
                                         "786,432 bytes (768 KiB) as the pool rounds, beside 0 bytes of residents; " +
                                         advice + "; give 786432 or more") != std::string::npos);
    {
        // Without a schedule the largest storage sets the floor. Another schedule raises it.
        auto weights = make<Weights>(device, model, 64 * unit);
        const auto raised = weights.try_set_schedule(schedule);
        REQUIRE_FALSE(raised);
        CHECK(raised.error().message().find(std::string{"; "} + advice + "; raise the budget first") !=
              std::string::npos);
        must(weights.try_set_budget(Budget::percent_of_weights(100)));
        CHECK_FALSE(weights.budget().is_streaming());
        CHECK(weights.budget().text.ends_with(std::string{"the pool may leave the rest unused; "} + advice + ")"));
    }
    const auto others = [&](const auto& created) {
        return created.error().message().find("every slot") != std::string::npos;
    };
    // Placed elsewhere, it makes no slot large; nor do storages of one size, or a pool of other places.
    const Model placed = model_of(Placement::resident);
    CHECK_FALSE(others(Weights::try_create(device, placed.catalog, options<Weights>(unit))));
    const Model equal = make_model(device, {{unit}, {unit}, {unit}});
    CHECK_FALSE(others(Weights::try_create(device, equal.catalog, options<Weights>(1))));
    CHECK_FALSE(others(OnDemand::try_create(device, model.catalog, options<OnDemand>(unit))));
}

TEST_CASE("a request that the budget holds and the device does not says what is free") {
    constexpr std::uint64_t unit = 4096;
    Device::Config config = small_config();
    config.memory_bytes = 100 * unit;
    CheckedDevice device{config};
    const Model model = uniform_model(device, 16, 4 * unit);
    const Stream stream = must(device.create_stream());
    void* const others = must(device.allocate(60 * unit));
    {
        auto weights = make<OnDemand>(device, model, 64 * unit);
        std::vector<WeightId> twelve;
        for (std::uint32_t i = 0; i < 12; ++i) { twelve.push_back(weight(i)); }
        auto pass = must(weights.try_begin(stream));
        const auto refused = pass.try_acquire(twelve);
        REQUIRE_FALSE(refused);
        CAPTURE(refused.error().message());
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(refused.error().message().find("others may hold the rest") != std::string::npos);
        must(pass.try_end());
        must(weights.try_drain());
    }
    must(device.deallocate(others));
    must(device.destroy_stream(stream));
}

TEST_CASE("C8: the driver's roundings are inside the budget") {
    Device::Config config = small_config();
    config.allocation_granularity = 8192;
    config.pool_granularity = 32768;
    CheckedDevice device{config};
    const Model model = make_model(
        device, {{5000}, {5000}, {5000}, {5000}, {5000}, {5000}, {5000}, {5000}, {5000}, {9000, Placement::resident}});
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t budget : {16384U + 32768U, 16384U + 32768U + 20000U, 16384U + 32768U + 32767U}) {
        auto weights = make<OnDemand>(device, model, budget, in_order(model));
        run_pass(weights, model, stream);
        CHECK(weights.statistics().streaming);
        CHECK(weights.statistics().held_bytes <= budget);
        must(weights.try_drain());
    }
    CHECK(device.peak_used_bytes() == 16384 + 32768);
    CHECK_FALSE(OnDemand::try_create(device, model.catalog, options<OnDemand>(16384 + 32767, in_order(model))));
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("a device that is smaller than the floor is named so, however much of it is free", Weights, OnDemand,
                   compositions::Planned) {
    Device::Config config = streaming::small_config();
    config.memory_bytes = 8 * 4096;
    Device device{config};
    const Model model = make_model(device, {{9 * 4096}, {4096}});
    for (const Budget& budget : {Budget::automatic(), Budget::bytes(12 * 4096)}) {
        auto with = options<Weights>(0, in_order(model));
        with.budget = budget;
        with.reserve_bytes = 0;
        constexpr bool is_planned = std::is_same_v<Weights, compositions::Planned>;
        if constexpr (is_planned) { with.policies.pool.chunk_bytes = 4096; }
        if (!is_planned && budget != Budget::automatic()) { continue; }  // it takes memory as it comes
        const auto made = Weights::try_create(device, model.catalog, std::move(with));
        REQUIRE_FALSE(made);
        const std::string message = made.error().message();
        CAPTURE(message);
        CHECK(made.error().kind() == ErrorKind::budget);
        CHECK(message.find("the device is too small, it has 32,768 bytes (32 KiB) in all") != std::string::npos);
        CHECK(message.find("fewer residents, or a lower policies.leases_at_once") != std::string::npos);
        CHECK(message.find("give memory back") == std::string::npos);
    }
}

TEST_SUITE_END();

}  // namespace budgets_test
