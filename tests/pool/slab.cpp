// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/slab.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "residency/pool/stream_ordered.hpp"
#include "tests/support/streaming.hpp"

namespace slab_test {

using namespace streaming;
using residency::pool::Requirements;
using residency::pool::Slab;
using residency::pool::StreamOrdered;

TEST_SUITE_BEGIN("pools");

TEST_CASE("slab: slots of 256 bytes, memory in pages") {
    CheckedDevice device;
    const std::vector<std::uint64_t> sizes(10, 5000);
    const Requirements requirements{sizes, std::span{sizes}.first(2), 5000, 1};
    Slab<Device> pool;
    CHECK(pool.occupied(100) == 100);
    CHECK(pool.floor_bytes(device, requirements) == 12288);                      // 2 × 5120
    CHECK(residency::pool::ceiling_bytes(pool, device, requirements) == 53248);  // 10 × 5120
    must(pool.open(device, requirements, 20000));
    CHECK(pool.occupied(100) == 5120);
    CHECK(pool.held_bytes() == 16384);
}

TEST_CASE("slots honour the largest alignment; a stream-ordered pool refuses more than the driver promises") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    const std::vector<std::uint64_t> sizes(4, 5000);
    const Requirements requirements{sizes, std::span{sizes}.first(1), 5000, 65536};
    Slab<Device> slab;
    const std::uint64_t ceiling = residency::pool::ceiling_bytes(slab, device, requirements);
    must(slab.open(device, requirements, ceiling));
    CHECK(slab.held_bytes() <= ceiling);
    for (int i = 0; i < 4; ++i) {
        CHECK(reinterpret_cast<std::uintptr_t>(must(slab.allocate(5000, stream))) % 65536 == 0);
    }
    slab.close();
    StreamOrdered<Device> ordered;
    const auto refused = ordered.open(device, requirements, 65536);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == residency::ErrorKind::unsupported);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace slab_test
