// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/chunk_loader.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/core/planned_parts.hpp"

namespace chunk_loader_test {

using namespace planned_parts;
using residency::simulation::CallKind;

TEST_CASE("chunk loader: chunks are copied in one call, in pieces of storages, and counted") {
    std::vector<Spec> specs{{chunk / 2}, {chunk}, {3 * chunk}, {100}, {2 * chunk}};
    Parts parts{specs};
    must(parts.adopt(parts.make_plan(16 * chunk)));
    std::vector<std::uint32_t> all;
    std::uint64_t bytes = 0;
    for (std::uint32_t c = 0; c < parts.store.table().chunks(); ++c) { all.push_back(c); }
    for (const Spec& spec : specs) { bytes += spec.bytes; }
    must(parts.loader.load(all));
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

TEST_CASE("chunk loader: around leases only absent chunks are copied, behind all recorded uses, or nothing is done") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    const plan::Plan& made = parts.store.plan();
    for (int pass = 0; pass < 3; ++pass) {
        for (const plan::Call& call : made.calls()) {
            CHECK(must(parts.loader.load_around_leases(made.copies(call))));
            const std::size_t calls = parts.log->enqueued.size();
            CHECK(must(parts.loader.load_around_leases(made.copies(call))));
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
        const auto loaded = must(parts.loader.load_around_leases(made.copies(call)));
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

TEST_CASE("chunk loader: after a copy that failed its slots hold nothing, and it can be repeated") {
    Parts parts{chunks(4)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    const std::vector<std::uint32_t> two{0, 1};
    must(parts.loader.load(two));
    parts.use(parts.storage_of(0));
    must(parts.scheduler.copy_stream_wait_for_all_uses());
    parts.device.fail(CallKind::copy, 1);
    CHECK_FALSE(parts.loader.load(two));
    for (const std::uint32_t c : two) { CHECK_FALSE(parts.store.table().is_there(c)); }
    must(parts.loader.load(two));
    for (const std::uint32_t c : two) { parts.use(parts.storage_of(c)); }
}

}  // namespace chunk_loader_test
