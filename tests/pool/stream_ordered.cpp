// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/stream_ordered.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/streaming.hpp"

namespace stream_ordered_test {

using namespace streaming;
using residency::pool::Requirements;
using residency::pool::StreamOrdered;

TEST_SUITE_BEGIN("stream-ordered pool");

TEST_CASE("stream-ordered: storages are rounded up to 512 bytes, and lie in segments of whole granules of the driver") {
    CheckedDevice device;  // granules of 4,096 bytes
    const StreamOrdered<Device> pool;
    CHECK(pool.occupied(1) == 512);
    const auto room = [&](std::vector<std::uint64_t> sizes) {
        const Requirements requirements{sizes, std::span{sizes}.first(1), 0, 1};
        return residency::pool::ceiling_bytes(pool, device, requirements);
    };
    CHECK(room({1}) == 4096);
    CHECK(room({4096}) == 4096);
    CHECK(room({4097}) == 8192);
    CHECK(room({4097, 4097}) == 16384);             // the rest of a segment holds none
    CHECK(room({1000, 1000, 1000, 1000}) == 4096);  // 4 × 1,024
    CHECK(room({1500, 1500, 1500}) == 8192);        // 3 × 1,536, two a segment
    CHECK(room(std::vector<std::uint64_t>(80, 512)) == 40960);
    CHECK(room({2048, 2048}) == 8192);  // half a granule: counted with its own
}

TEST_CASE(
    "stream-ordered: under its ceiling everything fits, and under its floor a step, in whichever order they come") {
    constexpr unsigned seed = 5;
    MESSAGE("seed " << seed);
    std::mt19937_64 random{seed};
    for (int round = 0; round < 400; ++round) {
        CAPTURE(round);
        CheckedDevice device;
        const Stream stream = must(device.create_stream());
        std::vector<std::uint64_t> sizes(1 + random() % 40);
        for (std::uint64_t& bytes : sizes) { bytes = 1 + random() % (random() % 3 == 0 ? 3 * 4096 : 1500); }
        const Requirements requirements{sizes, std::span{sizes}.first(1 + random() % sizes.size()),
                                        std::ranges::max(sizes), 1};
        const auto fits = [&](std::vector<std::uint64_t> together, std::uint64_t cap) {
            std::ranges::shuffle(together, random);
            StreamOrdered<Device> pool;
            must(pool.open(device, requirements, cap));
            std::vector<std::pair<void*, std::uint64_t>> there;
            bool all = true;
            for (const std::uint64_t bytes : together) {
                void* const at = must(pool.allocate(bytes, stream));
                all = all && at != nullptr;
                if (at != nullptr) { there.emplace_back(at, bytes); }
            }
            for (const auto& [at, bytes] : there) { must(pool.deallocate(at, bytes, stream)); }
            must(device.synchronize(stream));
            return all;
        };
        const StreamOrdered<Device> pool;
        CHECK(fits(sizes, residency::pool::ceiling_bytes(pool, device, requirements)));
        CHECK(fits({requirements.step.begin(), requirements.step.end()}, pool.floor_bytes(device, requirements)));
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("stream-ordered: where the device does not say what a pool holds, it is no more than it can hold") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    std::vector<std::uint64_t> sizes(8, 4096);
    const Requirements requirements{sizes, std::span{sizes}.first(1), 4096, 1};
    StreamOrdered<Device> pool;
    must(pool.open(device, requirements, 8 * 4096));
    const auto is_known = [&] {
        for (std::uint64_t nth = 1; nth <= 4; ++nth) { device.fail(residency::simulation::CallKind::held_bytes, nth); }
        const std::uint64_t without_device = pool.held_bytes();
        device.clear_failures();
        return without_device == pool.held_bytes();
    };
    CHECK(is_known());
    std::vector<residency::pool::Place> there;
    for (int i = 0; i < 5; ++i) {
        there.push_back({must(pool.allocate(4096, stream)), 4096, false});
        CHECK(is_known());
    }
    // A smaller cap: the closed pool, and one that holds nothing yet.
    must(pool.resize(2 * 4096, there));
    CHECK(is_known());
    for (const auto& place : there) { must(pool.deallocate(place.at, place.bytes, stream)); }
    must(device.synchronize(stream));
    must(pool.commit_resize());
    CHECK(is_known());
    must(pool.try_close());
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace stream_ordered_test
