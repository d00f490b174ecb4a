// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/step_retirement.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

using residency::Status;
using residency::core::ConsumerId;
using residency::core::EventPoint;
using residency::core::StepRetirement;

namespace {

/// Streams with points, and what the copy stream was told to wait for.
struct CopyScheduler {
    std::vector<EventPoint> points;
    std::vector<std::pair<ConsumerId, EventPoint>> waits;

    [[nodiscard]] std::size_t consumers() const { return points.size(); }
    [[nodiscard]] EventPoint last_point(ConsumerId id) const { return points[id]; }
    [[nodiscard]] Status copy_stream_wait(ConsumerId id, EventPoint point) {
        waits.emplace_back(id, point);
        return {};
    }
    [[nodiscard]] std::vector<EventPoint> ends_of(const StepRetirement& progress, std::uint64_t step) {
        waits.clear();
        REQUIRE(progress.copy_stream_wait_for_end(*this, step));
        std::vector<EventPoint> result;
        for (const auto& [id, point] : waits) { result.push_back(point); }
        return result;
    }
};
using Points = std::vector<EventPoint>;

}  // namespace

TEST_CASE("steps end in order, none while a lease of it or of one before is open") {
    CopyScheduler copy_scheduler{{0}, {}};
    StepRetirement progress{4, 1};
    CHECK(progress.window() == 8);
    progress.open_lease(0);
    progress.open_lease(1);
    CHECK(progress.open_leases() == 2);
    progress.reach(2);
    progress.advance(copy_scheduler);
    CHECK(progress.ended() == 0);
    copy_scheduler.points = {3};
    progress.close_lease(1);
    progress.advance(copy_scheduler);
    CHECK(progress.ended() == 0);
    copy_scheduler.points = {5};
    progress.close_lease(0);
    progress.advance(copy_scheduler);
    CHECK(progress.ended() == 2);
    CHECK(copy_scheduler.ends_of(progress, 0) == Points{5});
    CHECK(copy_scheduler.ends_of(progress, 1) == Points{5});
    progress.reach(1);
    CHECK(progress.current() == 2);
}

TEST_CASE("the ends of the last two passes are told apart") {
    CopyScheduler copy_scheduler{{0}, {}};
    StepRetirement progress{3, 1};
    for (std::uint64_t step = 0; step < 20; ++step) {
        copy_scheduler.points = {10 + step};
        progress.reach(step + 1);
        progress.advance(copy_scheduler);
        for (std::uint64_t back = 0; back < 6 && back <= step; ++back) {
            CHECK(copy_scheduler.ends_of(progress, step - back) == Points{10 + step - back});
        }
    }
}

TEST_CASE("a reader that comes later counts from where it is; forgotten readers count no more") {
    CopyScheduler copy_scheduler{{7}, {}};
    StepRetirement progress{2, 1};
    progress.reach(1);
    progress.advance(copy_scheduler);
    CHECK(copy_scheduler.ends_of(progress, 0) == Points{7});
    copy_scheduler.points = {8, 2};
    progress.reach(2);
    progress.advance(copy_scheduler);
    CHECK(copy_scheduler.ends_of(progress, 0) == Points{7, 2});
    CHECK(copy_scheduler.ends_of(progress, 1) == Points{8, 2});
    progress.forget_consumers();
    CHECK(copy_scheduler.ends_of(progress, 1).empty());
    progress.go_to(8, 8);
    CHECK(progress.current() == 8);
    CHECK(progress.ended() == 8);
}
