// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/chunk_stock.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "residency/pool/virtual.hpp"
#include "tests/support/streaming.hpp"

namespace chunk_stock_test {

using streaming::CheckedDevice;
using streaming::message_of;
using streaming::must;
using streaming::Stream;
using Device = residency::SimulatedDevice;
using CallKind = Device::CallKind;
using Stock = residency::pool::ChunkStock<Device>;
using Virtual = residency::pool::Virtual<Device>;
using Table = std::vector<std::uint32_t>;

namespace {

constexpr std::uint64_t chunk = 4096;

std::uint64_t used(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}
std::uint64_t driver_calls(const Device& device) {
    std::uint64_t calls = 0;
    for (const auto kind : {CallKind::map, CallKind::unmap, CallKind::create_chunk, CallKind::destroy_chunk,
                            CallKind::reserve, CallKind::release}) {
        calls += device.statistics().of(kind);
    }
    return calls;
}
Virtual::Config of(Stock& stock) {
    Virtual::Config config;
    config.stock = &stock;
    return config;
}
/// Whether a kernel writes and reads every chunk where it is addressed.
bool works(Device& device, const Virtual& pool, std::uint32_t chunks) {
    for (std::uint32_t i = 0; i < chunks; ++i) {
        must(device.fill(pool.base() + i * chunk, static_cast<std::byte>(i + 1), chunk, Stream{}));
    }
    must(device.synchronize());
    bool same = true;
    for (std::uint32_t i = 0; i < chunks; ++i) {
        const std::byte* const at = pool.base() + i * chunk;
        must(device.launch(Stream{}, {.name = "look", .reads = {{at, chunk}}, .writes = {}, .body = [at, i, &same] {
                                          same = same &&
                                                 std::count(at, at + chunk, static_cast<std::byte>(i + 1)) == chunk;
                                      }}));
    }
    must(device.synchronize());
    return same;
}

}  // namespace

TEST_SUITE_BEGIN("pool::ChunkStock");

TEST_CASE("pools that take turns call no driver, and keep their addresses") {
    CheckedDevice device;
    Stock stock{device, 13 * chunk, chunk};
    Virtual one{of(stock)}, two{of(stock)};
    for (auto* pool : {&one, &two}) {
        must(pool->open(device, 10 * chunk));
        must(pool->hold(10));
        must(pool->sleep());
        CHECK(pool->held_bytes() == 0);
    }
    const std::byte *const base = one.base(), *const other = two.base();
    const std::uint64_t calls = driver_calls(device);
    for (int i = 0; i < 5; ++i) {
        for (auto* pool : {&one, &two}) {
            must(pool->hold(10));
            CHECK(stock.used_bytes() == 10 * chunk);
            CHECK(works(device, *pool, 10));
            must(pool->sleep());
            CHECK(stock.used_bytes() == 0);
        }
    }
    CHECK(driver_calls(device) == calls);
    CHECK(one.base() == base);
    CHECK(two.base() == other);
    CHECK(stock.held_bytes() == 13 * chunk);
}

TEST_CASE(
    "the limit: what is asked for beyond it is refused in words, unless somebody gives more; what is free goes back") {
    CheckedDevice device;
    Stock stock{device, 4 * chunk + 100, chunk};
    CHECK(stock.limit_bytes() == 4 * chunk);
    Virtual one{of(stock)}, two{of(stock)};
    must(one.open(device, 8 * chunk));
    must(two.open(device, 8 * chunk));
    must(one.hold(3));
    const auto refused = two.hold(2);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == residency::ErrorKind::out_of_memory);
    CHECK(message_of(refused).find("of the stock's limit of") != std::string::npos);
    CHECK(stock.used_bytes() == 3 * chunk);
    int given = 0;
    stock.on_short([&](std::uint64_t bytes) { return bytes == chunk && ++given <= 1; });
    must(two.hold(2));
    CHECK(stock.limit_bytes() == 5 * chunk);
    CHECK(stock.free_bytes() == 0);

    // The sleeper's addresses leave with the chunks.
    must(one.sleep());
    const std::uint64_t unmapped = device.statistics().of(CallKind::unmap);
    must(stock.try_set_limit(3 * chunk));
    CHECK(stock.held_bytes() == 3 * chunk);
    CHECK(device.statistics().of(CallKind::unmap) > unmapped);
    CHECK_FALSE(one.hold(3));
    must(two.sleep());
    must(one.hold(3));
    CHECK(works(device, one, 3));
}

TEST_CASE("chunks that others have: the addresses are mapped on other chunks, and stay") {
    CheckedDevice device;
    Stock stock{device, 8 * chunk, chunk};
    Virtual one{of(stock)}, two{of(stock)};
    must(one.open(device, 4 * chunk));
    must(two.open(device, 4 * chunk));
    must(one.hold(4));
    must(one.sleep());
    must(stock.try_set_limit(4 * chunk));
    must(two.hold(4));  // on the chunks of the first one
    must(stock.try_set_limit(8 * chunk));
    const std::byte* const base = one.base();
    CHECK_FALSE(one.wake_chunk(0));
    must(one.hold(4));
    CHECK(one.base() == base);
    CHECK(works(device, two, 4));
    CHECK(works(device, one, 4));
    CHECK(stock.used_bytes() == 8 * chunk);
    // One chunk ahead of the others, and the rest in another arrangement.
    must(one.sleep());
    CHECK(one.wake_chunk(2));
    CHECK(one.wake_chunk(2));
    CHECK(one.held_bytes() == chunk);
    must(one.arrange(2, Table{0, 0, 1, Virtual::none}));
    CHECK(one.held_bytes() == 2 * chunk);
}

TEST_CASE("a sleeper that unmaps some of what leaves, and fails: it maps these addresses again when it wakes") {
    // The chunks that leave lie on two ranges of addresses.
    const Table table{0, 2, 1, 3};
    for (std::uint64_t nth = 1; nth <= 2; ++nth) {
        CheckedDevice device;
        Stock stock{device, 4 * chunk, chunk};
        Virtual one{of(stock)};
        must(one.open(device, 4 * chunk));
        must(one.arrange(4, table));
        must(one.sleep());
        device.fail(CallKind::unmap, nth);
        CHECK_FALSE(stock.try_set_limit(2 * chunk));
        CHECK(stock.held_bytes() == 4 * chunk);
        must(stock.try_set_limit(4 * chunk));
        must(one.arrange(4, table));
        CHECK(works(device, one, 4));
        // The same where it takes other chunks.
        must(one.sleep());
        {
            Virtual two{of(stock)};
            must(two.open(device, 2 * chunk));
            must(two.hold(2));
            must(stock.try_set_limit(6 * chunk));
            device.fail(CallKind::unmap, nth);
            CHECK_FALSE(one.arrange(4, table));
            must(one.sleep());
            must(two.sleep());
        }
        must(one.arrange(4, table));
        CHECK(works(device, one, 4));
    }
}

TEST_CASE("of the free chunks, those are taken and leave first that the fewest sleepers keep") {
    CheckedDevice device;
    Stock stock{device, 6 * chunk, chunk};
    Virtual one{of(stock)}, two{of(stock)};
    must(one.open(device, 3 * chunk));
    must(two.open(device, 2 * chunk));
    must(one.hold(3));
    must(one.sleep());
    must(two.hold(2));  // new ones, which nobody keeps
    CHECK(stock.held_bytes() == 5 * chunk);
    two.close();
    // What nobody keeps leaves, and no address is unmapped.
    const auto unmapped = device.statistics().of(CallKind::unmap);
    must(stock.try_set_limit(3 * chunk));
    CHECK(device.statistics().of(CallKind::unmap) == unmapped);
    CHECK(used(device) == 3 * chunk);
    const std::uint64_t calls = driver_calls(device);
    must(one.hold(3));
    CHECK(driver_calls(device) == calls);
}

TEST_CASE("a pool that sleeps ends, or is left behind with a broken device: the stock has its chunks") {
    for (const bool is_lost : {false, true}) {
        CAPTURE(is_lost);
        CheckedDevice device;
        device.leaks_expected = is_lost;
        const auto before = used(device);
        {
            Stock stock{device, 6 * chunk, chunk};
            {
                Virtual asleep{of(stock)}, prepared{of(stock)}, awake{of(stock)};
                for (auto* pool : {&asleep, &prepared, &awake}) {
                    must(pool->open(device, 2 * chunk));
                    must(pool->hold(2));
                }
                must(asleep.sleep());
                must(prepared.sleep());
                CHECK(prepared.wake_chunk(1));
                CHECK(stock.used_bytes() == 3 * chunk);
                if (is_lost) {
                    device.lose_device();
                    for (auto* pool : {&asleep, &prepared, &awake}) { pool->abandon(); }
                }
            }
            CHECK(stock.used_bytes() == 0);
        }
        if (!is_lost) { CHECK(used(device) == before); }
    }
}

TEST_CASE("pools of several threads begin, sleep, wake and end while the limit changes") {
    CheckedDevice device;
    Stock stock{device, 8 * chunk, chunk};
    std::array<std::uint64_t, 3> failed{};
    std::atomic<bool> is_over = false;
    const auto live = [&](std::size_t t) {
        for (int i = 0; i < 60; ++i) {
            Virtual pool{of(stock)};
            failed[t] += pool.open(device, 4 * chunk) ? 0U : 1U;
            for (int k = 0; k < 3; ++k) {
                const auto arranged = pool.hold(4);
                failed[t] += arranged || arranged.error().kind() == residency::ErrorKind::out_of_memory ? 0U : 1U;
                failed[t] += pool.sleep() ? 0U : 1U;
                static_cast<void>(pool.wake_chunk(2));
            }
        }
    };
    std::thread a{[&] { live(0); }}, b{[&] { live(1); }};
    std::thread c{[&] {
        for (std::uint64_t i = 0; !is_over; ++i) { failed[2] += stock.try_set_limit(i % 9 * chunk) ? 0U : 1U; }
    }};
    a.join();
    b.join();
    is_over = true;
    c.join();
    CHECK(failed == std::array<std::uint64_t, 3>{});
    CHECK(stock.used_bytes() == 0);
    must(stock.try_set_limit(0));
    CHECK(used(device) == 0);
}

TEST_CASE("any call fails: nothing is lost or counted twice, and the next call goes on") {
    for (const auto kind : {CallKind::create_chunk, CallKind::destroy_chunk, CallKind::map, CallKind::unmap}) {
        for (std::uint64_t nth = 1; nth <= 6; ++nth) {
            CAPTURE(kind);
            CAPTURE(nth);
            CheckedDevice device;
            Stock stock{device, 8 * chunk, chunk};
            {
                Virtual one{of(stock)}, two{of(stock)};
                must(one.open(device, 4 * chunk));
                must(two.open(device, 4 * chunk));
                std::mt19937_64 random{nth};
                device.fail(kind, nth);
                for (int i = 0; i < 40; ++i) {
                    Virtual& pool = random() % 2 == 0 ? one : two;
                    switch (random() % 4) {
                        case 0: static_cast<void>(pool.sleep().has_value()); break;
                        case 1: static_cast<void>(pool.arrange(2, Table{0, 1, 0, 1}).has_value()); break;
                        case 2: static_cast<void>(stock.try_set_limit((4 + random() % 5) * chunk).has_value()); break;
                        default: static_cast<void>(pool.hold(4).has_value()); break;
                    }
                    CHECK(stock.used_bytes() == one.held_bytes() + two.held_bytes());
                }
                device.clear_failures();
                must(stock.try_set_limit(8 * chunk));
                must(one.hold(4));
                must(two.hold(4));
                CHECK(works(device, one, 4));
                CHECK(works(device, two, 4));
                must(two.sleep());  // and ends asleep
            }
            CHECK(stock.used_bytes() == 0);
            must(stock.try_set_limit(0));
            CHECK(stock.held_bytes() == 0);
        }
    }
}

TEST_SUITE_END();

}  // namespace chunk_stock_test
