// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/step_progress.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

using residency::Status;
using residency::core::Point;
using residency::core::ReaderId;
using residency::core::StepProgress;

namespace {

/// Streams with points, and what the copy stream was told to wait for.
struct Executor {
    std::vector<Point> points;
    std::vector<std::pair<ReaderId, Point>> followed;

    [[nodiscard]] std::size_t readers() const { return points.size(); }
    [[nodiscard]] Point last_point(ReaderId id) const { return points[id]; }
    [[nodiscard]] Status follow(ReaderId id, Point point) {
        followed.emplace_back(id, point);
        return {};
    }
    [[nodiscard]] std::vector<Point> ends_of(const StepProgress& progress, std::uint64_t step) {
        followed.clear();
        REQUIRE(progress.follow_end(*this, step));
        std::vector<Point> result;
        for (const auto& [id, point] : followed) { result.push_back(point); }
        return result;
    }
};
using Points = std::vector<Point>;

}  // namespace

TEST_CASE("steps end in order, none while a lease of it or of one before is open") {
    Executor executor{{0}, {}};
    StepProgress progress{4, 1};
    CHECK(progress.window() == 8);
    progress.open_lease(0);
    progress.open_lease(1);
    CHECK(progress.open_leases() == 2);
    progress.reach(2);
    progress.advance(executor);
    CHECK(progress.ended() == 0);
    executor.points = {3};
    progress.close_lease(1);
    progress.advance(executor);
    CHECK(progress.ended() == 0);
    executor.points = {5};
    progress.close_lease(0);
    progress.advance(executor);
    CHECK(progress.ended() == 2);
    CHECK(executor.ends_of(progress, 0) == Points{5});
    CHECK(executor.ends_of(progress, 1) == Points{5});
    progress.reach(1);
    CHECK(progress.current() == 2);
}

TEST_CASE("the ends of the last two passes are told apart") {
    Executor executor{{0}, {}};
    StepProgress progress{3, 1};
    for (std::uint64_t step = 0; step < 20; ++step) {
        executor.points = {10 + step};
        progress.reach(step + 1);
        progress.advance(executor);
        for (std::uint64_t back = 0; back < 6 && back <= step; ++back) {
            CHECK(executor.ends_of(progress, step - back) == Points{10 + step - back});
        }
    }
}

TEST_CASE("a reader that comes later counts from where it is; forgotten readers count no more") {
    Executor executor{{7}, {}};
    StepProgress progress{2, 1};
    progress.reach(1);
    progress.advance(executor);
    CHECK(executor.ends_of(progress, 0) == Points{7});
    executor.points = {8, 2};
    progress.reach(2);
    progress.advance(executor);
    CHECK(executor.ends_of(progress, 0) == Points{7, 2});
    CHECK(executor.ends_of(progress, 1) == Points{8, 2});
    progress.forget_readers();
    CHECK(executor.ends_of(progress, 1).empty());
    progress.go_to(8, 8);
    CHECK(progress.current() == 8);
    CHECK(progress.ended() == 8);
}
