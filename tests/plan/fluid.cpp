// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/fluid.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "residency/plan/bounds.hpp"
#include "tests/support/planning.hpp"

namespace fluid_test {

namespace plan = residency::plan;
using residency::testing::Dice;

namespace {

struct Flow {
    std::vector<double> bytes, compute;
    double total_bytes = 0, total_compute = 0;
};

/// P = 1 byte a second.
Flow random_flow(Dice& dice) {
    Flow flow;
    const std::uint32_t n = dice(2, 14);
    const double ratio = 0.02 + 2 * dice.real();
    for (std::uint32_t i = 0; i < n; ++i) {
        flow.bytes.push_back(dice(0, 5) == 0 ? 0 : dice(1, 100));
        flow.compute.push_back(dice(0, 5) == 0 ? 0 : ratio * dice(1, 100));
    }
    flow.total_bytes = std::accumulate(flow.bytes.begin(), flow.bytes.end(), 0.0);
    flow.total_compute = std::accumulate(flow.compute.begin(), flow.compute.end(), 0.0);
    return flow;
}

/// Whether r bytes of each step pass through the ring in a period: a window's bytes beyond the ring are copied between the end of its
/// first step and the start of its last, one lap after the other.
bool passes(const Flow& flow, const std::vector<double>& r, double ring, double period) {
    const std::size_t n = r.size();
    const double slack = 1e-7 * (period + 1);
    if (std::any_of(r.begin(), r.end(), [&](double x) { return x > ring + slack; })) { return false; }
    if (std::accumulate(r.begin(), r.end(), 0.0) > period + slack) { return false; }
    std::vector<double> start(n, 0.0);
    for (std::size_t round = 0; round <= n + 1; ++round) {
        bool changed = false;
        for (std::size_t a = 0; a < n; ++a) {
            double window = r[a];
            for (std::size_t b = a + 1; b <= a + 3 * n; ++b) {
                window += r[b % n];
                if (b != a + 1 && window <= ring) { continue; }
                const double x =
                    start[a] + flow.compute[a] + std::max(0.0, window - ring) - static_cast<double>(b / n) * period;
                if (x > start[b % n] + slack) {
                    start[b % n] = x;
                    changed = true;
                }
            }
        }
        if (!changed) { return true; }
    }
    return false;
}

}  // namespace

TEST_CASE("without a stall no step can stream more") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const Flow flow = random_flow(dice);
        const double ring = 1 + dice.real() * flow.total_bytes;
        plan::Fluid fluid{flow.bytes, flow.compute, 1};
        const double most = fluid.without_stall(ring);
        std::vector<double> r = fluid.stream();
        CHECK(most == doctest::Approx(std::accumulate(r.begin(), r.end(), 0.0)));
        CHECK(most <= flow.total_compute + ring + 1e-6);
        CHECK(passes(flow, r, ring, flow.total_compute));
        for (std::size_t i = 0; i < r.size(); ++i) {
            CHECK(r[i] >= 0);
            CHECK(r[i] <= flow.bytes[i] + 1e-9);
            if (r[i] > flow.bytes[i] - 0.01) { continue; }
            r[i] += 0.01;
            CHECK_FALSE(passes(flow, r, ring, flow.total_compute));
            r[i] -= 0.01;
        }
    }
}

TEST_CASE("what it streams is the deficit and the ring, in the time that it says, and no faster than the bound") {
    int solved = 0, stalled = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const Flow flow = random_flow(dice);
        const double deficit = flow.total_bytes * dice.real() * 0.9, ring = flow.total_bytes * dice.real();
        plan::Fluid fluid{flow.bytes, flow.compute, 1};
        const bool found = fluid.solve(ring, deficit);
        if (deficit + ring > flow.total_bytes * (1 + 1e-9)) { CHECK_FALSE(found); }
        if (!found) { continue; }
        ++solved;
        stalled += fluid.seconds() > flow.total_compute ? 1 : 0;
        const std::vector<double>& r = fluid.stream();
        CHECK(std::accumulate(r.begin(), r.end(), 0.0) == doctest::Approx(deficit + ring));
        for (std::size_t i = 0; i < r.size(); ++i) {
            CHECK(r[i] >= 0);
            CHECK(r[i] <= std::min(ring, flow.bytes[i]) * (1 + 1e-9) + 1e-9);
        }
        CHECK(passes(flow, r, ring, fluid.seconds()));
        plan::SingleUseBound bound{flow.bytes, flow.compute, flow.total_bytes - deficit};
        CHECK(fluid.seconds() >= bound.solve() * (1 - 1e-9));
    }
    CHECK(solved > 50);
    CHECK(stalled > 20);
}

TEST_CASE("the best ring of a search comes to the bound") {
    int cases = 0, met = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        Dice dice{seed};
        const Flow flow = random_flow(dice);
        const double deficit = flow.total_bytes * (0.05 + dice.real() * 0.7);
        const double bound = plan::SingleUseBound{flow.bytes, flow.compute, flow.total_bytes - deficit}.solve();
        plan::Fluid fluid{flow.bytes, flow.compute, 1};
        double best = 1e300;
        for (int k = 1; k <= 1000; ++k) {
            if (fluid.solve(k * 1e-3 * (flow.total_bytes - deficit), deficit)) {
                best = std::min(best, fluid.seconds());
            }
        }
        if (best > 1e299) { continue; }
        ++cases;
        met += best <= bound * 1.005 ? 1 : 0;
    }
    CHECK(cases >= 60);
    CHECK(met >= cases * 9 / 10);
}

}  // namespace fluid_test
