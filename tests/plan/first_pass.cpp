// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/first_pass.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace first_pass_test {

namespace plan = residency::plan;
using residency::testing::Dice;

namespace {

/// The end of a first pass, event by event. Before call k go the residents that its step needs and those before order[k].
double first_pass_seconds(const plan::Plan& made, const plan::Problem& problem, const std::vector<bool>& there,
                          const std::vector<std::size_t>& order) {
    const auto residents = made.residents();
    struct Arrival {
        std::uint32_t step;
        double at;
    };
    std::vector<Arrival> arrivals;
    double link = 0;
    const auto bring = [&](const plan::Copy& copy, bool& is_first) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t chunk : made.chunks_of_copy(copy)) { bytes += there[chunk] ? 0 : made.chunk_bytes(); }
        if (bytes == 0) { return; }
        link += static_cast<double>(bytes) / problem.link.bytes_per_second;
        if (std::exchange(is_first, false)) { link += problem.link.latency_seconds; }
    };
    const auto end_of = [&](std::uint32_t step) {
        double end = 0;
        for (std::uint32_t i = 0; i <= step; ++i) {
            for (const Arrival& arrival : arrivals) { end = arrival.step == i ? std::max(end, arrival.at) : end; }
            end += problem.compute(i);
        }
        return end;
    };
    std::size_t next = 0;
    const auto bring_resident = [&] {
        bool is_first = true;
        bring(residents[next], is_first);
        arrivals.push_back({residents[next++].needed_by, link});
    };
    for (std::size_t k = 0; k < made.calls().size(); ++k) {
        const plan::Call& call = made.calls()[k];
        while (next < residents.size() &&
               (residents[next].needed_by <= call.needed_by || (!order.empty() && next < order[k]))) {
            bring_resident();
        }
        if (call.wait.exists() && call.wait.pass == 0) { link = std::max(link, end_of(call.wait.step)); }
        bool is_first = true;
        for (const plan::Copy& copy : made.copies(call)) { bring(copy, is_first); }
        arrivals.push_back({call.needed_by, link});
    }
    while (next < residents.size()) { bring_resident(); }
    return end_of(made.steps() - 1);
}

std::vector<std::size_t> order_of(const plan::Plan& made, const plan::Problem& problem,
                                  const std::vector<bool>& there) {
    return plan::order_first_pass(made, problem.link, problem.compute_seconds, there);
}

}  // namespace

TEST_CASE("the first pass brings more residents ahead where that makes it faster, and never fewer than a step needs") {
    std::size_t faster = 0;
    for (std::uint64_t seed = 0; seed < 600; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = residency::testing::random_problem(dice);
        std::uint64_t bytes = 0;
        for (const std::uint64_t each : problem.storage_bytes) { bytes += each; }
        problem.budget_bytes = bytes * dice(10, 95) / 100;
        const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
        if (!made || made->calls().empty()) { continue; }
        std::vector<bool> there(made->chunks());
        for (std::size_t chunk = 0; chunk < there.size(); ++chunk) { there[chunk] = seed % 3 == 0 && dice(0, 3) == 0; }
        const auto order = order_of(*made, problem, there);
        if (order.empty()) { continue; }
        ++faster;
        REQUIRE(order.size() == made->calls().size());
        CHECK(std::ranges::is_sorted(order));
        CHECK(order.back() <= made->residents().size());
        for (std::size_t k = 0; k < order.size(); ++k) {
            CHECK((order[k] == made->residents().size() ||
                   made->residents()[order[k]].needed_by > made->calls()[k].needed_by));
        }
        CHECK(first_pass_seconds(*made, problem, there, order) < first_pass_seconds(*made, problem, there, {}));
    }
    CHECK(faster > 20);
}

TEST_CASE("what is there already takes no time") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = residency::testing::random_problem(dice);
        problem.budget_bytes = 0;
        const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
        REQUIRE(made);
        CHECK(order_of(*made, problem, std::vector<bool>(made->chunks(), true)).empty());
    }
}

TEST_CASE("nothing to order: everything resident, one pass only, or step times of a shorter schedule") {
    plan::Problem problem = residency::testing::one_chunk_each(8, 8 * 4096);
    const auto resident = plan::make_plan(problem);
    REQUIRE(resident);
    CHECK(order_of(*resident, problem, std::vector<bool>(8)).empty());

    problem.budget_bytes = 4 * 4096;
    const auto streamed = plan::make_plan(problem);
    REQUIRE(streamed);
    problem.compute_seconds.assign(3, 1e-3);
    const auto order = order_of(*streamed, problem, std::vector<bool>(8));
    CHECK((order.empty() || order.size() == streamed->calls().size()));

    problem.compute_seconds.clear();
    problem.cyclic = false;
    const auto once = plan::make_plan(problem);
    REQUIRE(once);
    CHECK(order_of(*once, problem, std::vector<bool>(8)).empty());
}

}  // namespace first_pass_test
