// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/schedule.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/model/sample_schedule.hpp"

namespace schedule_test {

using namespace residency;
using namespace std::chrono_literals;

static_assert(std::regular<Schedule>);
static_assert(std::is_nothrow_copy_constructible_v<Schedule>);

namespace {

using sample_schedule::model;
using sample_schedule::parts;
using sample_schedule::sample;
}  // namespace

TEST_CASE("an empty schedule") {
    const Schedule none;
    CHECK(none.empty());
    CHECK(none.size() == 0);
    CHECK(none.begin() == none.end());
    CHECK(none.catalog_hash() == 0);
    CHECK(none == Schedule{});
    CHECK(none != sample(model()));
    CHECK(none.try_with_compute({})->empty());
}

TEST_CASE("steps can be walked, and outlive the handle they came from") {
    const Catalog catalog = model();
    Schedule copy;
    {
        const Schedule schedule = sample(catalog);
        copy = schedule;
    }
    CHECK(copy.catalog_hash() == catalog.hash());
    CHECK(copy.storage_count() == 5);
    std::uint32_t position = 0;
    std::string names;
    for (const auto& step : copy) {
        CHECK(step.position == position++);
        names += step.name;
        names += ',';
    }
    CHECK(names == "in,,mid,,");
    CHECK(copy.storages(3).size() == 1);
}

TEST_CASE("equality is that of the contents") {
    const Catalog catalog = model();
    const auto build = [&](std::string_view first, ScheduleBuilder::Compute compute, std::string_view name,
                           Cycle cycle) {
        return *ScheduleBuilder{catalog}.step({first}, compute, name).try_build(cycle);
    };
    const Schedule base = build("embed", 1ns, "x", Cycle::cyclic);
    CHECK(base == build("embed", 1ns, "x", Cycle::cyclic));
    CHECK(base != build("head", 1ns, "x", Cycle::cyclic));
    CHECK(base != build("embed", 2ns, "x", Cycle::cyclic));
    CHECK(base != build("embed", std::nullopt, "x", Cycle::cyclic));
    CHECK(base != build("embed", 1ns, "y", Cycle::cyclic));
    CHECK(base != build("embed", 1ns, "x", Cycle::one_shot));
    CatalogBuilder other = parts();
    other.add("more", dtype::u8, {1});
    CHECK(base != *ScheduleBuilder{*other.try_build()}.step({"embed"}, 1ns, "x").try_build());
}

TEST_CASE("durations can be replaced, and forgotten") {
    const Schedule schedule = sample(model());
    const std::array<std::optional<std::chrono::nanoseconds>, 4> compute{1ns, 2ns, std::nullopt, 4ns};
    const auto timed = schedule.try_with_compute(compute);
    REQUIRE(timed);
    for (std::uint32_t i = 0; i < 4; ++i) {
        CHECK((*timed)[i].compute == compute[i]);
        CHECK((*timed)[i].name == schedule[i].name);
        CHECK((*timed)[i].weights.size() == schedule[i].weights.size());
        CHECK((*timed)[i].storages.size() == schedule[i].storages.size());
    }
    CHECK_FALSE(schedule[1].compute.has_value());
    CHECK(schedule.try_with_compute(std::span{compute}.first(3)).error().message() ==
          "3 durations for a schedule of 4 steps");
    const std::array<std::optional<std::chrono::nanoseconds>, 4> negative{1ns, 2ns, -3ns, 4ns};
    CHECK(schedule.try_with_compute(negative).error().message() == "step 2: a negative duration");
}

TEST_CASE("a run's record becomes a schedule") {
    const Catalog catalog = model();
    const std::vector<StepRecord> records{{{WeightId{0}, WeightId{0}}, 10us, "in"},
                                          {{WeightId{1}, WeightId{2}}, std::nullopt, {}}};
    const auto schedule = Schedule::try_recorded(catalog, records, Cycle::one_shot);
    REQUIRE(schedule);
    CHECK(
        *schedule ==
        *ScheduleBuilder{catalog}.step({"embed"}, 10us, "in").step({"layer.0", "layer.1"}).try_build(Cycle::one_shot));
    const std::vector<StepRecord> bad{records[0], {{WeightId{9}}, std::nullopt, {}}};
    CHECK(Schedule::try_recorded(catalog, bad).error().message() == "step 1: the catalog of 6 weights has no weight 9");
    CHECK_FALSE(Schedule::try_recorded(catalog, {}).has_value());
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the throwing form of the builder throws what the other returns") {
    CHECK_THROWS_AS(static_cast<void>(ScheduleBuilder{model()}.build()), InvalidArgument);
}
#endif

}  // namespace schedule_test
