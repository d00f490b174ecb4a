// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/network_simplex.hpp"

#include <doctest/doctest.h>

#include "tests/support/planning.hpp"

namespace network_simplex_test {

namespace plan = residency::plan;
using residency::testing::Dice;

namespace {

struct Arc {
    std::uint32_t from, to;
    std::int64_t capacity, cost;
};

// The same by cancelling negative cycles, from any flow that meets the supplies; −1 where there is none.
std::int64_t by_cancelling(const std::vector<std::int64_t>& supplies, const std::vector<Arc>& arcs) {
    const std::size_t nodes = supplies.size();
    std::vector<Arc> all = arcs;
    constexpr std::int64_t dear = 1000000;
    for (std::uint32_t v = 0; v < nodes; ++v) {
        const auto root = static_cast<std::uint32_t>(nodes);
        supplies[v] >= 0 ? all.push_back({v, root, 1 << 20, dear}) : all.push_back({root, v, 1 << 20, dear});
    }
    std::vector<std::int64_t> flow(all.size(), 0);
    for (std::size_t v = 0; v < nodes; ++v) { flow[arcs.size() + v] = std::abs(supplies[v]); }
    for (;;) {
        std::vector<std::int64_t> distance(nodes + 1, 0);
        std::vector<std::int64_t> through(nodes + 1, -1);  // arc, or ~arc backwards
        std::size_t last = nodes + 1;
        for (std::size_t round = 0; round <= nodes + 1; ++round) {
            last = nodes + 1;
            for (std::size_t a = 0; a < all.size(); ++a) {
                if (flow[a] < all[a].capacity && distance[all[a].from] + all[a].cost < distance[all[a].to]) {
                    distance[all[a].to] = distance[all[a].from] + all[a].cost;
                    through[all[a].to] = static_cast<std::int64_t>(a);
                    last = all[a].to;
                }
                if (flow[a] > 0 && distance[all[a].to] - all[a].cost < distance[all[a].from]) {
                    distance[all[a].from] = distance[all[a].to] - all[a].cost;
                    through[all[a].from] = ~static_cast<std::int64_t>(a);
                    last = all[a].from;
                }
            }
            if (last > nodes) { break; }
        }
        if (last > nodes) { break; }
        const auto back = [&](std::size_t v) {
            return through[v] >= 0 ? all[static_cast<std::size_t>(through[v])].from
                                   : all[static_cast<std::size_t>(~through[v])].to;
        };
        std::size_t v = last;
        for (std::size_t k = 0; k <= nodes; ++k) { v = back(v); }
        std::int64_t most = INT64_MAX;
        std::size_t u = v;
        do {
            const std::int64_t a = through[u];
            most = std::min(most, a >= 0 ? all[static_cast<std::size_t>(a)].capacity - flow[static_cast<std::size_t>(a)]
                                         : flow[static_cast<std::size_t>(~a)]);
            u = back(u);
        } while (u != v);
        do {
            const std::int64_t a = through[u];
            (a >= 0 ? flow[static_cast<std::size_t>(a)] : flow[static_cast<std::size_t>(~a)]) += a >= 0 ? most : -most;
            u = back(u);
        } while (u != v);
    }
    std::int64_t cost = 0;
    for (std::size_t a = 0; a < all.size(); ++a) {
        if (a >= arcs.size() && flow[a] != 0) { return -1; }
        cost += flow[a] * all[a].cost;
    }
    return cost;
}

}  // namespace

TEST_CASE("the network simplex method finds the least cost, again after the costs have changed") {
    int possible = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const std::uint32_t nodes = dice(2, 9);
        std::vector<std::int64_t> supplies(nodes, 0);
        for (std::uint32_t k = 0; k < nodes; ++k) {
            const std::int64_t x = dice(0, 9);
            supplies[dice(0, nodes - 1)] += x;
            supplies[dice(0, nodes - 1)] -= x;
        }
        std::vector<Arc> arcs;
        plan::NetworkSimplex simplex{supplies};
        for (std::uint32_t a = dice(nodes, 4 * nodes); a > 0; --a) {
            arcs.push_back({dice(0, nodes - 1), dice(0, nodes - 1), dice(0, 20), dice(0, 9)});
            simplex.add_arc(arcs.back().from, arcs.back().to, arcs.back().capacity, arcs.back().cost);
        }
        for (int round = 0; round < 3; ++round) {
            CAPTURE(round);
            const std::int64_t expected = by_cancelling(supplies, arcs);
            REQUIRE(simplex.solve() == (expected >= 0));
            if (expected < 0) { break; }
            ++possible;
            std::int64_t cost = 0;
            std::vector<std::int64_t> left = supplies;
            for (std::uint32_t a = 0; a < arcs.size(); ++a) {
                CHECK(simplex.flow(a) >= 0);
                CHECK(simplex.flow(a) <= arcs[a].capacity);
                cost += simplex.flow(a) * arcs[a].cost;
                left[arcs[a].from] -= simplex.flow(a);
                left[arcs[a].to] += simplex.flow(a);
            }
            CHECK(cost == expected);
            for (const std::int64_t x : left) { CHECK(x == 0); }
            for (std::uint32_t a = 0; a < arcs.size(); ++a) { simplex.set_cost(a, arcs[a].cost = dice(0, 9)); }
        }
    }
    CHECK(possible > 100);
}

}  // namespace network_simplex_test
