// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/slab.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "residency/pool/stream_ordered.hpp"
#include "tests/support/streaming.hpp"

using namespace streaming;
using residency::pool::Needs;
using residency::pool::Slab;
using residency::pool::StreamOrdered;

TEST_SUITE_BEGIN("pools");

TEST_CASE("slab: as many slots as the cap has, each apart; none free is null; all comes back") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    Needs needs;
    needs.storages = 10;
    needs.largest_storage_bytes = 5000;
    needs.total_bytes = 50000;
    needs.step_storages = 2;
    Slab<Device> pool;
    CHECK(pool.occupied(100) == 100);
    CHECK(pool.floor_bytes(device, needs) == 12288);    // 2 × 5120, in pages
    CHECK(pool.ceiling_bytes(device, needs) == 53248);  // 10 × 5120, in pages
    must(pool.open(device, needs, 20000));
    CHECK(pool.held_bytes() == 16384);
    CHECK(device.peak_used_bytes() == 16384);
    std::vector<void*> places;
    for (int i = 0; i < 3; ++i) { places.push_back(must(pool.allocate(5000, stream))); }
    CHECK(std::set<void*>(places.begin(), places.end()).size() == 3);
    CHECK(must(pool.allocate(1, stream)) == nullptr);
    CHECK(pool.requested_bytes() == 3 * 5120);
    must(pool.deallocate(places[1], 5000, stream));
    CHECK(must(pool.allocate(1, stream)) == places[1]);
    Slab<Device> moved{std::move(pool)};
    CHECK(moved.held_bytes() == 16384);
    CHECK(pool.held_bytes() == 0);
    moved.close();
    CHECK(moved.held_bytes() == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("slots honour the largest alignment; a stream-ordered pool refuses more than the driver promises") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    Needs needs;
    needs.storages = 4;
    needs.largest_storage_bytes = 5000;
    needs.total_bytes = 20000;
    needs.largest_alignment_bytes = 65536;
    Slab<Device> slab;
    const std::uint64_t ceiling = slab.ceiling_bytes(device, needs);
    must(slab.open(device, needs, ceiling));
    CHECK(slab.held_bytes() <= ceiling);
    for (int i = 0; i < 4; ++i) {
        CHECK(reinterpret_cast<std::uintptr_t>(must(slab.allocate(5000, stream))) % 65536 == 0);
    }
    slab.close();
    StreamOrdered<Device> ordered;
    const auto refused = ordered.open(device, needs, 65536);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == residency::ErrorKind::unsupported);
    must(device.destroy_stream(stream));
}

TEST_CASE("stream-ordered: rounds the cap down and requests up; exhaustion is null; what failed changed nothing") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    Needs needs;
    needs.storages = 3;
    needs.total_bytes = 9000;
    needs.step_bytes = 4096;
    StreamOrdered<Device> pool;
    CHECK(pool.occupied(1) == 512);
    CHECK(pool.floor_bytes(device, needs) == 8192);
    must(pool.open(device, needs, 9000));
    void* const first = must(pool.allocate(4000, stream));
    void* const second = must(pool.allocate(4096, stream));
    CHECK(pool.requested_bytes() == 8192);
    CHECK(must(pool.allocate(1, stream)) == nullptr);
    CHECK(pool.held_bytes() == 8192);
    device.fail(Device::CallKind::pool_deallocate, 1);
    CHECK_FALSE(pool.deallocate(first, 4000, stream));
    CHECK(pool.requested_bytes() == 8192);
    must(pool.deallocate(first, 4000, stream));
    CHECK(pool.requested_bytes() == 4096);
    must(pool.deallocate(second, 4096, stream));
    must(device.synchronize(stream));
    must(pool.recover());
    CHECK(pool.held_bytes() == 0);
    pool.close();
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();
