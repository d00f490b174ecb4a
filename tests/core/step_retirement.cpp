// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/step_retirement.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace step_retirement_test {

using residency::Status;
using residency::core::ConsumerId;
using residency::core::EventPoint;
using residency::core::StepRetirement;

namespace {

/// Stands in for the copy scheduler: the last point of each consumer, and the waits of the copy stream.
struct CopyScheduler {
    std::vector<EventPoint> points;
    std::vector<std::pair<ConsumerId, EventPoint>> waits;

    [[nodiscard]] std::size_t consumers() const { return points.size(); }
    [[nodiscard]] EventPoint last_point(ConsumerId id) const { return points[id]; }
    [[nodiscard]] Status copy_stream_wait(ConsumerId id, EventPoint point) {
        waits.emplace_back(id, point);
        return {};
    }
    [[nodiscard]] std::vector<EventPoint> ends_of(const StepRetirement& steps, std::uint64_t step) {
        waits.clear();
        REQUIRE(steps.copy_stream_wait_for_end(*this, step));
        std::vector<EventPoint> result;
        for (const auto& [id, point] : waits) { result.push_back(point); }
        return result;
    }
};
using Points = std::vector<EventPoint>;

}  // namespace

TEST_CASE("steps end in order, and not while a lease of them or of an earlier step is open") {
    CopyScheduler copy_scheduler{{0}, {}};
    StepRetirement steps{4, 1};
    CHECK(steps.window() == 8);
    steps.open_lease(0);
    steps.open_lease(1);
    CHECK(steps.open_leases() == 2);
    steps.reach(2);
    steps.advance(copy_scheduler);
    CHECK(steps.ended() == 0);
    copy_scheduler.points = {3};
    steps.close_lease(1);
    steps.advance(copy_scheduler);
    CHECK(steps.ended() == 0);
    copy_scheduler.points = {5};
    steps.close_lease(0);
    steps.advance(copy_scheduler);
    CHECK(steps.ended() == 2);
    CHECK(copy_scheduler.ends_of(steps, 0) == Points{5});
    CHECK(copy_scheduler.ends_of(steps, 1) == Points{5});
    steps.reach(1);
    CHECK(steps.current() == 2);
}

TEST_CASE("the ends of the last two passes are told apart") {
    CopyScheduler copy_scheduler{{0}, {}};
    StepRetirement steps{3, 1};
    for (std::uint64_t step = 0; step < 20; ++step) {
        copy_scheduler.points = {10 + step};
        steps.reach(step + 1);
        steps.advance(copy_scheduler);
        for (std::uint64_t back = 0; back < 6 && back <= step; ++back) {
            CHECK(copy_scheduler.ends_of(steps, step - back) == Points{10 + step - back});
        }
    }
}

TEST_CASE(
    "a consumer that is added later is waited for at its point of that time; forgotten consumers are not waited for") {
    CopyScheduler copy_scheduler{{7}, {}};
    StepRetirement steps{2, 1};
    steps.reach(1);
    steps.advance(copy_scheduler);
    CHECK(copy_scheduler.ends_of(steps, 0) == Points{7});
    copy_scheduler.points = {8, 2};
    steps.reach(2);
    steps.advance(copy_scheduler);
    CHECK(copy_scheduler.ends_of(steps, 0) == Points{7, 2});
    CHECK(copy_scheduler.ends_of(steps, 1) == Points{8, 2});
    steps.forget_consumers();
    CHECK(copy_scheduler.ends_of(steps, 1).empty());
    steps.go_to(8, 8);
    CHECK(steps.current() == 8);
    CHECK(steps.ended() == 8);
}

}  // namespace step_retirement_test
