// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/engine/schedule_cursor.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/support/streaming.hpp"

namespace schedule_cursor_test {

namespace {

using residency::AccessPoint;
using residency::Cycle;
using residency::ErrorKind;
using residency::Schedule;
using residency::StepIndex;
using residency::StorageId;
using residency::WeightId;
using residency::core::ScheduleCursor;
using streaming::must;

/// Six weights of their own storages; the steps read one each but the last, which reads weights 0 and 4. No step reads weight 5.
struct Scene {
    residency::Catalog catalog;
    ScheduleCursor schedule_cursor;

    Schedule schedule(std::uint32_t steps, Cycle cycle) const {
        residency::ScheduleBuilder builder{catalog};
        for (std::uint32_t i = 0; i < steps; ++i) {
            const WeightId id{i};
            builder.step(std::span{&id, 1});
        }
        const std::vector<WeightId> both{WeightId{0}, WeightId{4}};
        builder.step(std::span<const WeightId>{both});
        return must(builder.try_build(cycle));
    }
    explicit Scene(Cycle cycle = Cycle::cyclic, bool strict = false) {
        residency::CatalogBuilder builder;
        for (int i = 0; i < 6; ++i) { builder.add("w" + std::to_string(i), residency::dtype::u8, {64}); }
        catalog = must(builder.try_build());
        schedule_cursor.open(catalog, schedule(4, cycle), strict);
        schedule_cursor.begin_pass(true);
    }
    struct Looked : ScheduleCursor::Found {
        AccessPoint access;
    };
    /// Writes over what another access left.
    template <class What>
    residency::Result<Looked> find(const What& what) const {
        Looked looked{{77, true}, {77, 77, true, true, 77, true}};
        if (auto known = schedule_cursor.find(what, looked.access, looked); !known) { return known.error(); }
        return looked;
    }
    StepIndex go(std::uint32_t step) {
        const auto found = must(find(step));
        schedule_cursor.go_to({found.access.step_index, found.access.step, found.base});
        return schedule_cursor.now();
    }
    Looked look(std::vector<std::uint32_t> storages) const {
        std::vector<StorageId> ids;
        for (const std::uint32_t s : storages) { ids.push_back(StorageId{s}); }
        return must(find(ids));
    }
};

}  // namespace

TEST_CASE("steps in order are no divergence, and moments go on across passes") {
    Scene scene;
    for (int pass = 0; pass < 3; ++pass) {
        if (pass > 0) { scene.schedule_cursor.begin_pass(false); }
        for (std::uint32_t step = 0; step < 5; ++step) {
            CHECK_FALSE(must(scene.find(step)).has_diverged);
            CHECK(scene.go(step) == static_cast<StepIndex>(pass) * 5 + step);
            CHECK_FALSE(must(scene.find(step)).has_diverged);  // once more, beside the first
        }
    }
}

TEST_CASE("a step left out and a step back are divergences; time does not go back") {
    Scene scene;
    scene.go(0);
    CHECK(must(scene.find(2U)).has_diverged);
    CHECK(scene.go(2) == 2);
    CHECK(must(scene.find(1U)).has_diverged);
    CHECK(scene.go(1) == 6);
    CHECK(scene.go(2) == 7);
    const auto none = scene.find(9U);
    REQUIRE_FALSE(none);
    CHECK(none.error().kind() == ErrorKind::invalid_argument);

    Scene once{Cycle::one_shot};
    once.go(3);
    CHECK(once.go(1) == 3);
    once.schedule_cursor.begin_pass(false);
    CHECK(once.go(0) == 0);
}

TEST_CASE("storages are looked for at this step, then after it, then from the beginning") {
    Scene scene;
    CHECK(scene.look({1}).access.step == 1);
    CHECK(scene.look({1}).has_diverged);
    scene.go(0);
    CHECK(scene.look({0}).access.step == 0);
    CHECK(scene.look({1}).access.step == 1);
    CHECK_FALSE(scene.look({1}).has_diverged);
    CHECK(scene.look({1}).access.is_scheduled);
    scene.go(2);
    CHECK(scene.look({0}).access.step == 4);
    CHECK(scene.look({0, 4}).access.is_scheduled);
    CHECK_FALSE(scene.look({0, 1}).access.is_scheduled);
    CHECK(scene.look({0, 1}).has_diverged);
    scene.go(4);
    CHECK(scene.look({1}).access.step == 1);
    CHECK(scene.look({1}).access.step_index == 6);
    const auto unread = scene.look({5});
    CHECK(unread.has_diverged);
    CHECK_FALSE(unread.access.is_scheduled);
    CHECK(scene.look({}).access.step_index == scene.schedule_cursor.now());
}

TEST_CASE("where the course is strict, a divergence is an error that names what comes next") {
    Scene scene{Cycle::cyclic, true};
    scene.go(0);
    const auto step = scene.find(3U);
    REQUIRE_FALSE(step);
    CHECK(step.error().kind() == ErrorKind::divergence);
    CHECK(step.error().message() ==
          "the schedule says step 1 (w1) comes next, but step 3 (w3) was asked for: acquire in the order of the "
          "schedule, "
          "or leave Options::strict out");
    const std::vector<StorageId> unread{StorageId{5}};
    CHECK_FALSE(scene.find(unread));
    CHECK(scene.go(1) == 1);
}

TEST_CASE("another schedule begins at a moment of its own; without any, moments count acquisitions") {
    Scene scene;
    scene.go(3);
    scene.schedule_cursor.change(scene.schedule(2, Cycle::cyclic));
    CHECK(scene.schedule_cursor.position().base == 6);  // the next multiple of three
    CHECK(scene.schedule_cursor.order() != nullptr);
    CHECK(scene.schedule_cursor.first_steps()[4] == 2);
    CHECK(scene.schedule_cursor.first_steps()[3] == 0);
    scene.schedule_cursor.change({});
    CHECK(scene.schedule_cursor.order() == nullptr);
    CHECK(scene.schedule_cursor.first_steps().empty());
    const StepIndex now = scene.schedule_cursor.now();
    CHECK(scene.look({2}).access.step_index == now + 1);
    CHECK(scene.look({2}).access.step == AccessPoint::nowhere);
    CHECK_FALSE(scene.find(0U));
}

TEST_CASE(
    "storages that a later step reads together belong to that step, although the current one reads the first of them") {
    Scene scene;  // step 0 reads weight 0, step 4 reads weights 0 and 4
    scene.go(0);
    const auto both = scene.look({0, 4});
    CHECK(both.access.step == 4);
    CHECK(both.access.is_scheduled);
    CHECK(both.access.is_whole);
    CHECK_FALSE(both.access.names_steps);
    const auto one = scene.look({0});
    CHECK(one.access.step == 0);
    CHECK(one.access.is_whole);
    scene.go(4);
    const auto part = scene.look({4});
    CHECK(part.access.step == 4);
    CHECK(part.access.is_scheduled);
    CHECK_FALSE(part.access.is_whole);
    const auto neither = scene.look({4, 1});
    CHECK_FALSE(neither.access.is_scheduled);
    CHECK_FALSE(neither.access.is_whole);
    CHECK(neither.has_diverged);
}

}  // namespace schedule_cursor_test
