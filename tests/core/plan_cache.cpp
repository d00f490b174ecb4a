// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Which plans are known.
#include "residency/core/planned/plan_factory.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/streaming.hpp"

namespace plan_cache_test {

using namespace streaming;
using residency::core::PlanCache;
using residency::plan::Plan;
using residency::plan::PlanData;
using Image = std::vector<std::uint64_t>;

namespace {

Plan plan_of(const Image& image, std::uint64_t held) {
    PlanData data;
    data.storage_offsets = image;
    data.held_bytes = held;
    return Plan{std::move(data)};
}
PlanCache::Entry entry(PlanCache::Key key, const Image& before, const Image& image, std::uint64_t held) {
    return {std::move(key), before, plan_of(image, held), std::make_shared<std::vector<residency::StepRange>>()};
}

}  // namespace

TEST_SUITE_BEGIN("plan cache");

TEST_CASE("a plan is known by schedule, times, budget and capture, whoever holds the schedule") {
    Device device{small_config()};
    const Model model = uniform_model(device, 3, 4096);
    const auto schedule = in_order(model);
    const auto timed = must(schedule.try_with_compute(
        {std::chrono::microseconds{1}, std::chrono::microseconds{1}, std::chrono::microseconds{1}}));
    const Image image{0, 4096, 8192};
    PlanCache cache;
    CHECK(cache.find({schedule, 100, false}, image, false, {}) == nullptr);
    cache.add(entry({schedule, 100, false}, {}, image, 1));
    cache.add(entry({schedule, 100, true}, {}, image, 2));
    cache.add(entry({timed, 100, false}, {}, image, 3));
    const auto held = [&](const PlanCache::Key& key) {
        const auto* found = cache.find(key, image, true, {});
        return found == nullptr ? 0 : found->plan.held_bytes();
    };
    CHECK(held({in_order(model), 100, false}) == 1);
    CHECK(held({schedule, 100, true}) == 2);
    CHECK(held({timed, 100, false}) == 3);
    CHECK(held({timed, 100, true}) == 0);
    CHECK(held({schedule, 101, false}) == 0);
    cache.add(entry({schedule, 101, false}, {}, image, 4));
    CHECK(held({schedule, 100, false}) == 1);
    CHECK(held({schedule, 101, false}) == 4);
}

TEST_CASE("a plan of another image is known only if it was made beside this one, and not under leases") {
    Device device{small_config()};
    const Model model = uniform_model(device, 2, 4096);
    const auto schedule = in_order(model);
    const Image a{0, 4096}, b{4096, 0}, c{0, 8192};
    PlanCache cache;
    cache.add(entry({schedule, 100, false}, a, b, 1));
    CHECK(cache.find({schedule, 100, false}, a, false, {}) != nullptr);
    CHECK(cache.find({schedule, 100, false}, a, true, {}) == nullptr);
    CHECK(cache.find({schedule, 100, false}, b, false, {}) != nullptr);
    CHECK(cache.find({schedule, 100, false}, b, true, {}) != nullptr);
    CHECK(cache.find({schedule, 100, false}, c, false, {}) == nullptr);
    CHECK(cache.find({schedule, 100, false}, {}, false, {}) == nullptr);
}

TEST_CASE("the plan that was wanted least recently goes") {
    Device device{small_config()};
    const Model model = uniform_model(device, 1, 4096);
    const auto schedule = in_order(model);
    const Image image{0};
    PlanCache cache;
    for (std::uint64_t budget = 0; budget < PlanCache::most_plans; ++budget) {
        cache.add(entry({schedule, budget, false}, {}, image, budget));
    }
    REQUIRE(cache.find({schedule, 0, false}, image, false, {}) != nullptr);
    cache.add(entry({schedule, 1000, false}, {}, image, 1000));
    CHECK(cache.find({schedule, 0, false}, image, false, {}) != nullptr);
    CHECK(cache.find({schedule, 1, false}, image, false, {}) == nullptr);
    CHECK(cache.find({schedule, 2, false}, image, false, {}) != nullptr);
    CHECK(cache.find({schedule, 1000, false}, image, false, {}) != nullptr);
}

TEST_SUITE_END();

}  // namespace plan_cache_test
