// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Times of ranges of steps, shared over the steps.
#include "residency/core/measure/range_times.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace range_times_test {

using residency::core::RangeTimes;
using namespace std::chrono_literals;

namespace {

RangeTimes made(std::uint32_t steps) {
    RangeTimes times;
    times.open(steps);
    return times;
}

}  // namespace

TEST_SUITE_BEGIN("range times");

TEST_CASE("C29: a range is shared in proportion to what was assumed, evenly where nothing was") {
    RangeTimes times = made(6);
    times.add({0, 3}, 600us);
    times.add({4, 6}, 50us);
    const auto by_step = times.by_step(std::vector<double>{1, 2, 3, 7});
    REQUIRE(by_step.size() == 6);
    CHECK(by_step[0] == 100us);
    CHECK(by_step[1] == 200us);
    CHECK(by_step[2] == 300us);
    CHECK_FALSE(by_step[3].has_value());
    CHECK(by_step[4] == 25us);
    CHECK(by_step[5] == 25us);
    CHECK(times.timed() == std::vector<bool>{true, true, true, false, true, true});
    CHECK(times.timed_alone() == std::vector<bool>(6, false));
}

TEST_CASE("C29: of each range the smallest time counts; a step that was timed alone has its own") {
    RangeTimes times = made(3);
    times.add({1, 2}, 9us);
    times.add({0, 3}, 30us);
    times.add({1, 2}, 10us);
    times.add({0, 3}, 28us);
    const auto by_step = times.by_step(std::vector<double>{1, 1, 1});
    CHECK(by_step[1] == 9us);
    CHECK(static_cast<double>(by_step[0]->count()) == doctest::Approx(9500).epsilon(0.01));
    CHECK(by_step[2] == by_step[0]);
    CHECK(times.timed_alone() == std::vector<bool>{false, true, false});
}

TEST_CASE("C29: ranges that overlap tell their steps apart") {
    // Times 10, 20, 30, 40; assumed to be equal.
    RangeTimes times = made(4);
    times.add({0, 2}, 30us);
    times.add({1, 3}, 50us);
    times.add({2, 4}, 70us);
    times.add({0, 1}, 10us);
    const auto by_step = times.by_step(std::vector<double>(4, 1.0));
    for (std::uint32_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        CHECK(static_cast<double>(by_step[i]->count()) == doctest::Approx(10000 * (i + 1)).epsilon(0.02));
    }
}

TEST_CASE("ranges beyond four for each step are not kept") {
    RangeTimes times = made(3);
    for (std::uint32_t i = 0; i < 12; ++i) { times.add({0, 1 + i % 3}, 10us); }
    times.add({1, 3}, 20us);
    times.add({1, 2}, 20us);
    times.add({2, 3}, 20us);
    CHECK(times.timed() == std::vector<bool>(3, true));
    RangeTimes one = made(1);
    for (int i = 0; i < 10; ++i) { one.add({0, 1}, std::chrono::microseconds{20 - i}); }
    CHECK(one.by_step({})[0] == 11us);
}

TEST_SUITE_END();

}  // namespace range_times_test
