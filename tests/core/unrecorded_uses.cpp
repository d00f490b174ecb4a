// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/unrecorded_uses.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

#include "tests/core/planned_parts.hpp"

namespace unrecorded_uses_test {

using namespace planned_parts;

namespace {

/// Everything is there, and storage 0 is being read for a millisecond, without a record.
void start_unrecorded_read(Parts& parts) {
    must(parts.adopt(parts.make_plan(4 * chunk)));
    CHECK(parts.pass() == 4);
    must(parts.scheduler.drain());
    parts.read(0, std::chrono::milliseconds{1});
    parts.scheduler.note_use(parts.reader);
}

}  // namespace

TEST_CASE("unrecorded uses: before residents may be evicted, their unrecorded uses are waited for, once") {
    Parts parts{chunks(4)};
    start_unrecorded_read(parts);
    CHECK_FALSE(parts.uses.records_residents());
    const std::uint64_t waits = parts.counters.host_waits;
    must(parts.uses.record_residents());
    CHECK(parts.uses.records_residents());
    CHECK(parts.counters.host_waits == waits + 1);
    const std::uint32_t c = parts.chunk_of(0);
    must(parts.store.load({&c, 1}));  // overwrites what was read
    must(parts.uses.record_residents());
    CHECK(parts.counters.host_waits == waits + 1);
}

TEST_CASE("unrecorded uses: a lost use is complete once it was waited for; without one nothing waits") {
    Parts parts{chunks(4)};
    start_unrecorded_read(parts);
    const auto before = parts.device.host_time();
    must(parts.uses.wait_for_lost_uses());
    CHECK(parts.device.host_time() - before < std::chrono::milliseconds{1});
    const std::uint64_t waits = parts.counters.host_waits;
    parts.uses.note_lost();
    CHECK(parts.uses.has_lost());
    must(parts.uses.wait_for_lost_uses());
    CHECK(parts.counters.host_waits == waits + 1);
    CHECK_FALSE(parts.uses.has_lost());
    const std::uint32_t c = parts.chunk_of(0);
    must(parts.store.load({&c, 1}));
    parts.uses.note_lost();
    parts.uses.forget_lost();
    CHECK_FALSE(parts.uses.has_lost());
}

TEST_CASE("unrecorded uses: the copy stream waits for every recorded use") {
    Parts parts{chunks(4)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    CHECK(parts.pass() == 4);
    parts.hold(0);
    parts.read(0, std::chrono::milliseconds{1});
    parts.let_go(0);
    must(parts.scheduler.copy_stream_wait_for_all_uses());
    const std::uint32_t c = parts.chunk_of(0);
    must(parts.store.load({&c, 1}));
}

}  // namespace unrecorded_uses_test
