// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/resident_queue.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/core/planned_parts.hpp"

namespace resident_queue_test {

using namespace planned_parts;
using residency::core::ResidentQueue;

namespace {

/// The resident copies of the plan whose chunks are all there.
std::size_t count_there(const Parts& parts) {
    std::size_t count = 0;
    for (const plan::Copy& copy : parts.store.plan().residents()) {
        const bool lacks_any = residency::core::any_chunk(
            parts.store.plan(), {&copy, 1}, [&](std::uint32_t c) { return !parts.store.table().is_there(c); });
        count += lacks_any ? 0U : 1U;
    }
    return count;
}

}  // namespace

TEST_CASE("resident queue: residents are brought up to the step that is asked for, once") {
    for (std::uint64_t budget = 3; budget <= 8; ++budget) {
        CAPTURE(budget);
        Parts parts{chunks(8)};
        must(parts.adopt(parts.make_plan(budget * chunk)));
        ResidentQueue<Device> queue{parts.store};
        queue.start(parts.factory.problem());
        const auto residents = parts.store.plan().residents();
        for (std::uint32_t step = 0; step < 8; ++step) {
            must(queue.bring_for(step));
            CHECK(queue.has_all_for(step));
            std::size_t expected = 0;
            while (expected < residents.size() && residents[expected].needed_by <= step) { ++expected; }
            CHECK(count_there(parts) == expected);
        }
        must(queue.bring_for(plan::none));
        CHECK(queue.has_all());
        const std::size_t calls = parts.log->enqueued.size();
        must(queue.bring_for(plan::none));
        queue.start_again();  // all of them are there
        must(queue.bring_for(plan::none));
        CHECK(parts.log->enqueued.size() == calls);
    }
}

TEST_CASE("resident queue: one that was evicted is brought again, and a lease in its place holds up the rest") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(5 * chunk)));
    ResidentQueue<Device> queue{parts.store};
    queue.start(parts.factory.problem());
    must(queue.bring_for(plan::none));
    const auto residents = parts.store.plan().residents();
    REQUIRE(residents.size() >= 1);
    const std::uint32_t resident = *parts.store.plan().chunks_of_copy(residents.front()).begin();
    std::uint32_t other = 0;  // a chunk of the ring
    while (parts.store.table().stays(other)) { ++other; }
    must(parts.store.remap_chunk(other, parts.store.plan().slot_of_chunk(resident)));
    queue.note_eviction(resident);
    must(parts.store.load({&other, 1}));
    CHECK_FALSE(queue.has_all());
    parts.hold(parts.storage_of(other));
    must(queue.bring_for(plan::none));
    CHECK_FALSE(queue.has_all());
    CHECK(parts.store.table().is_there(other));
    parts.uses.set_records_residents(true);
    parts.read(parts.storage_of(other));
    parts.let_go(parts.storage_of(other));
    must(queue.bring_for(plan::none));
    CHECK(queue.has_all());
    CHECK(parts.store.table().is_there(resident));
    parts.use(parts.storage_of(resident));
}

}  // namespace resident_queue_test
