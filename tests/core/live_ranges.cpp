// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/live_ranges.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "residency/core/planned/chunk_table.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace live_ranges_test {

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
/// The step for which each chunk comes in a pass; none: it comes in no call.
std::vector<std::uint32_t> comes_for(const plan::Plan& made) {
    std::vector<std::uint32_t> steps(made.chunks(), plan::none);
    for (const plan::Call& call : made.calls()) {
        residency::core::for_each_chunk(made, made.copies(call), [&](std::uint32_t c) { steps[c] = call.needed_by; });
    }
    return steps;
}
/// The last reader of a storage that step `step` reads before one of its chunks comes again. What comes for a later step than this one was
/// brought by the pass before.
std::uint32_t last_before_it_comes(const plan::Plan& made, const UseOrder& order, StorageId id, std::uint32_t step) {
    const std::vector<std::uint32_t> comes = comes_for(made);
    std::uint32_t end = plan::none;
    for (const std::uint32_t chunk : made.chunks_of_storage(index(id))) {
        if (comes[chunk] != plan::none && comes[chunk] > step) { end = (std::min)(end, comes[chunk]); }
    }
    std::uint32_t last = step;
    for (const auto use : order.uses(id)) {
        if (use < end) { last = (std::max)(last, static_cast<std::uint32_t>(use)); }
    }
    return last;
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
    std::uint64_t longer = 0, checked = 0, begun = 0;
    for (std::uint64_t seed = 0; seed < 120; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = residency::testing::random_problem_with_budget(dice);
        const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
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
                    const std::uint32_t reader = last_before_it_comes(*made, order, id, step);
                    CHECK(last >= reader);
                    begun += reader < order.uses(id).back() ? 1 : 0;
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
    MESSAGE(checked << " reads, " << longer << " live on, " << begun << " of what the pass before has brought");
    CHECK(longer > 300);
    CHECK(begun > 5);
}

TEST_CASE("live ranges: played as early as its calls may come, a plan has there what each step reads") {
    std::uint64_t over_the_end = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = residency::testing::random_problem_with_budget(dice);
        const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
        if (!made || !made->is_cyclic() || made->calls().empty() || made->calls().size() > 200) { continue; }
        const std::vector<std::uint32_t> comes = comes_for(*made);
        const std::size_t calls = made->calls().size();
        const std::int64_t steps = made->steps();
        std::vector<std::uint32_t> occupant(made->slots_held(), plan::none);
        residency::core::for_each_chunk(*made, made->residents(), [&](std::uint32_t c) {
            REQUIRE(occupant[made->slot_of_chunk(c)] == plan::none);
            occupant[made->slot_of_chunk(c)] = c;
            over_the_end += comes[c] != plan::none ? 1 : 0;
        });
        std::size_t next = 0;
        for (std::int64_t step = 0; step < 3 * steps; ++step) {  // those before it have ended, it has not
            for (; next < 4 * calls; ++next) {
                const auto pass = static_cast<std::int64_t>(next / calls);
                const plan::Call& call = made->calls()[next % calls];
                const std::int64_t waits =
                    call.wait.exists() ? (pass + call.wait.pass) * steps + std::int64_t{call.wait.step} : -1;
                if (waits >= step) { break; }
                residency::core::for_each_chunk(*made, made->copies(call),
                                                [&](std::uint32_t c) { occupant[made->slot_of_chunk(c)] = c; });
            }
            for (const std::uint32_t s : problem.reads(static_cast<std::uint32_t>(step % steps))) {
                for (const std::uint32_t c : made->chunks_of_storage(s)) {
                    CHECK(occupant[made->slot_of_chunk(c)] == c);
                }
            }
        }
    }
    CHECK(over_the_end > 20);
}

}  // namespace live_ranges_test
