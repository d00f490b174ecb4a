// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/chunk_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace chunk_placement_test {

namespace plan = residency::plan;
using residency::core::ChunkPlacement;
using residency::core::ChunkTable;
using residency::core::place_chunks;
using residency::testing::Dice;

namespace {

/// Plans of small problems at budgets from the floor to everything.
template <class Visit>
void for_each_plan(const Visit& visit) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const auto made =
            plan::make_plan(residency::testing::random_problem_with_budget(dice), {.effort = plan::Effort::quick});
        if (made) { visit(*made, dice); }
    }
}
std::vector<std::uint32_t> some_chunks(const plan::Plan& made, Dice& dice, std::uint32_t one_in) {
    std::vector<std::uint32_t> chunks;
    for (std::uint32_t chunk = 0; chunk < made.chunks(); ++chunk) {
        if (dice(1, one_in) == 1) { chunks.push_back(chunk); }
    }
    return chunks;
}
bool contains(const std::vector<std::uint32_t>& values, std::uint32_t value) {
    return std::ranges::find(values, value) != values.end();
}

}  // namespace

TEST_CASE(
    "leased chunks are kept, each on a slot of its own; chunks that are not misplaced lie where the plan has them") {
    std::size_t misplaced = 0, beyond = 0;
    for_each_plan([&](const plan::Plan& made, Dice& dice) {
        const auto leased = some_chunks(made, dice, 4);
        std::vector<bool> there(made.chunks());
        for (const std::uint32_t chunk : some_chunks(made, dice, 2)) { there[chunk] = true; }
        for (const std::uint32_t chunk : leased) { there[chunk] = true; }
        const ChunkPlacement placement = place_chunks(made, leased, there);
        std::set<std::uint32_t> taken;
        for (const std::uint32_t chunk : placement.kept) {
            CHECK(there[chunk]);
            CHECK(taken.insert(placement.table[chunk]).second);
        }
        for (const std::uint32_t chunk : leased) { CHECK(contains(placement.kept, chunk)); }
        for (const std::uint32_t chunk : placement.misplaced) { CHECK(contains(leased, chunk)); }
        for (std::uint32_t chunk = 0; chunk < made.chunks(); ++chunk) {
            if (contains(placement.misplaced, chunk)) { continue; }
            CHECK(placement.table[chunk] == made.slot_of_chunk(chunk));
        }
        CHECK(placement.slots >= made.slots_held());
        CHECK(placement.slots <= made.slots_held() + placement.misplaced.size());
        // There are no extra slots if a slot of the plan has no leased chunk.
        for (std::uint32_t slot = 0; slot < made.slots_held() && placement.slots > made.slots_held(); ++slot) {
            CHECK(std::ranges::any_of(leased, [&](std::uint32_t chunk) { return placement.table[chunk] == slot; }));
        }
        misplaced += placement.misplaced.size();
        beyond += placement.slots - made.slots_held();
    });
    CHECK(misplaced > 100);
    CHECK(beyond > 0);
}

TEST_CASE("of the chunks that are there, exactly the first that a pass brings to each slot are kept") {
    for_each_plan([&](const plan::Plan& made, Dice& dice) {
        std::vector<bool> there(made.chunks());
        for (const std::uint32_t chunk : some_chunks(made, dice, 2)) { there[chunk] = true; }
        const ChunkPlacement placement = place_chunks(made, {}, there);
        std::vector<std::uint32_t> first(made.slots_held(), plan::none);
        for (const auto copies : {made.residents(), made.copies()}) {
            for (const plan::Copy& copy : copies) {
                for (const std::uint32_t chunk : made.chunks_of_copy(copy)) {
                    std::uint32_t& of = first[made.slot_of_chunk(chunk)];
                    if (of == plan::none) { of = chunk; }
                }
            }
        }
        for (std::uint32_t chunk = 0; chunk < made.chunks(); ++chunk) {
            CHECK(contains(placement.kept, chunk) == (there[chunk] && contains(first, chunk)));
        }
        CHECK(place_chunks(made, {}, {}).kept.empty());
    });
}

TEST_CASE("a table follows copies, losses and moves") {
    for_each_plan([&](const plan::Plan& made, Dice& dice) {
        const auto leased = some_chunks(made, dice, 6);
        ChunkTable table{made, place_chunks(made, leased, {})};
        std::vector<std::uint32_t> holds(table.slots(), plan::none);  // by slot
        for (const std::uint32_t chunk : leased) { holds[table.slot(chunk)] = chunk; }
        const auto check = [&] {
            const auto all = table.all_there();
            for (std::uint32_t chunk = 0; chunk < table.chunks(); ++chunk) {
                const bool expected = table.slot(chunk) != plan::none && holds[table.slot(chunk)] == chunk;
                CHECK(table.is_there(chunk) == expected);
                CHECK(all[chunk] == expected);
            }
            for (std::uint32_t slot = 0; slot < table.slots(); ++slot) { CHECK(table.occupant(slot) == holds[slot]); }
        };
        check();
        for (int i = 0; i < 30; ++i) {
            const std::uint32_t chunk = dice(0, table.chunks() - 1);
            if (table.slot(chunk) == plan::none) { continue; }
            std::uint32_t& held = holds[table.slot(chunk)];
            const bool leaves = held != plan::none && held != chunk;
            switch (dice(0, 3)) {
                case 0:
                    CHECK((table.bring(chunk, false) != ChunkTable::none) == leaves);
                    held = plan::none;
                    break;
                case 1:
                    if (held == chunk) { held = plan::none; }
                    table.lose(chunk);
                    table.set_slot(chunk, dice(0, table.slots() - 1));
                    if (holds[table.slot(chunk)] == chunk) { holds[table.slot(chunk)] = plan::none; }
                    break;
                default: CHECK((table.bring(chunk, true) != ChunkTable::none) == leaves); held = chunk;
            }
            check();
        }
    });
}

TEST_CASE("residents that share their slot with no chunk stay; the plan's other slots are the ring") {
    for_each_plan([&](const plan::Plan& made, Dice&) {
        const ChunkTable table{made, place_chunks(made, {}, {})};
        std::vector<std::uint32_t> lie(table.slots(), 0);
        for (std::uint32_t chunk = 0; chunk < made.chunks(); ++chunk) {
            if (made.slot_of_chunk(chunk) != plan::none) { ++lie[made.slot_of_chunk(chunk)]; }
        }
        std::vector<bool> is_resident(made.chunks());
        for (const plan::Copy& copy : made.residents()) {
            for (const std::uint32_t chunk : made.chunks_of_copy(copy)) { is_resident[chunk] = true; }
        }
        bool all = true;
        for (std::uint32_t chunk = 0; chunk < made.chunks(); ++chunk) {
            const bool stays = is_resident[chunk] && lie[made.slot_of_chunk(chunk)] == 1;
            CHECK(table.stays(chunk) == stays);
            if (stays) { CHECK_FALSE(table.is_of_ring(table.slot(chunk))); }
            const std::uint32_t slot = made.slot_of_chunk(chunk);
            CHECK(table.is_sole_owner(chunk) == (slot != plan::none && lie[slot] == 1));
            all = all && (stays || slot == plan::none);
        }
        CHECK(table.all_stay() == all);
        for (std::uint32_t s = 0; s < made.storages(); ++s) {
            bool never_leaves = true, has_slots = true;
            for (const std::uint32_t chunk : made.chunks_of_storage(s)) {
                never_leaves = never_leaves && table.stays(chunk);
                has_slots = has_slots && made.slot_of_chunk(chunk) != plan::none;
            }
            CHECK(table.is_unplanned(residency::StorageId{s}) == !has_slots);
            CHECK(table.never_leaves(residency::StorageId{s}) == never_leaves);
        }
    });
}

TEST_CASE("the last slot takes the number of a removed slot") {
    const auto made = plan::make_plan(residency::testing::one_chunk_each(6, 3 * 4096));
    REQUIRE(made);
    std::vector<std::uint32_t> leased;
    for (std::uint32_t chunk = 0; chunk < 6; ++chunk) { leased.push_back(chunk); }
    ChunkTable table{*made, place_chunks(*made, leased, {})};
    REQUIRE(table.slots() == 6);
    const auto at = [&](std::uint32_t slot) { return table.occupant(slot); };
    const std::uint32_t leaving = at(4), last = at(5);
    CHECK_FALSE(table.is_empty(4));
    table.lose(leaving);
    table.set_slot(leaving, made->slot_of_chunk(leaving));
    CHECK(table.is_empty(4));
    table.remove(4);
    CHECK(table.slots() == 5);
    CHECK(table.slot(last) == 4);
    CHECK(table.is_there(last));
    CHECK(at(4) == last);
    CHECK_FALSE(table.is_there(leaving));
}

}  // namespace chunk_placement_test
