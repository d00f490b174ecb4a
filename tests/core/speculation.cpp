// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Speculative copies: how many pieces travel at once, what stops them, and what goes on.

#include "residency/core/online/speculation.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/core/online_parts.hpp"

namespace speculation_test {

using namespace online_parts;
using core::SpeculativeCopy;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

/// Storages of 4 MiB, each predicted in the order of `predicted` for the step after the present one.
struct Speculating : Parts<> {
    explicit Speculating(std::uint64_t storages_that_fit)
        : Parts<>{4, storages_that_fit * 4 * MiB / page, true, 4 * MiB} {}

    void send(bool is_memory_short = true) {
        speculation.send_pieces(
            now, is_memory_short,
            [&] {
                SpeculativeCopy copy;
                if (predicted.empty()) { return copy; }
                const StorageId id{predicted.front()};
                const std::uint64_t evictions = counters.evictions;
                cache.commit_placements();
                if (cache.place_ahead(id, now + 1, now, [] {})) {
                    predicted.erase(predicted.begin());
                    copy = {id, 0, counters.evictions > evictions};
                }
                return copy;
            },
            [&](StorageId id) {
                ++given_up;
                return cache.evict(id).has_value();
            });
    }
    [[nodiscard]] std::uint64_t sent() { return counters.fetched_bytes; }

    std::vector<std::uint32_t> predicted;
    int given_up = 0;
};

}  // namespace

TEST_CASE("speculation: two pieces are in flight and no more, until the storage is there") {
    Speculating parts{4};
    parts.predicted = {2};
    parts.send();
    CHECK(parts.sent() == 2 * MiB);
    CHECK(parts.speculation.is_in_flight());
    CHECK(parts.speculation.has_copy());
    CHECK(parts.speculation.sent_bytes(StorageId{2}) == 2 * MiB);
    CHECK(parts.speculation.sent_bytes(StorageId{1}) == 0);
    CHECK(parts.state(2).partially_resident);
    parts.send();
    CHECK(parts.sent() == 2 * MiB);
    must(parts.device.synchronize());
    parts.send();
    CHECK(parts.sent() == 4 * MiB);
    CHECK_FALSE(parts.state(2).partially_resident);
    CHECK_FALSE(parts.speculation.has_copy());
    must(parts.device.synchronize());
    parts.send();
    CHECK(parts.sent() == 4 * MiB);
    CHECK_FALSE(parts.speculation.is_in_flight());
    parts.read(2);
}

TEST_CASE("speculation: a demanded copy is stopped, and the rest is what its first bytes leave") {
    Speculating parts{4};
    parts.predicted = {1};
    parts.send();
    const Fetch rest = parts.cache.copy_of(StorageId{1}, parts.speculation.sent_bytes(StorageId{1}));
    CHECK(rest.offset_bytes == 2 * MiB);
    CHECK(rest.bytes == 2 * MiB);
    parts.copy(rest);
    parts.speculation.stop(StorageId{0});
    CHECK(parts.speculation.has_copy());
    parts.speculation.stop(StorageId{1});
    CHECK_FALSE(parts.speculation.has_copy());
    parts.read(1);
}

TEST_CASE("speculation: a copy that took another's place is given up when its step has passed and memory is short") {
    Speculating parts{1};
    CHECK(parts.bring(0));
    parts.predicted = {1};
    parts.send();
    CHECK_FALSE(parts.is_there(0));
    must(parts.device.synchronize());
    parts.now = 1;
    parts.send();  // step 1 runs
    CHECK(parts.given_up == 0);
    CHECK(parts.speculation.sent_bytes(StorageId{1}) == 0);  // all of it is there
    must(parts.device.synchronize());

    parts.predicted = {2};
    parts.speculation.judge({}, false, 5);  // 1 was mispredicted
    parts.now = 5;
    parts.send();
    CHECK_FALSE(parts.is_there(1));
    must(parts.device.synchronize());
    parts.now = 8;
    SUBCASE("memory is short") {
        parts.send(true);
        CHECK(parts.given_up == 1);
        CHECK_FALSE(parts.is_there(2));
        CHECK_FALSE(parts.speculation.has_copy());
    }
    SUBCASE("everything fits") {
        parts.send(false);
        CHECK(parts.given_up == 0);
        CHECK(parts.is_there(2));
    }
    SUBCASE("it is leased") {
        parts.state(2).leases = 1;
        parts.send(true);
        CHECK(parts.given_up == 0);
        parts.state(2).leases = 0;
    }
}

TEST_CASE("speculation: an evicted storage is not sent on") {
    Speculating parts{4};
    parts.predicted = {3};
    parts.send();
    must(parts.device.synchronize());
    must(parts.cache.evict(StorageId{3}));
    CHECK_FALSE(parts.speculation.has_copy());
    const std::uint64_t sent = parts.sent();
    parts.send();
    CHECK(parts.sent() == sent);
    parts.predicted = {3};
    parts.send();
    CHECK(parts.speculation.sent_bytes(StorageId{3}) == 2 * MiB);  // from its first byte
}

TEST_CASE("speculation: a failed copy leaves the storage partly there, to be sent on") {
    Speculating parts{4};
    parts.predicted = {0};
    parts.device.fail(Device::CallKind::copy, 1);
    parts.send();
    parts.device.clear_failures();
    CHECK(parts.state(0).partially_resident);
    CHECK(parts.speculation.has_copy());
    CHECK(parts.speculation.sent_bytes(StorageId{0}) == 0);
    while (parts.state(0).partially_resident) {
        parts.send();
        must(parts.device.synchronize());
    }
    parts.read(0);
}

}  // namespace speculation_test
