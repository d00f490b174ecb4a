// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/interval_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "residency/plan/check.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "tests/support/planning.hpp"

namespace interval_ring_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;

TEST_CASE("the slots of the floor are enough, one less is not") {
    int refused = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = random_problem(dice);
        for (const plan::ImageOrder order : {plan::ImageOrder::grouped, plan::ImageOrder::aligned}) {
            const plan::Image image = plan::lay_out(problem, order);
            std::vector<bool> hold;
            std::uint64_t kept = 0;
            for (const plan::Cell& cell : image.cells) {
                hold.push_back(cell.keep);
                kept += cell.keep ? cell.chunks() : 0;
            }
            const auto least = static_cast<std::uint32_t>(plan::floor_chunks(image, problem.steps()).chunks - kept);
            plan::RingAssignment assignment;
            if (least > 0) {
                CHECK_FALSE(plan::interval_ring(image, hold, least - 1, assignment));
                ++refused;
            }
            for (const std::uint32_t slots : {least, least + 1, least + 7}) {
                REQUIRE(plan::interval_ring(image, hold, slots, assignment));
                // Every chunk that is not held comes once, to a slot that there is, in the order of need and of release.
                std::vector<int> brought(image.chunks(), 0);
                bool in_range = true, in_order = true;
                for (std::size_t m = 0; m < assignment.moves.size(); ++m) {
                    const plan::RingAssignment::Move& move = assignment.moves[m];
                    in_range = in_range && move.chunk_end == move.chunk_begin + 1 &&
                               assignment.slots[move.slots_begin] < slots;
                    ++brought[move.chunk_begin];
                    in_order = in_order && (move.wait.pass == -1 || move.wait.step < move.needed_by);
                    if (m == 0) { continue; }
                    const plan::RingAssignment::Move& before = assignment.moves[m - 1];
                    const bool together = before.wait == move.wait && before.needed_by == move.needed_by;
                    in_order =
                        in_order && before.needed_by <= move.needed_by && move.call == before.call + (together ? 0 : 1);
                }
                CHECK(in_range);
                CHECK(in_order);
                bool once = true;
                for (std::size_t c = 0; c < image.cells.size(); ++c) {
                    for (std::uint32_t chunk = image.cells[c].chunk_begin; chunk < image.cells[c].chunk_end; ++chunk) {
                        once = once && brought[chunk] == (hold[c] ? 0 : 1);
                    }
                }
                CHECK(once);
                plan::PlanData data = plan::assemble(problem, image, assignment, seed % 2 == 0);
                data.budget_bytes = data.held_bytes;
                CHECK(data.held_bytes <= (kept + slots) * problem.chunk_bytes);
                const residency::Status checked = plan::check(plan::Plan{std::move(data)}, problem);
                REQUIRE_MESSAGE(checked.has_value(), (checked.has_value() ? std::string{} : checked.error().message()));
            }
        }
    }
    CHECK(refused > 50);
}

TEST_CASE("a pass begins with the slots that the one before left first") {
    // Four steps of one chunk through two slots: each waits for the step before the last.
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    for (std::uint32_t s = 0; s < 4; ++s) {
        problem.storage_bytes.push_back(4096);
        problem.add_step({&s, 1});
    }
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
    plan::RingAssignment assignment;
    REQUIRE(plan::interval_ring(image, std::vector<bool>(image.cells.size(), false), 2, assignment));
    REQUIRE(assignment.moves.size() == 4);
    CHECK(assignment.moves[0].wait == plan::Wait{2, -1});
    CHECK(assignment.moves[1].wait == plan::Wait{3, -1});
    CHECK(assignment.moves[2].wait == plan::Wait{0, 0});
    CHECK(assignment.moves[3].wait == plan::Wait{1, 0});
}

}  // namespace interval_ring_test
