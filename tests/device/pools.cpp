// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Pools under random use: blocks do not overlap, caps hold at every instant, no byte is lost.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace pools_test {

using residency::ErrorKind;
using residency::SimulatedDevice;
using residency::Timing;
using support::must;

TEST_CASE("random allocation in two capped pools on three streams") {
    const std::uint64_t first_seed = 20260401;
    MESSAGE("seeds from " << first_seed);
    int refusals = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 40; ++seed) {
        INFO("seed " << seed);
        std::mt19937_64 random{seed};
        auto config = support::small_device();
        config.memory_bytes = 6 * 65536;  // less than the caps together
        config.jitter = 5;
        config.seed = seed;
        SimulatedDevice device{config};
        const std::vector<SimulatedDevice::Pool> pools{must(device.create_pool(4 * 65536)),
                                                       must(device.create_pool(4 * 65536))};
        const std::vector<SimulatedDevice::Stream> streams{
            must(device.create_stream()), must(device.create_stream()), {}};
        struct Block {
            std::uint64_t bytes;
            std::size_t pool, stream;
            std::byte value;
        };
        std::map<std::byte*, Block> blocks;
        bool intact = true;
        for (int step = 0; step < 400; ++step) {
            const std::size_t pool = random() % 2, stream = random() % 3;
            if (random() % 5 < 3 || blocks.empty()) {
                const std::uint64_t bytes = 1 + random() % 40000;
                const auto result = device.allocate(pools[pool], bytes, streams[stream]);
                if (!result) {
                    CHECK(result.error().kind() == ErrorKind::out_of_memory);
                    ++refusals;
                    continue;
                }
                auto* const at = static_cast<std::byte*>(*result);
                const auto next = blocks.lower_bound(at);
                CHECK((next == blocks.end() || at + bytes <= next->first));
                CHECK((next == blocks.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= at));
                CHECK(reinterpret_cast<std::uintptr_t>(at) % config.pool_block_bytes == 0);
                const auto value = static_cast<std::byte>(random());
                must(device.fill(at, value, bytes, streams[stream]));
                blocks.emplace(at, Block{bytes, pool, stream, value});
            } else {
                auto chosen = blocks.begin();
                std::advance(chosen, static_cast<std::ptrdiff_t>(random() % blocks.size()));
                const auto [at, block] = *chosen;
                must(device.launch(streams[block.stream],
                                   {.name = "check",
                                    .reads = {{at, block.bytes}},
                                    .writes = {},
                                    .body = [&intact, first = at, count = block.bytes, value = block.value] {
                                        for (std::uint64_t i = 0; i < count; ++i) {
                                            intact = intact && first[i] == value;
                                        }
                                    }}));
                must(device.deallocate(pools[block.pool], at, streams[block.stream]));
                blocks.erase(chosen);
            }
            std::uint64_t held = 0;
            for (const auto handle : pools) {
                held += must(device.held_bytes(handle));
                CHECK(must(device.held_bytes(handle)) <= 4 * 65536);
                CHECK(device.peak_held_bytes(handle) <= 4 * 65536);
            }
            CHECK(must(device.memory()).free_bytes == config.memory_bytes - held);
            if (random() % 50 == 0) { must(device.trim(pools[pool])); }
        }
        CHECK(device.peak_used_bytes() <= config.memory_bytes);
        for (const auto& [at, block] : blocks) {
            must(device.deallocate(pools[block.pool], at, streams[block.stream]));
        }
        must(device.synchronize());
        CHECK(intact);
        for (const auto pool : pools) {
            must(device.trim(pool));
            CHECK(must(device.held_bytes(pool)) == 0);
            must(device.destroy_pool(pool));
        }
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
    }
    CHECK(refusals > 100);
}

TEST_CASE("a pool destroyed with deallocations pending gives its memory back when they have run") {
    SimulatedDevice device{support::small_device()};
    const auto stream = must(device.create_stream());
    const auto pool = must(device.create_pool(65536));
    void* const at = must(device.allocate(pool, 65536, stream));
    must(device.launch(
        stream, {.name = "long", .duration = std::chrono::seconds{1}, .reads = {}, .writes = {{at, 8}}, .body = {}}));
    must(device.deallocate(pool, at, stream));
    must(device.destroy_pool(pool));
    const auto before = must(device.memory());
    CHECK(before.free_bytes == before.total_bytes - 65536);
    must(device.synchronize(stream));
    CHECK(must(device.memory()).free_bytes == before.total_bytes);
    CHECK(device.report_count() == 0);
}

TEST_CASE("a whole pool of free segments makes room for a larger block") {
    SimulatedDevice device{support::small_device()};
    const auto pool = must(device.create_pool(2 * 65536));
    void* const a = must(device.allocate(pool, 65536, {}));
    void* const b = must(device.allocate(pool, 65536, {}));
    must(device.deallocate(pool, a, {}));
    must(device.deallocate(pool, b, {}));
    must(device.synchronize());
    void* const both = must(device.allocate(pool, 2 * 65536, {}));
    CHECK(must(device.held_bytes(pool)) == 2 * 65536);
    must(device.deallocate(pool, both, {}));
}

}  // namespace pools_test
