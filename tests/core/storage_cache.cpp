// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Who leaves for whom, and what is undone.

#include "residency/core/online/storage_cache.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/core/online_parts.hpp"

namespace storage_cache_test {

using namespace online_parts;
using Ids = std::vector<std::uint32_t>;

TEST_CASE("storage cache: nothing leaves while everything fits, the evictor's victims otherwise") {
    Parts<> parts{4, 4};
    CHECK(parts.cache.everything_fits());
    for (std::uint32_t i = 0; i < 4; ++i) { CHECK(parts.bring(i)); }
    CHECK(parts.counters.evictions == 0);

    Parts<> few{4, 2};
    CHECK_FALSE(few.cache.everything_fits());
    CHECK(few.bring(0));
    CHECK(few.bring(1));
    few.read(0);
    CHECK(few.bring(2));  // 1 was used least recently
    CHECK(few.there() == Ids{0, 2});
    few.state(0).leases = few.state(2).leases = 1;
    CHECK_FALSE(few.bring(3));
    CHECK(few.there() == Ids{0, 2});
    few.state(0).leases = few.state(2).leases = 0;
    CHECK(few.counters.evictions == 1);
    CHECK(few.counters.evicted_bytes == page);
}

TEST_CASE("storage cache: placements are rolled back, also after a failed call, and committed ones are not") {
    Parts<> parts{4, 3};
    CHECK(parts.bring(0));
    CHECK(must(parts.cache.place(StorageId{1}, 0, any, [] {})));
    CHECK(must(parts.cache.place(StorageId{2}, 0, any, [] {})));
    CHECK(parts.state(1).partially_resident);
    parts.cache.roll_back_placements();
    CHECK(parts.there() == Ids{0});
    parts.cache.roll_back_placements();
    CHECK(parts.there() == Ids{0});
    for (const std::uint32_t i : {1U, 2U, 3U}) { CHECK(parts.bring(i)); }
    CHECK(parts.there() == Ids{1, 2, 3});
    for (const std::uint32_t i : {1U, 2U, 3U}) { parts.read(i); }
}

TEST_CASE("storage cache: copies are sent before the copy stream waits for a use, and only then") {
    Parts<> parts{3, 2};
    CHECK(parts.bring(0));
    CHECK(parts.bring(1));
    int calls = 0;
    const auto before_wait = [&] { ++calls; };
    CHECK(must(parts.cache.place(StorageId{2}, 0, any, before_wait)));  // 0 has not been read
    CHECK(calls == 0);
    parts.cache.roll_back_placements();
    parts.read(1, std::chrono::milliseconds{1});
    CHECK(parts.bring(0));
    const auto is_1 = [](StorageId id) { return index(id) == 1; };
    CHECK(must(parts.cache.place(StorageId{2}, 0, is_1, before_wait)));
    CHECK(calls == 1);
}

TEST_CASE("storage cache: what is brought ahead takes the place only of what is needed later") {
    Parts<> parts{4, 2};
    const residency::UseOrder order = in_order(parts.model).use_order();
    parts.context.order = &order;
    must(parts.cache.rank_again(0));
    CHECK(parts.bring(1));
    CHECK(parts.bring(3));
    const auto ahead = [&](std::uint32_t i, residency::StepIndex needed_by) {
        parts.cache.commit_placements();
        const bool placed = parts.cache.place_ahead(StorageId{i}, needed_by, 0, [] {});
        if (placed) { parts.copy(parts.cache.copy_of(StorageId{i})); }
        return placed;
    };
    CHECK_FALSE(ahead(0, 4));  // 1 and 3 are needed sooner
    CHECK(ahead(2, 2));        // 3 is not
    CHECK(parts.there() == Ids{1, 2});
    CHECK(parts.state(2).prefetched);
    CHECK(parts.state(2).needed_by == 2);
}

TEST_CASE("storage cache: mispredicted storages leave before the evictor's victims") {
    Parts<> parts{4, 2, true};
    CHECK(parts.bring(0));
    // A prediction for step 1 that nobody reads.
    bool has_begun = false;
    const auto begin = [&] {
        if (std::exchange(has_begun, true)) { return core::SpeculativeCopy{}; }
        CHECK(parts.cache.place_ahead(StorageId{1}, 1, 0, [] {}));
        return core::SpeculativeCopy{StorageId{1}, 0, false};
    };
    parts.speculation.send_pieces(0, true, begin, [](StorageId) { return false; });
    CHECK(parts.there() == Ids{0, 1});
    parts.speculation.judge({}, false, 2);
    CHECK(parts.bring(2));
    CHECK(parts.there() == Ids{0, 2});
}

}  // namespace storage_cache_test
