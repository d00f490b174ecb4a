// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/schedule_builder.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "residency/model/catalog_builder.hpp"

namespace schedule_builder_test {

using namespace residency;
using namespace std::chrono_literals;

namespace {

Catalog model() {
    CatalogBuilder builder;
    builder.add("a", dtype::u8, {10});
    builder.add("b", dtype::u8, {20});
    builder.tie("a again", "a");
    builder.add("c", dtype::u8, {30});
    return *builder.try_build();
}

}  // namespace

TEST_CASE("steps are declared by ids, by names, and by ranges of them") {
    const Catalog catalog = model();
    const std::vector<WeightId> ids{WeightId{1}, WeightId{3}};
    const std::vector<std::string> texts{"c", "a"};
    const std::vector<std::string_view> names{texts.begin(), texts.end()};
    const auto schedule = ScheduleBuilder{catalog}
                              .step({"a", "b"}, 5us, "first")
                              .step({WeightId{0}})
                              .step(std::span<const WeightId>{ids}, 0ns)
                              .step(std::span<const std::string_view>{names})
                              .step(std::span<const WeightId>{}, 1ms, "no weights")
                              .try_build();
    REQUIRE(schedule);
    REQUIRE(schedule->size() == 5);
    const auto weights = [&](std::uint32_t step) {
        const auto view = (*schedule)[step].weights;
        return std::vector<WeightId>{view.begin(), view.end()};
    };
    CHECK(weights(0) == std::vector{WeightId{0}, WeightId{1}});
    CHECK(weights(1) == std::vector{WeightId{0}});
    CHECK(weights(2) == ids);
    CHECK(weights(3) == std::vector{WeightId{3}, WeightId{0}});
    CHECK(weights(4).empty());
    CHECK((*schedule)[0].compute == 5us);
    CHECK_FALSE((*schedule)[1].compute.has_value());
    CHECK((*schedule)[2].compute == 0ns);
    CHECK((*schedule)[0].name == "first");
    CHECK((*schedule)[1].name.empty());
    CHECK((*schedule)[4].name == "no weights");
    CHECK(schedule->is_cyclic());
}

TEST_CASE("a step without weights takes a time") {
    CHECK(ScheduleBuilder{model()}
              .step({"a"})
              .step(std::span<const WeightId>{}, std::nullopt, "x")
              .try_build()
              .error()
              .message() ==
          "step 1 (\"x\"): it has no weights and no time; leave it out, or give what it reads or takes");
    // What an earlier step keeps alive is there.
    CHECK(
        ScheduleBuilder{model()}.step({"a"}).live_until(WeightId{0}, 1).step(std::span<const WeightId>{}).try_build());
    const Schedule schedule =
        *ScheduleBuilder{model()}.step({"a"}, 1ns).step(std::span<const WeightId>{}, 2ns).try_build();
    CHECK(schedule.try_with_compute({std::nullopt, 3ns}));
    CHECK(schedule.try_with_compute({1ns, std::nullopt}).error().message() ==
          "step 1: it has no weights, so give the time that it takes");
    CHECK(Schedule::try_recorded(model(), {{{WeightId{0}}, {}, {}}, {{}, {}, {}}, {{}, 1ns, {}}})->size() == 2);
}

TEST_CASE("a weight named twice in a step counts once, and tied weights are one storage") {
    const auto schedule = ScheduleBuilder{model()}
                              .step({"a", "b", "a"})
                              .step({"a again", "b", "a"})
                              .step({"a"})
                              .try_build(Cycle::one_shot);
    REQUIRE(schedule);
    CHECK((*schedule)[0].weights.size() == 2);
    CHECK((*schedule)[1].weights.size() == 3);
    const auto storages = schedule->storages(1);
    CHECK(std::vector<StorageId>{storages.begin(), storages.end()} == std::vector{StorageId{0}, StorageId{1}});
    CHECK(schedule->storages(2).size() == 1);
    CHECK(schedule->cycle() == Cycle::one_shot);
}

TEST_CASE("C2: what the catalog lacks is refused, naming it and the step") {
    ScheduleBuilder builder{model()};
    SUBCASE("a name") {
        const auto refused = builder.step({"a"}).step({"b", "layer.9"}).step({"later"}).try_build();
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind() == ErrorKind::mismatch);
        CHECK(refused.error().message() == "step 1: the catalog has no weight \"layer.9\"");
    }
    SUBCASE("a name in a named step") {
        const auto refused = builder.step({"x"}, 1us, "attention").try_build();
        CHECK(refused.error().message() == "step 0 (\"attention\"): the catalog has no weight \"x\"");
    }
    SUBCASE("an id") {
        const auto refused = builder.step({"a"}).step({WeightId{4}}).try_build();
        CHECK(refused.error().kind() == ErrorKind::mismatch);
        CHECK(refused.error().message() == "step 1: the catalog of 4 weights has no weight 4");
    }
    SUBCASE("an id that no catalog has") {
        CHECK_FALSE(builder.step({no_weight}).status().has_value());
        CHECK_FALSE(builder.try_build().has_value());
    }
    SUBCASE("a negative duration") {
        CHECK(builder.step({"a"}, -1ns).try_build().error().message() == "step 0: a negative duration");
    }
    SUBCASE("no steps") { CHECK(builder.try_build().error().message() == "a schedule takes at least one step"); }
    SUBCASE("any step on an empty catalog") {
        CHECK_FALSE(ScheduleBuilder{Catalog{}}.step({"a"}).try_build().has_value());
    }
}

TEST_CASE("the builder keeps its steps, and the first error") {
    ScheduleBuilder builder{model()};
    const auto first = builder.step({"a"}).live_until(WeightId{0}, 1).step({"b"}).try_build();
    REQUIRE(first);
    const auto again = builder.try_build();
    REQUIRE(again);
    CHECK(*again == *first);
    CHECK(builder.try_build(Cycle::one_shot)->cycle() == Cycle::one_shot);
    const auto longer = builder.step({"c"}).try_build();
    REQUIRE(longer);
    CHECK(longer->size() == 3);
    CHECK(first->size() == 2);
    const auto refused = builder.step({"x"}).try_build();
    REQUIRE_FALSE(refused);
    const auto refused_again = builder.step({"a"}).try_build();
    REQUIRE_FALSE(refused_again);
    CHECK(refused_again.error().message() == refused.error().message());
}

TEST_CASE("a weight of a step is live until a later one") {
    const Catalog catalog = model();
    const WeightId a{0}, b{1}, c{3};
    ScheduleBuilder builder{catalog};
    builder.step({a}).live_until(a, 2).step({b}).step({a, c}).step({c});
    const auto schedule = builder.try_build();
    REQUIRE_MESSAGE(schedule.has_value(), schedule.error().message());
    const auto weights = [&](std::uint32_t step) {
        return std::vector<WeightId>{(*schedule)[step].weights.begin(), (*schedule)[step].weights.end()};
    };
    CHECK(weights(0) == std::vector{a});
    CHECK(weights(1) == std::vector{b, a});
    CHECK(weights(2) == std::vector{a, c});  // once
    CHECK(weights(3) == std::vector{c});

    // Until its own step is what it is anyway.
    CHECK(*ScheduleBuilder{catalog}.step({a}).live_until(a, 0).step({b}).try_build() ==
          *ScheduleBuilder{catalog}.step({a}).step({b}).try_build());

    const auto refused = [&](auto&& change) {
        ScheduleBuilder of{catalog};
        of.step({a}).step({b});
        change(of);
        const auto built = of.try_build();
        REQUIRE_FALSE(built);
        return built.error().message();
    };
    CHECK(refused([&](ScheduleBuilder& of) { of.live_until(a, 1); }) ==
          "live_until: the last step added does not read \"a\"");
    CHECK(refused([&](ScheduleBuilder& of) { of.live_until(b, 0); }) ==
          "live_until: \"b\" of step 1 cannot be live until step 0");
    CHECK(refused([&](ScheduleBuilder& of) { of.live_until(b, 2); }) ==
          "live_until: \"b\" is live until step 2 of a schedule of 2 steps, which are counted from 0: name a step "
          "before its end");
    CHECK(refused([&](ScheduleBuilder& of) { of.live_until(WeightId{9}, 2); }) ==
          "live_until: the catalog of 4 weights has no weight 9");
    CHECK(*builder.try_build() == *schedule);
}

}  // namespace schedule_builder_test
