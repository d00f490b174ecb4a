// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/slot_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "benchmarks/plan_campaign/schedules.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/simulate.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace slot_search_test {

namespace campaign = residency::campaign;
namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;
using support::random_cases;

namespace {

/// The convolutional network with a budget of that share of its bytes; `ratio` of compute to copies.
plan::Problem convolutions(double ratio, double share) {
    plan::Problem problem = campaign::with_budget(campaign::residual_network().problem, share);
    campaign::scale_compute(problem, ratio);
    return problem;
}

/// The slots of an interval ring, by chunk of the image; empty where there is none.
std::vector<std::uint32_t> interval_slots(const plan::Image& image, std::uint64_t budget) {
    std::vector<bool> kept;
    for (const plan::Cell& cell : image.cells) { kept.push_back(cell.keep); }
    plan::RingAssignment ring;
    if (!plan::interval_ring(image, kept, static_cast<std::uint32_t>(budget - image.kept_chunks()), ring)) {
        return {};
    }
    std::vector<std::uint32_t> slots(image.chunks(), plan::none);
    for (const auto& move : ring.moves) { slots[move.chunk_begin] = ring.slots[move.slots_begin]; }
    return slots;
}

}  // namespace

TEST_CASE("what stays is chosen where the copies cannot keep up") {
    struct Expected {
        double share, over_reference;
    };
    for (const double ratio : campaign::residual_network_ratios) {
        for (const auto& [share, most] : {Expected{0.25, 1.1}, {0.5, 1.12}, {0.75, 1.001}, {0.9, 1.001}}) {
            for (const bool captured : {false, true}) {
                CAPTURE(ratio);
                CAPTURE(share);
                CAPTURE(captured);
                const plan::Problem problem = convolutions(ratio, share);
                const auto made = plan::make_plan(problem, {.captured = captured});
                REQUIRE(made.has_value());
                CHECK(plan::check(*made, problem).has_value());
                const double reference = std::max(made->bound_seconds(), made->latency_floor_seconds());
                CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
                CHECK(made->predicted_seconds() <= most * reference);
            }
        }
    }
}

TEST_CASE("slots of random problems: a plan that holds, as fast as was said, and no slower than the start") {
    const std::uint64_t problems = random_cases(150);
    std::uint64_t searched = 0, faster = 0;
    for (std::uint64_t seed = 1; seed <= problems; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        const plan::Image image = plan::lay_out(problem, plan::ImageOrder::sequence);
        const std::uint64_t floor = plan::floor_chunks(image, problem.steps()).chunks;
        if (floor >= image.filled_chunks() || image.filled_chunks() > 128) { continue; }
        const std::uint64_t budget = floor + dice(0, static_cast<std::uint32_t>(image.filled_chunks() - floor - 1));
        problem.budget_bytes = budget * problem.chunk_bytes;
        const bool captured = dice(0, 1) != 0;
        const std::vector<std::uint32_t> start = interval_slots(image, budget);
        if (start.empty()) { continue; }
        plan::SlotSearch search{problem, image, budget, captured, {plan::Effort::quick}};
        search.start(start);
        const double before = search.seconds();
        if (before == plan::RingCalls::impossible) { continue; }
        search.search();
        CHECK(search.seconds() <= before);
        plan::SlotSearch again{problem, image, budget, captured, {plan::Effort::quick}};
        again.start(start);
        again.search();
        CHECK(again.seconds() == search.seconds());
        plan::PlanData data = plan::assemble(problem, image, search.assignment(), captured);
        plan::detail::finalize_times(data, problem);
        data.budget_bytes = problem.budget_bytes;
        CHECK(data.held_bytes <= problem.budget_bytes);
        CHECK(plan::check(plan::Plan{data}, problem).has_value());
        CHECK(data.predicted_seconds <= search.seconds() * (1 + 1e-4));
        ++searched;
        faster += search.seconds() < before * 0.99 ? 1 : 0;
    }
    MESSAGE(searched << " searched, " << faster << " more than 1 % faster than they began");
    CHECK(searched >= 10);
    CHECK(faster * 4 >= searched);
}

TEST_CASE("slots of no use: too many of them, or none for a chunk") {
    const plan::Problem problem = convolutions(0.63, 0.5);
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::sequence);
    plan::SlotSearch search{problem, image, 12, false, {}};
    std::vector<std::uint32_t> slots(image.chunks());
    for (std::uint32_t c = 0; c < image.chunks(); ++c) { slots[c] = c; }
    search.start(slots);
    search.start(std::vector<std::uint32_t>(image.chunks(), plan::none));
    search.start(std::vector<std::uint32_t>(image.chunks(), 0));  // read at the same time
    search.search();
    CHECK(search.seconds() == plan::RingCalls::impossible);
}

}  // namespace slot_search_test
