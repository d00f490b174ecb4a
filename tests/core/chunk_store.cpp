// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/chunk_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "residency/plan/planner.hpp"
#include "tests/core/planned_parts.hpp"
#include "tests/support/planning.hpp"

namespace chunk_store_test {

using namespace planned_parts;
using residency::Placement;
using residency::simulation::CallKind;
using residency::testing::Dice;

namespace {

void load(Parts& parts, std::uint32_t c) {
    must(parts.scheduler.copy_stream_wait_for_all_uses());
    must(parts.store.load({&c, 1}));
}
/// The other chunks that the plan puts on the slot of a chunk.
std::vector<std::uint32_t> sharers_of_chunk(const ChunkStore<Device>& store, std::uint32_t c) {
    std::vector<std::uint32_t> sharers;
    for (std::uint32_t other = 0; other < store.table().chunks(); ++other) {
        if (other != c && store.plan().slot_of_chunk(other) == store.plan().slot_of_chunk(c)) {
            sharers.push_back(other);
        }
    }
    return sharers;
}

}  // namespace

TEST_CASE("chunk store: a plan that is adopted is mapped, holds what it says, and has nothing there") {
    Parts parts{chunks(6)};
    const std::uint64_t before = parts.used_bytes();
    CHECK_FALSE(parts.store.is_held());
    CHECK(parts.store.held_bytes() == 0);
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK(parts.store.is_held());
    CHECK_FALSE(parts.store.is_unmapped());
    CHECK(parts.store.mapping_generation() == 1);
    CHECK(parts.store.held_bytes() == 3 * chunk);
    CHECK(parts.used_bytes() - before == 3 * chunk);
    for (std::uint32_t c = 0; c < 6; ++c) {
        CHECK_FALSE(parts.store.table().is_there(c));
        CHECK(parts.store.is_at_home(c));
        CHECK(parts.states[c].address ==
              parts.states[0].address + parts.store.plan().storage_offset(c) - parts.store.plan().storage_offset(0));
    }
    CHECK(std::ranges::count(parts.store.presence(), plan::Presence::absent) == 6);
    parts.store.close();
    CHECK(parts.used_bytes() == before);
}

TEST_CASE(
    "chunk store: a chunk that is moved loses its bytes, and works where it is; it is remapped until it is home") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    std::uint32_t first = 0;
    while (sharers_of_chunk(parts.store, first).empty()) { ++first; }
    const std::uint32_t second = sharers_of_chunk(parts.store, first).front();
    std::uint32_t other = 0;
    while (other == parts.store.plan().slot_of_chunk(first)) { ++other; }
    load(parts, first);
    must(parts.store.remap_chunk(second, other));
    CHECK(parts.counters.host_waits == 1);
    CHECK(parts.store.mapping_generation() == 2);
    CHECK(parts.store.has_remapped());
    CHECK_FALSE(parts.store.is_at_home(second));
    load(parts, second);
    CHECK(parts.store.table().is_there(first));
    CHECK(parts.store.table().is_there(second));
    parts.use(parts.storage_of(first));
    parts.use(parts.storage_of(second));
    must(parts.store.restore_remapped());
    CHECK(parts.counters.host_waits == 2);
    CHECK(parts.store.is_at_home(second));
    CHECK_FALSE(parts.store.table().is_there(second));
    CHECK(parts.store.table().is_there(first));
    CHECK_FALSE(parts.store.has_remapped());
}

TEST_CASE("chunk store: leased chunks keep bytes and address under a smaller plan, and go home when they are unused") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(6 * chunk)));
    for (std::uint32_t c = 0; c < 6; ++c) { load(parts, c); }
    for (std::uint32_t c = 0; c < 4; ++c) { parts.hold(c); }
    must(parts.scheduler.drain());
    std::vector<std::byte*> addresses;
    for (const auto& state : parts.states) { addresses.push_back(state.address); }
    must(parts.adopt(parts.make_plan(2 * chunk)));
    CHECK(parts.store.has_misplaced());
    CHECK(parts.store.held_bytes() == 4 * chunk);
    for (std::uint32_t c = 0; c < 4; ++c) {
        CHECK(parts.states[c].address == addresses[c]);
        CHECK(parts.store.table().is_there(c));
        parts.read(c, std::chrono::milliseconds{1});
    }
    const auto waits = parts.counters.host_waits;
    // Their leases are open, then their kernels still run: nothing goes home, and nothing waits for it.
    must(parts.store.send_home());
    CHECK(parts.store.held_bytes() == 4 * chunk);
    for (std::uint32_t c = 0; c < 4; ++c) { parts.let_go(c); }
    must(parts.store.send_home());
    CHECK(parts.store.held_bytes() == 4 * chunk);
    const StorageId unleased{5};
    must(parts.store.send_home_before_use({&unleased, 1}));
    CHECK(parts.counters.host_waits == waits);
    must(parts.store.send_unleased_home());
    CHECK(parts.counters.host_waits == waits + 1);
    CHECK_FALSE(parts.store.has_misplaced());
    CHECK(parts.store.held_bytes() == 2 * chunk);
    CHECK(parts.store.peak_held_bytes() == 6 * chunk);
}

TEST_CASE("chunk store: what must not leave is kept by every plan of its image") {
    std::vector<Spec> specs = chunks(5);
    specs[3].placement = Placement::resident;
    Parts parts{specs};
    must(parts.adopt(parts.make_plan(5 * chunk)));
    for (std::uint32_t c = 0; c < 5; ++c) { load(parts, c); }
    must(parts.scheduler.drain());
    const std::uint32_t resident = parts.chunk_of(3);
    CHECK_FALSE(parts.store.may_leave(resident));
    plan::Problem problem = parts.factory.problem();
    problem.image_offsets = parts.store.plan().data().storage_offsets;
    problem.budget_bytes = 2 * chunk;
    must(parts.adopt(must(plan::make_plan(problem, {.effort = plan::Effort::quick}))));
    CHECK(parts.store.table().is_there(resident));
    CHECK(parts.store.held_bytes() == 2 * chunk);
    CHECK(parts.counters.evictions >= 3);
    CHECK(parts.counters.evicted_bytes == parts.counters.evictions * chunk);
    parts.read(3);
}

TEST_CASE("chunk store: after a call that failed the plan is adopted again; nothing is lost track of") {
    for (const CallKind kind : {CallKind::map, CallKind::unmap, CallKind::create_chunk, CallKind::destroy_chunk}) {
        for (std::uint64_t nth = 1; nth < 4; ++nth) {
            CAPTURE(static_cast<int>(kind));
            CAPTURE(nth);
            Parts parts{chunks(6)};
            must(parts.adopt(parts.make_plan(4 * chunk)));
            for (std::uint32_t c = 0; c < 6; ++c) { load(parts, c); }
            must(parts.scheduler.drain());
            parts.device.fail(kind, nth);
            const plan::Plan before = parts.store.plan();
            const auto adopted = parts.adopt(parts.make_plan(kind == CallKind::create_chunk ? 6 * chunk : 2 * chunk));
            parts.device.clear_failures();
            CHECK(parts.store.is_unmapped() == !adopted.has_value());
            if (!adopted) {
                CHECK(parts.store.plan() == before);
                CHECK(parts.player.mode() == PlanMode::unmapped);
                must(parts.adopt(plan::Plan{before}));
            }
            CHECK_FALSE(parts.store.is_unmapped());
            CHECK(parts.store.held_bytes() == parts.store.plan().held_bytes());
            for (std::uint32_t c = 0; c < 6; ++c) {
                load(parts, c);
                parts.use(parts.storage_of(c));
            }
        }
    }
}

TEST_CASE("chunk store: under random copies, moves, leases and plans, what is there has its bytes at its address") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const std::uint32_t count = dice(3, 8);
        Parts parts{chunks(count)};
        const std::uint64_t before = parts.used_bytes();
        plan::Problem problem = parts.factory.problem();
        const auto adopt = [&] {
            problem.budget_bytes = chunk * dice(1, count);
            must(parts.scheduler.drain());
            must(parts.adopt(must(plan::make_plan(problem, {.effort = plan::Effort::quick}))));
            problem.image_offsets = parts.store.plan().data().storage_offsets;
        };
        adopt();
        const ChunkStore<Device>& store = parts.store;
        for (int i = 0; i < 60; ++i) {
            const std::uint32_t c = dice(0, count - 1);  // storage c is one chunk, though not chunk c
            const std::uint32_t at = parts.chunk_of(c);
            const std::uint32_t slot = store.table().slot(at);
            const std::uint32_t occupant = store.table().occupant(slot);
            const bool is_free = occupant == plan::none || !store.is_leased(occupant);
            switch (dice(0, 7)) {
                case 0:
                    if (dice(0, 3) == 0) { adopt(); }
                    break;
                case 1: {
                    const std::uint32_t place = dice(0, store.table().slots() - 1);
                    if (!store.is_leased(at) && !store.is_misplaced(at)) { must(parts.store.remap_chunk(at, place)); }
                    break;
                }
                case 2: must(parts.store.send_home()); break;
                case 3:
                    if (store.table().is_there(at) && parts.states[c].leases == 0) { parts.hold(c); }
                    break;
                case 4:
                    if (parts.states[c].leases > 0) { parts.let_go(c); }
                    break;
                default:
                    if (is_free && !store.table().is_there(at)) { load(parts, at); }
            }
            for (std::uint32_t s = 0; s < count; ++s) {
                const std::uint32_t of = parts.chunk_of(s);
                if (parts.states[s].leases > 0) { CHECK(store.table().is_there(of)); }
                if (!store.table().is_there(of)) { continue; }
                const bool is_held = parts.states[s].leases > 0;
                if (!is_held) { parts.hold(s); }
                parts.read(s);
                if (!is_held) { parts.let_go(s); }
            }
            CHECK(parts.used_bytes() - before == store.held_bytes());
            CHECK(store.held_bytes() == store.table().slots() * chunk);
        }
        for (std::uint32_t s = 0; s < count; ++s) {
            if (parts.states[s].leases > 0) { parts.let_go(s); }
        }
        must(parts.store.send_unleased_home());
        CHECK_FALSE(store.has_misplaced());
        CHECK(store.held_bytes() == store.plan().held_bytes());
    }
}

TEST_CASE("chunk store: chunks are copied in one call, in pieces of storages, and counted") {
    std::vector<Spec> specs{{chunk / 2}, {chunk}, {3 * chunk}, {100}, {2 * chunk}};
    Parts parts{specs};
    must(parts.adopt(parts.make_plan(16 * chunk)));
    std::vector<std::uint32_t> all;
    std::uint64_t bytes = 0;
    for (std::uint32_t c = 0; c < parts.store.table().chunks(); ++c) { all.push_back(c); }
    for (const Spec& spec : specs) { bytes += spec.bytes; }
    must(parts.store.load(all));
    CHECK(parts.counters.calls == 1);
    CHECK(parts.counters.fetched_bytes == bytes);
    CHECK(parts.counters.evictions == 0);
    CHECK(parts.log->enqueued.size() == 1);
    CHECK(parts.log->enqueued.front().size() == specs.size());
    for (std::uint32_t s = 0; s < specs.size(); ++s) {
        CHECK(parts.states[s].arrival > 0);
        CHECK(parts.states[s].prefetched);
        parts.use(s);
    }
}

TEST_CASE("chunk store: around leases only absent chunks are copied, behind all recorded uses, or nothing is done") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    const plan::Plan& made = parts.store.plan();
    for (int pass = 0; pass < 3; ++pass) {
        for (const plan::Call& call : made.calls()) {
            CHECK(must(parts.store.load_around_leases(made.copies(call))));
            const std::size_t calls = parts.log->enqueued.size();
            CHECK(must(parts.store.load_around_leases(made.copies(call))));
            CHECK(parts.log->enqueued.size() == calls);
            for (const plan::Copy& copy : made.copies(call)) {
                for (const std::uint32_t c : made.chunks_of_copy(copy)) { parts.use(parts.storage_of(c)); }
            }
        }
    }
    // A chunk of the last call is leased: a call that brings another chunk to its slot has to wait.
    const std::uint32_t held = *made.chunks_of_copy(made.copies(made.calls().back()).front()).begin();
    parts.hold(parts.storage_of(held));
    std::uint32_t blocked = 0;
    for (const plan::Call& call : made.calls()) {
        const auto loaded = must(parts.store.load_around_leases(made.copies(call)));
        const bool takes_slot = residency::core::any_chunk(made, made.copies(call), [&](std::uint32_t c) {
            return c != held && made.slot_of_chunk(c) == made.slot_of_chunk(held);
        });
        CHECK(loaded == !takes_slot);
        blocked += takes_slot ? 1U : 0U;
        CHECK(parts.store.table().is_there(held));
    }
    CHECK(blocked > 0);
    parts.read(parts.storage_of(held));
    parts.let_go(parts.storage_of(held));
}

TEST_CASE("chunk store: after a copy that failed its slots hold nothing, and it can be repeated") {
    Parts parts{chunks(4)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    const std::vector<std::uint32_t> two{0, 1};
    must(parts.store.load(two));
    parts.use(parts.storage_of(0));
    must(parts.scheduler.copy_stream_wait_for_all_uses());
    parts.device.fail(CallKind::copy, 1);
    CHECK_FALSE(parts.store.load(two));
    for (const std::uint32_t c : two) { CHECK_FALSE(parts.store.table().is_there(c)); }
    must(parts.store.load(two));
    for (const std::uint32_t c : two) { parts.use(parts.storage_of(c)); }
}

}  // namespace chunk_store_test
