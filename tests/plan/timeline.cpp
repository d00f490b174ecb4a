// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/timeline.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/planning.hpp"

namespace timeline_test {

namespace plan = residency::plan;
using plan::Timeline;
using residency::testing::Dice;

namespace {

Timeline random_timeline(Dice& dice) {
    Timeline line;
    const std::uint32_t steps = dice(1, 12), calls = dice(1, 15);
    for (std::uint32_t i = 0; i < steps; ++i) { line.compute.push_back(dice(0, 20)); }
    for (std::uint32_t k = 0; k < calls; ++k) {
        Timeline::Call call;
        call.seconds = dice(1, 20);
        call.needed_by = k * steps / calls;
        const std::uint32_t step = dice(0, steps - 1);
        call.wait_step = step;
        call.wait_previous = step >= call.needed_by || dice(0, 1) == 0;
        line.calls.push_back(call);
    }
    return line;
}

// The greatest cycle mean by running very many passes.
double long_run(const Timeline& line, int passes) {
    std::vector<double> before(line.compute.size(), 0.0), now(before);
    double link = 0, compute = 0, half = 0;
    for (int pass = 0; pass < passes; ++pass) {
        std::size_t k = 0;
        for (std::size_t i = 0; i < line.compute.size(); ++i) {
            for (; k < line.calls.size() && line.calls[k].needed_by == i; ++k) {
                const Timeline::Call& call = line.calls[k];
                link = std::max(link, call.wait_previous ? before[call.wait_step] : now[call.wait_step]) + call.seconds;
            }
            compute = std::max(compute, link) + line.compute[i];
            now[i] = compute;
        }
        before = now;
        if (pass + 1 == passes / 2) { half = std::max(link, compute); }
    }
    return (std::max(link, compute) - half) / (passes - passes / 2);
}

}  // namespace

TEST_CASE("the period is what very many passes take") {
    plan::TimelineSolver solver;
    for (std::uint64_t seed = 1; seed <= 500; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const Timeline line = random_timeline(dice);
        CHECK(solver.period(line, 1e-12) == doctest::Approx(long_run(line, 720)).epsilon(1e-9));
    }
}

TEST_CASE("the period is found where a ring drains slowly") {
    // The link falls behind by a thousandth of a step a pass; its lead hides that for a thousand passes.
    Timeline line;
    for (std::uint32_t i = 0; i < 50; ++i) {
        line.compute.push_back(1.0);
        line.calls.push_back({1.00002, i, i == 0 ? 49 : i - 1, i == 0});
        line.calls.back().wait_step = (i + 10) % 50;  // nearly a pass ago
        line.calls.back().wait_previous = true;
    }
    plan::TimelineSolver solver;
    CHECK(solver.period(line, 1e-12) == doctest::Approx(50 * 1.00002).epsilon(1e-9));
}

TEST_CASE("a search may give up on a period that is too long") {
    plan::TimelineSolver solver;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const Timeline line = random_timeline(dice);
        const double exact = solver.period(line, 1e-12);
        for (const double limit : {0.5 * exact, 0.99 * exact, 1.01 * exact}) {
            const double found = solver.period(line, 1e-12, limit);
            CHECK(found <= exact * (1 + 1e-9));
            if (limit > exact) {
                CHECK(found == doctest::Approx(exact).epsilon(1e-9));
            } else {
                CHECK(found > limit);
            }
        }
    }
}

TEST_CASE("a captured pass starts with nothing on its way and ends with all") {
    Timeline line;
    line.compute = {10, 10};
    line.calls = {{4, 0, 0, true}, {4, 1, 1, true}};
    plan::TimelineSolver solver;
    CHECK(solver.captured(line, 0) == doctest::Approx(24));  // step 0 waits for its call
    CHECK(solver.captured(line, 1) ==
          doctest::Approx(20));  // which came with the graph before; the next one follows step 0
    CHECK(solver.captured(line, 2) == doctest::Approx(24));  // the last call follows step 1
}

TEST_CASE("without calls a pass takes its compute time") {
    Timeline line;
    line.compute = {1, 2, 3};
    plan::TimelineSolver solver;
    CHECK(solver.period(line, 1e-12) == doctest::Approx(6));
    CHECK(solver.captured(line, 0) == doctest::Approx(6));
}

}  // namespace timeline_test
