// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/ring_assignment.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace ring_assignment_test {

namespace plan = residency::plan;

namespace {

constexpr std::uint64_t chunk = 4096;

/// Storages of whole chunks at given places, a step each.
struct Scene {
    plan::Problem problem;
    plan::Image image;
};
Scene scene(const std::vector<std::uint64_t>& bytes, const std::vector<std::uint64_t>& offsets) {
    Scene made;
    made.problem.chunk_bytes = chunk;
    made.problem.storage_bytes = bytes;
    made.problem.image_offsets = offsets;
    for (std::uint32_t s = 0; s < bytes.size(); ++s) { made.problem.add_step({&s, 1}); }
    made.image = plan::lay_out(made.problem, plan::ImageOrder::given);
    return made;
}
/// A move of chunks [begin, end) to slots [slot, …).
void add_move(plan::RingAssignment& assignment, std::uint32_t begin, std::uint32_t end, std::uint32_t needed_by,
              plan::Wait wait, std::uint32_t call, std::uint32_t slot) {
    assignment.moves.push_back({begin, end, needed_by, wait, call, assignment.slots.size()});
    for (std::uint32_t c = begin; c < end; ++c) { assignment.slots.push_back(slot++); }
}

}  // namespace

TEST_CASE("what storages fill, with the gaps that are not worth a copy") {
    plan::Problem problem = scene({1000, 0, 500, 300}, {0, 2000, 1100, 5000}).problem;
    problem.alignment_bytes = 256;
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::given);
    CHECK(plan::filled_ranges(problem, image) == std::vector<plan::ImageRange>{{0, 1600}, {5000, 5300}});
    problem.alignment_bytes = 64;
    CHECK(plan::filled_ranges(problem, image) == std::vector<plan::ImageRange>{{0, 1000}, {1100, 1600}, {5000, 5300}});
}

TEST_CASE("neighbours of one call are one copy, of two calls two; what no move brings is resident") {
    const Scene s = scene({2 * chunk, 2 * chunk, chunk, chunk}, {0, 2 * chunk, 4 * chunk, 5 * chunk});
    plan::RingAssignment assignment;
    assignment.slots_used = 3;
    add_move(assignment, 0, 2, 0, {2, -1}, 0, 0);
    add_move(assignment, 2, 3, 1, {2, -1}, 0, 2);  // goes on where the one before ends
    add_move(assignment, 3, 4, 1, {0, 0}, 1, 0);
    add_move(assignment, 4, 5, 2, {0, 0}, 2, 1);
    const plan::PlanData data = plan::assemble(s.problem, s.image, assignment, false);
    REQUIRE(data.calls.size() == 3);
    REQUIRE(data.copies.size() == 3);
    // Chunk 2 is alone on slot 2: it stays, and only chunks 0 and 1 are left of the first copy.
    CHECK(data.copies[0].image_begin == 0);
    CHECK(data.copies[0].image_end == 2 * chunk);
    CHECK(data.copies[0].needed_by == 0);
    CHECK(data.copies[1].needed_by == 1);
    CHECK(data.copies[2].needed_by == 2);
    CHECK(data.calls[1].wait == plan::Wait{0, 0});
    CHECK(data.chunk_slot == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 3});
    CHECK(data.held_bytes == 4 * chunk);
    CHECK(data.bytes_per_pass == 4 * chunk);
    CHECK(data.step_calls == std::vector<std::uint32_t>{1, 2, 3, 3});
    REQUIRE(data.residents.size() == 2);
    CHECK(data.residents[0].image_begin == 2 * chunk);
    CHECK(data.residents[0].needed_by == 1);
    CHECK(data.residents[1].image_begin == 5 * chunk);
    CHECK(data.residents[1].needed_by == 3);
}

TEST_CASE("a call of which nothing is left hands its wait on, and never to an earlier one") {
    const Scene s = scene({chunk, chunk, chunk}, {0, chunk, 2 * chunk});
    plan::RingAssignment assignment;
    assignment.slots_used = 2;
    add_move(assignment, 0, 1, 0, {1, -1}, 0, 1);  // alone on its slot: stays
    add_move(assignment, 1, 2, 1, {0, -1}, 1, 0);
    add_move(assignment, 2, 3, 2, {1, 0}, 2, 0);
    const plan::PlanData data = plan::assemble(s.problem, s.image, assignment, false);
    REQUIRE(data.calls.size() == 2);
    CHECK(data.calls[0].wait == plan::Wait{1, -1});
    CHECK(data.calls[1].wait == plan::Wait{1, 0});
    CHECK(data.bytes_per_pass == 2 * chunk);
    CHECK(data.held_bytes == 2 * chunk);
}

TEST_CASE("a captured plan has a call for each copy") {
    const Scene s = scene({chunk, chunk, chunk, chunk}, {0, 2 * chunk, 4 * chunk, 6 * chunk});
    plan::RingAssignment assignment;
    assignment.slots_used = 2;
    add_move(assignment, 0, 1, 0, {3, -1}, 0, 0);
    add_move(assignment, 2, 3, 1, {3, -1}, 0, 1);
    add_move(assignment, 4, 5, 2, {1, 0}, 1, 0);
    add_move(assignment, 6, 7, 3, {1, 0}, 1, 1);
    CHECK(plan::assemble(s.problem, s.image, assignment, false).calls.size() == 2);
    const plan::PlanData data = plan::assemble(s.problem, s.image, assignment, true);
    REQUIRE(data.calls.size() == 4);
    for (std::uint32_t k = 0; k < 4; ++k) {
        CHECK(data.calls[k].needed_by == k);
        CHECK(data.calls[k].wait == (k < 2 ? plan::Wait{3, -1} : plan::Wait{1, 0}));
    }
    CHECK(data.step_calls == std::vector<std::uint32_t>{1, 2, 3, 4});
}

TEST_CASE("a one-shot plan lists what is there before it; that shares slots with what comes later") {
    Scene s = scene({chunk, chunk, chunk}, {0, chunk, 2 * chunk});
    s.problem.cyclic = false;
    plan::RingAssignment assignment;
    assignment.slots_used = 2;
    assignment.residents = {{1, 2, 1, {}, 0, 0}, {0, 1, 0, {}, 0, 1}};
    assignment.slots = {1, 0};
    add_move(assignment, 2, 3, 2, {0, 0}, 0, 0);
    const plan::PlanData data = plan::assemble(s.problem, s.image, assignment, false);
    CHECK(data.chunk_slot == std::vector<std::uint32_t>{0, 1, 0});
    CHECK(data.residents == std::vector<plan::Copy>{{0, chunk, 0}, {chunk, 2 * chunk, 1}});
    CHECK(data.copies == std::vector<plan::Copy>{{2 * chunk, 3 * chunk, 2}});
    CHECK(data.held_bytes == 2 * chunk);
}

TEST_CASE("a copy leaves out what lies between storages") {
    const Scene s = scene({1000, 2 * chunk}, {0, chunk});
    plan::RingAssignment assignment;
    assignment.slots_used = 2;
    add_move(assignment, 0, 2, 0, {1, -1}, 0, 0);
    add_move(assignment, 2, 3, 1, {0, 0}, 1, 0);
    const plan::PlanData data = plan::assemble(s.problem, s.image, assignment, false);
    REQUIRE(!data.copies.empty());
    CHECK(data.copies[0].image_end == 1000);
    CHECK(data.bytes_per_pass == 1000 + chunk);  // chunk 1, alone on slot 1, stays
}

}  // namespace ring_assignment_test
