// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/live_ranges.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "residency/core/chunk_loops.hpp"
#include "residency/core/chunk_placement.hpp"
#include "residency/core/chunk_table.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace plan = residency::plan;
using residency::Cycle;
using residency::StorageId;
using residency::UseOrder;
using residency::core::ChunkTable;
using residency::core::LiveRanges;
using residency::testing::Dice;

namespace {

UseOrder order_of(const plan::Problem& problem) {
    std::vector<std::uint64_t> offsets{0};
    std::vector<StorageId> storages;
    for (std::uint32_t step = 0; step < problem.steps(); ++step) {
        for (const std::uint32_t s : problem.reads(step)) { storages.push_back(StorageId{s}); }
        offsets.push_back(storages.size());
    }
    auto order = UseOrder::try_from(offsets, storages, problem.storages(), Cycle::one_shot);
    REQUIRE(order);
    return *order;
}
std::set<std::uint32_t> slots_of(const plan::Plan& made, std::uint32_t storage) {
    std::set<std::uint32_t> slots;
    for (const std::uint32_t chunk : made.chunks_of_storage(storage)) { slots.insert(made.slot_of_chunk(chunk)); }
    return slots;
}
/// The step, numbered across passes, for which a call of pass `pass` waits, by itself or through the calls before it; −1: none.
std::int64_t awaited(const plan::Plan& made, std::int64_t pass, std::size_t call) {
    std::int64_t latest = -1;
    for (std::int64_t p = made.is_cyclic() ? 0 : pass; p <= pass; ++p) {
        for (std::size_t k = 0; k < (p == pass ? call + 1 : made.calls().size()); ++k) {
            const plan::Wait& wait = made.calls()[k].wait;
            if (wait.exists()) { latest = (std::max)(latest, (p + wait.pass) * made.steps() + wait.step); }
        }
    }
    return latest;
}

}  // namespace

TEST_CASE(
    "live ranges: no call overwrites what a step reads before the end of its range, and the next one waits for it") {
    std::uint64_t longer = 0, checked = 0;
    for (std::uint64_t seed = 0; seed < 120; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = residency::testing::random_problem(dice);
        problem.budget_bytes = dice(0, 3) == 0 ? 0 : residency::testing::total_bytes(problem) * dice(20, 110) / 100;
        const auto made = plan::make_plan(problem);
        if (!made || made->calls().size() > 200) { continue; }
        const UseOrder order = order_of(problem);
        const ChunkTable table{*made, residency::core::place_chunks(*made, {}, {})};
        const LiveRanges live{*made, order};
        const std::int64_t steps = made->steps(), pass = made->is_cyclic() ? 2 : 0;
        for (std::uint32_t step = 0; step < made->steps(); ++step) {
            std::uint32_t least = made->steps() - 1;
            for (const StorageId id : order.storages_at(step)) {
                const std::uint32_t last = live.of(step, {&id, 1});
                least = (std::min)(least, last);
                REQUIRE(last >= step);
                REQUIRE(last < made->steps());
                const auto slots = slots_of(*made, index(id));
                if (made->is_cyclic() && !table.never_leaves(id) && !slots.contains(plan::none)) {
                    CHECK(last >= order.uses(id).back());
                }
                bool is_awaited = last + 1 == made->steps();
                for (std::int64_t p = pass; p <= pass + (made->is_cyclic() ? 2 : 0); ++p) {
                    for (std::size_t k = 0; k < made->calls().size(); ++k) {
                        const std::int64_t waits = awaited(*made, p, k);
                        if (waits < pass * steps + step) { continue; }  // before the storage comes
                        residency::core::for_each_chunk(*made, made->copies(made->calls()[k]), [&](std::uint32_t c) {
                            if (!slots.contains(made->slot_of_chunk(c))) { return; }
                            CHECK(waits >= pass * steps + last);
                            is_awaited = is_awaited || waits == pass * steps + last;
                        });
                    }
                }
                CHECK(is_awaited);
                longer += last > step ? 1 : 0;
                ++checked;
            }
            CHECK(live.of_step(step) == least);
        }
    }
    MESSAGE(checked << " reads, " << longer << " live on");
    CHECK(longer > 300);
}
