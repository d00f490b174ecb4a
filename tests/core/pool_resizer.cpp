// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Another cap, of a pool that can be resized and of one that cannot.

#include "residency/core/online/pool_resizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/core/compositions.hpp"
#include "tests/core/online_parts.hpp"
#include "tests/support/fixed_pool.hpp"

namespace pool_resizer_test {

using namespace online_parts;
using residency::Budget;
using residency::ErrorKind;
using Ids = std::vector<std::uint32_t>;
using Slab = residency::pool::Slab<Device>;
using Fixed = support::FixedPool<Slab>;
using OnFixed = residency::Residency<residency::evict::Lru, residency::prefetch::None, Fixed>;

TEST_CASE("cap change: a pool that can be resized keeps what may stay, and moves what has to") {
    Parts<> parts{6, 4};
    for (const std::uint32_t i : {0U, 1U, 2U, 3U}) { CHECK(parts.bring(i)); }
    parts.read(1);
    parts.read(0);
    must(parts.scheduler.drain());
    must(parts.change.set_cap(3 * page, parts.limits, 0));
    CHECK(parts.there() == Ids{0, 1, 3});  // 2 was used least recently
    CHECK(parts.counters.moved_bytes == page);
    CHECK(parts.used_bytes() == 3 * page);
    CHECK_FALSE(parts.change.is_pending());
    for (const std::uint32_t i : {0U, 1U, 3U}) { parts.read(i); }
}

TEST_CASE("cap change: leased storages stay, and move or leave before their next use") {
    Parts<> parts{4, 3};
    for (const std::uint32_t i : {0U, 1U, 2U}) { CHECK(parts.bring(i)); }
    parts.state(2).leases = 1;
    must(parts.scheduler.drain());
    const std::byte* const at = parts.state(2).address;
    must(parts.change.set_cap(page, parts.limits, 0));
    CHECK(parts.there() == Ids{2});
    CHECK(parts.state(2).address == at);
    CHECK(parts.change.is_pending());
    parts.read(2, std::chrono::milliseconds{1});
    must(parts.change.reclaim_pending());
    CHECK(parts.change.is_pending());  // it is leased
    parts.state(2).leases = 0;
    must(parts.change.reclaim_pending());
    CHECK(parts.state(2).address == at);  // it is being read
    const StorageId wanted{2};
    must(parts.change.move_before_use({&wanted, 1}));
    CHECK_FALSE(parts.is_there(2));  // its memory is all that the cap has: there is no other place
    must(parts.device.synchronize());
    must(parts.change.reclaim_pending());
    CHECK(parts.change.is_pending());  // its departure is recorded now
    must(parts.device.synchronize());
    must(parts.change.reclaim_pending());
    CHECK_FALSE(parts.change.is_pending());
    CHECK(parts.used_bytes() == page);
}

TEST_CASE("cap change: a pool that cannot be resized is emptied and opened anew") {
    Parts<Fixed> parts{6, 4};
    for (const std::uint32_t i : {0U, 1U, 2U, 3U}) { CHECK(parts.bring(i)); }
    parts.read(3);
    must(parts.scheduler.drain());
    SUBCASE("smaller") {
        must(parts.change.set_cap(2 * page, parts.limits, 0));
        CHECK(parts.there().empty());
        CHECK(parts.counters.evictions == 4);
        CHECK(parts.used_bytes() == 2 * page);
        for (const std::uint32_t i : {0U, 1U, 2U}) {
            CHECK(parts.bring(i));
            parts.read(i);
        }
        CHECK(parts.there() == Ids{1, 2});
    }
    SUBCASE("everything fits") {
        must(parts.change.set_cap(6 * page, parts.limits, 0));
        CHECK(parts.cache.everything_fits());
        for (std::uint32_t i = 0; i < 6; ++i) { CHECK(parts.bring(i)); }
        CHECK(parts.counters.evictions == 4);
    }
    SUBCASE("the same") {
        must(parts.change.set_cap(4 * page, parts.limits, 0));
        CHECK(parts.there() == Ids{0, 1, 2, 3});
        CHECK(parts.bring(4));
        CHECK(parts.there() == Ids{1, 2, 3, 4});  // the evictor has kept its order
    }
    CHECK_FALSE(parts.change.is_pending());
}

TEST_CASE("cap change: a pool that cannot be resized keeps its cap while storages are leased") {
    Parts<Fixed> parts{6, 4};
    for (const std::uint32_t i : {0U, 1U, 2U}) { CHECK(parts.bring(i)); }
    parts.state(1).leases = 1;
    must(parts.scheduler.drain());
    const auto changed = parts.change.set_cap(2 * page, parts.limits, 0);
    REQUIRE_FALSE(changed);
    CHECK(changed.error().kind() == ErrorKind::wrong_state);
    CHECK(changed.error().message().find("4,096 bytes (4 KiB)") != std::string::npos);
    CHECK(parts.cache.cap_bytes() == 4 * page);
    CHECK(parts.there() == Ids{0, 1, 2});
    CHECK(parts.counters.evictions == 0);
    CHECK(parts.bring(3));
    CHECK(parts.bring(4));
    CHECK(parts.there() == Ids{1, 2, 3, 4});
    parts.state(1).leases = 0;
    must(parts.scheduler.drain());
    must(parts.change.set_cap(2 * page, parts.limits, 0));
    CHECK(parts.used_bytes() == 2 * page);
}

TEST_CASE(
    "cap change: whatever call fails, a pool that cannot be resized is open under one of the two caps, or closed") {
    for (std::uint64_t nth = 1; nth < 40; ++nth) {
        CAPTURE(nth);
        Parts<Fixed> parts{6, 4};
        for (const std::uint32_t i : {0U, 1U, 2U, 3U}) { CHECK(parts.bring(i)); }
        must(parts.scheduler.drain());
        parts.device.fail(Device::CallKind::any, nth);
        const auto changed = parts.change.set_cap(2 * page, parts.limits, 0);
        parts.device.clear_failures();
        CHECK(parts.cache.cap_bytes() == (changed ? 2 * page : 4 * page));
        CHECK(parts.used_bytes() <= parts.cache.cap_bytes());
        if (!parts.cache.is_open()) { must(parts.change.set_cap(4 * page, parts.limits, 0)); }
        CHECK(parts.bring(5));
        parts.read(5);
    }
}

TEST_CASE(
    "cap change: whatever call fails, what counts as there has its bytes, also where those that leave are "
    "overwritten") {
    for (std::uint64_t nth = 1; nth < 60; ++nth) {
        CAPTURE(nth);
        Parts<residency::pool::StreamOrdered<Device>> parts{6, 4};
        parts.context.poison = true;
        for (const std::uint32_t i : {0U, 1U, 2U, 3U}) { CHECK(parts.bring(i)); }
        must(parts.scheduler.drain());
        parts.device.fail(Device::CallKind::any, nth);
        static_cast<void>(parts.change.set_cap(3 * page, parts.limits, 0).has_value());
        parts.device.clear_failures();
        for (const std::uint32_t i : parts.there()) {
            if (!parts.state(i).partially_resident) { parts.read(i); }
        }
    }
}

TEST_CASE("a composition over a pool that cannot be resized follows its budget") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnFixed>(device, model, 4 * page, in_order(model));
        run_pass(weights, model, stream);
        auto change = must(weights.try_set_budget(Budget::bytes(3 * page)));
        CHECK(change.held_bytes == 3 * page);
        CHECK(change.evicted_bytes == 4 * page);
        CHECK(change.pending_bytes == 0);
        run_pass(weights, model, stream);
        {
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(2)));
            must(pass.try_end());
            const auto refused = weights.try_set_budget(Budget::bytes(8 * page));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::wrong_state);
            CHECK(weights.budget().bytes == 3 * page);
            verify(device, model, lease, weight(2), stream);
        }
        run_pass(weights, model, stream);
        must(weights.try_set_budget(Budget::bytes(8 * page)));
        CHECK_FALSE(weights.statistics().streaming);
        run_pass(weights, model, stream);
        const std::uint64_t misses = weights.statistics().total.demand_misses;
        run_pass(weights, model, stream);
        CHECK(weights.statistics().total.demand_misses == misses);
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(device.peak_used_bytes() <= 8 * page);
    }
    must(device.destroy_stream(stream));
}

}  // namespace pool_resizer_test
