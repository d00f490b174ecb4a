// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every model of Device must do, as doctest subcases. Call each function template from a TEST_CASE of its own.
//
// Each subcase makes a Harness by its default constructor. A Harness has
//   Device                                            the model
//   device()                                          a Device&, with at least 256 MiB free
//   launch_checksum(at, bytes, uint64_t* sum, s)      enqueues a kernel that adds the bytes' checksum to *sum, in device memory
//   launch_pattern(at, bytes, seed, s)                enqueues enqueues a kernel that writes the pattern of a seed
//   launch_spin(duration, s)                          enqueues a kernel that takes at least so long
//   static checksum(span<const byte>), static fill_pattern(span<byte>, seed)      the same on the host
//   expect_findings()                                 this subcase misuses the device on purpose. Otherwise, if the model has a
//                                                     checker, the harness's destructor fails the test for each finding
// and one for peer_conformance() and peer_capture_conformance() also
//   peer()                                            another Device& of the same host, with at least 256 MiB free, that
//                                                     device() can read; enable_peer() was not called on either
//   launch_peer_spin(duration, s)                     launch_spin() on a stream of the peer
//   findings()                                        only where the model has a checker: how many there are

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"

namespace residency::conformance {

using namespace std::chrono_literals;
using residency::Copy;
using residency::DeviceFailure;
using residency::ErrorKind;
using residency::Mapping;
using residency::Timing;

/// The value of a Result. An error ends the test case, with its message.
template <class R>
decltype(auto) must(R&& result) {
    if (!result) { FAIL(result.error().message()); }
    if constexpr (requires { *result; }) { return *std::forward<R>(result); }
}

/// The kind of an error. A success ends the test case.
template <class R>
ErrorKind kind_of(const R& result) {
    if (result) { FAIL("succeeded, and should not have"); }
    return result.error().kind();
}

inline std::byte* bytes_at(void* at) { return static_cast<std::byte*>(at); }

/// A device with two streams, and memory for checksums.
template <class Harness>
struct Bench {
    using Device = typename Harness::Device;  ///< the device under test
    using Stream = typename Device::Stream;   ///< of it
    using Event = typename Device::Event;     ///< of it

    Harness harness;                                 ///< the caller's
    Device& device = harness.device();               ///< of the harness
    Stream a = must(device.create_stream());         ///< owned
    Stream b = must(device.create_stream());         ///< owned
    void* sum = must(device.allocate(8));            ///< 8 bytes of device memory, for a checksum
    void* sum_back = must(device.allocate_host(8));  ///< 8 bytes of pinned host memory, for the same

    Bench() = default;
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        static_cast<void>(device.deallocate(sum).has_value());
        static_cast<void>(device.deallocate_host(sum_back).has_value());
        static_cast<void>(device.destroy_stream(a).has_value());
        static_cast<void>(device.destroy_stream(b).has_value());
    }

    /// Enqueues one copy.
    void copy(void* to, const void* from, std::uint64_t bytes, Stream stream) {
        const Copy piece{to, from, bytes};
        must(device.copy({&piece, 1}, stream));
    }
    /// Enqueues the checksum of device bytes. The stream must not be capturing.
    void sum_up(const void* at, std::uint64_t bytes, Stream stream) {
        must(device.fill(sum, std::byte{0}, 8, stream));
        harness.launch_checksum(at, bytes, static_cast<std::uint64_t*>(sum), stream);
        copy(sum_back, sum, 8, stream);
    }
    /// Blocks. The checksum of device bytes, in the order of the stream.
    std::uint64_t sum_of(const void* at, std::uint64_t bytes, Stream stream) {
        sum_up(at, bytes, stream);
        must(device.synchronize(stream));
        return summed();
    }
    /// The checksum that came back last.
    std::uint64_t summed() const {
        std::uint64_t value = 0;
        std::memcpy(&value, sum_back, 8);
        return value;
    }
    /// An event that stands for what was enqueued on the stream.
    Event recorded(Stream stream, Timing timing = Timing::off) {
        const Event event = must(device.create_event(timing));
        must(device.record(event, stream));
        return event;
    }
    /// What `later` gets from here on waits for all of `earlier`.
    void order(Stream later, Stream earlier) {
        const Event event = recorded(earlier);
        must(device.wait(later, event));
        must(device.destroy_event(event));
    }
    /// Bytes that differ by seed.
    static std::vector<std::byte> pattern(std::uint64_t bytes, std::uint64_t seed) {
        std::vector<std::byte> result(bytes);
        Harness::fill_pattern(result, seed);
        return result;
    }
    /// The checksum of these.
    static std::uint64_t pattern_sum(std::uint64_t bytes, std::uint64_t seed) {
        return Harness::checksum(pattern(bytes, seed));
    }
};

/// Streams, events, copies, memory: D1, D3 (without captures), D4, D7, D9, D10, D11, D12.
template <class Harness>
void device_conformance() {
    static_assert(residency::Device<typename Harness::Device>);
    using Device = typename Harness::Device;
    using Event = typename Device::Event;
    Bench<Harness> bench;
    Device& device = bench.device;
    constexpr std::uint64_t bytes = 1 << 20;

    SUBCASE("bytes make the round trip, in the order of a stream") {
        const typename Device::Stream streams[] = {bench.a, {}};  // nvcc misreads a list of them in the loop
        for (const auto stream : streams) {
            auto* const from = bytes_at(must(device.allocate_host(bytes)));
            auto* const back = bytes_at(must(device.allocate_host(bytes)));
            auto* const there = bytes_at(must(device.allocate(2 * bytes)));
            Harness::fill_pattern({from, bytes}, 1);
            bench.copy(there, from, bytes, stream);
            bench.copy(there + bytes, there, bytes, stream);
            must(device.fill(there + bytes + 100, std::byte{7}, 1000, stream));
            bench.copy(back, there + bytes, bytes, stream);
            must(device.synchronize(stream));
            std::memset(from + 100, 7, 1000);
            CHECK(std::memcmp(from, back, bytes) == 0);
            CHECK(bench.sum_of(there, bytes, stream) == bench.pattern_sum(bytes, 1));
            must(device.deallocate(there));
            must(device.deallocate_host(from));
            must(device.deallocate_host(back));
        }
    }
    SUBCASE("D4: pieces start together; empty ones never reach the device") {
        auto* const host = bytes_at(must(device.allocate_host(bytes)));
        auto* const there = bytes_at(must(device.allocate(bytes)));
        Harness::fill_pattern({host, bytes}, 2);
        std::vector<Copy> pieces{{nullptr, nullptr, 0}};
        for (std::uint64_t at = 0; at < bytes; at += bytes / 16) {
            pieces.push_back({there + at, host + at, bytes / 16});
            pieces.push_back({there, nullptr, 0});
        }
        must(device.copy(pieces, bench.a));
        CHECK(bench.sum_of(there, bytes, bench.a) == bench.pattern_sum(bytes, 2));
        const std::array<Copy, 2> nothing{};
        must(device.copy(nothing, bench.a));
        must(device.copy({}, bench.a));
        must(device.fill(there, std::byte{1}, 0, bench.a));
        CHECK(bench.sum_of(there, bytes, bench.a) == bench.pattern_sum(bytes, 2));
        must(device.deallocate(there));
        must(device.deallocate_host(host));
    }
    SUBCASE("an event orders two streams") {
        auto* const there = bytes_at(must(device.allocate(bytes)));
        bench.harness.launch_spin(5ms, bench.a);
        bench.harness.launch_pattern(there, bytes, 3, bench.a);
        bench.order(bench.b, bench.a);
        CHECK(bench.sum_of(there, bytes, bench.b) == bench.pattern_sum(bytes, 3));
        must(device.deallocate(there));
    }
    SUBCASE("both directions at once, ordered by events") {
        auto* const up = bytes_at(must(device.allocate_host(bytes)));
        auto* const down = bytes_at(must(device.allocate_host(bytes)));
        auto* const there = bytes_at(must(device.allocate(2 * bytes)));
        Harness::fill_pattern({up, bytes}, 4);
        bench.harness.launch_pattern(there + bytes, bytes, 5, bench.b);
        bench.copy(there, up, bytes, bench.a);
        bench.copy(down, there + bytes, bytes, bench.b);
        must(device.synchronize());
        CHECK(Harness::checksum({down, bytes}) == bench.pattern_sum(bytes, 5));
        CHECK(bench.sum_of(there, bytes, bench.b) == bench.pattern_sum(bytes, 4));
        must(device.deallocate(there));
        must(device.deallocate_host(up));
        must(device.deallocate_host(down));
    }
    SUBCASE("D1: a wait on an event never recorded orders nothing") {
        const Event never = must(device.create_event(Timing::off));
        CHECK(must(device.is_complete(never)));
        must(device.synchronize(never));
        bench.harness.launch_spin(50ms, bench.a);
        const Event spun = bench.recorded(bench.a);
        must(device.wait(bench.b, never));
        const Event after = bench.recorded(bench.b);
        must(device.synchronize(after));
        CHECK_FALSE(must(device.is_complete(spun)));
        must(device.synchronize(spun));
        CHECK(must(device.is_complete(spun)));
        for (const Event event : {never, spun, after}) { must(device.destroy_event(event)); }
    }
    SUBCASE("D1: a wait refers to the record before it; a later one changes nothing for it") {
        const Event event = bench.recorded(bench.a);
        must(device.wait(bench.b, event));
        bench.harness.launch_spin(50ms, bench.a);
        must(device.record(event, bench.a));
        const Event after = bench.recorded(bench.b);
        must(device.synchronize(after));
        CHECK_FALSE(must(device.is_complete(event)));
        must(device.synchronize(bench.a));
        CHECK(must(device.is_complete(event)));
        must(device.destroy_event(event));
        must(device.destroy_event(after));
    }
    SUBCASE("an event destroyed early still orders") {
        auto* const there = bytes_at(must(device.allocate(bytes)));
        bench.harness.launch_spin(5ms, bench.a);
        bench.harness.launch_pattern(there, bytes, 6, bench.a);
        const Event event = bench.recorded(bench.a);
        must(device.wait(bench.b, event));
        must(device.destroy_event(event));
        CHECK(bench.sum_of(there, bytes, bench.b) == bench.pattern_sum(bytes, 6));
        must(device.deallocate(there));
    }
    SUBCASE("destroying a stream does not wait, and its work is done") {
        auto* const there = bytes_at(must(device.allocate(bytes)));
        const auto stream = must(device.create_stream());
        bench.harness.launch_spin(50ms, stream);
        bench.harness.launch_pattern(there, bytes, 7, stream);
        const Event event = bench.recorded(stream);
        must(device.destroy_stream(stream));
        CHECK_FALSE(must(device.is_complete(event)));
        must(device.synchronize(event));
        CHECK(bench.sum_of(there, bytes, bench.a) == bench.pattern_sum(bytes, 7));
        must(device.destroy_event(event));
        must(device.deallocate(there));
    }
    SUBCASE("elapsed time") {
        const Event from = bench.recorded(bench.a, Timing::on);
        bench.harness.launch_spin(5ms, bench.a);
        const Event to = bench.recorded(bench.a, Timing::on);
        CHECK_FALSE(device.elapsed(from, to));
        must(device.synchronize(to));
        CHECK(must(device.elapsed(from, to)) >= 5ms);
        const Event never = must(device.create_event(Timing::on));
        CHECK_FALSE(device.elapsed(from, never));
        const Event untimed = bench.recorded(bench.a);
        must(device.synchronize(untimed));
        CHECK_FALSE(device.elapsed(from, untimed));
        for (const Event event : {from, to, never, untimed}) { must(device.destroy_event(event)); }
    }
    SUBCASE("the clock goes on") {
        const auto before = device.host_time();
        bench.harness.launch_spin(5ms, bench.a);
        must(device.synchronize(bench.a));
        CHECK(device.host_time() - before >= 5ms);
        CHECK_FALSE(std::string_view{device.name()}.empty());
    }
    SUBCASE("D10: memory that is not there is refused with its numbers, and nothing changes") {
        const auto before = must(device.memory());
        CHECK(before.free_bytes <= before.total_bytes);
        const auto refused = device.allocate(before.total_bytes + 1);
        REQUIRE(kind_of(refused) == ErrorKind::out_of_memory);
        REQUIRE(refused.error().template detail<DeviceFailure>() != nullptr);
        CHECK(refused.error().template detail<DeviceFailure>()->bytes == before.total_bytes + 1);
        CHECK(kind_of(device.allocate(UINT64_MAX)) == ErrorKind::out_of_memory);
        CHECK(kind_of(device.allocate(0)) == ErrorKind::invalid_argument);
        CHECK(kind_of(device.allocate_host(0)) == ErrorKind::invalid_argument);
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
        bench.harness.launch_pattern(bench.sum, 8, 8, bench.a);
        bench.copy(bench.sum_back, bench.sum, 8, bench.a);
        must(device.synchronize(bench.a));
        CHECK(Harness::checksum({bytes_at(bench.sum_back), 8}) == bench.pattern_sum(8, 8));
    }
    SUBCASE("D10: of a copy that fails, nothing but its targets changes, and later work comes after its pieces") {
        constexpr std::uint64_t piece_bytes = 4096;
        constexpr std::size_t pieces = 600;  // more than one block of a device that batches
        auto* const at = bytes_at(must(device.allocate((pieces + 1) * piece_bytes)));
        auto* const host = bytes_at(must(device.allocate_host(piece_bytes)));
        Harness::fill_pattern({host, piece_bytes}, 1);
        bench.harness.launch_pattern(at + pieces * piece_bytes, piece_bytes, 2, bench.a);
        std::vector<Copy> copies;
        for (std::size_t i = 0; i < pieces; ++i) { copies.push_back({at + i * piece_bytes, host, piece_bytes}); }
        copies[pieces - 10].to = nullptr;
        bench.harness.expect_findings();
        CHECK_FALSE(device.copy(copies, bench.a));
        for (std::size_t i = 0; i < pieces; ++i) {
            bench.harness.launch_pattern(at + i * piece_bytes, piece_bytes, 3, bench.a);
        }
        for (const std::size_t i : {std::size_t{0}, std::size_t{511}, std::size_t{512}, pieces - 1}) {
            CHECK(bench.sum_of(at + i * piece_bytes, piece_bytes, bench.a) == bench.pattern_sum(piece_bytes, 3));
        }
        CHECK(bench.sum_of(at + pieces * piece_bytes, piece_bytes, bench.a) == bench.pattern_sum(piece_bytes, 2));
        bench.copy(at, host, piece_bytes, bench.a);
        CHECK(bench.sum_of(at, piece_bytes, bench.a) == bench.pattern_sum(piece_bytes, 1));
        must(device.deallocate_host(host));
        must(device.deallocate(at));
    }
    SUBCASE("D7: an allocation takes a multiple of the granularity, and gives it back") {
        const std::uint64_t granularity = device.allocation_granularity();
        const auto before = must(device.memory());
        void* const at = must(device.allocate(3 * granularity + 1));
        const std::uint64_t taken = before.free_bytes - must(device.memory()).free_bytes;
        CHECK(taken % granularity == 0);
        CHECK(taken >= 3 * granularity + 1);
        must(device.deallocate(at));
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
    }
    SUBCASE("D7: a pool is capped, hard, and gives back on request") {
        const std::uint64_t step = device.pool_granularity();
        for (const std::uint64_t odd : {std::uint64_t{0}, std::uint64_t{1}, step - 1, step + 1}) {
            CHECK(kind_of(device.create_pool(odd)) == ErrorKind::invalid_argument);
        }
        const auto before = must(device.memory());
        const auto pool = must(device.create_pool(2 * step));
        CHECK(must(device.held_bytes(pool)) == 0);
        for (int round = 0; round < 3; ++round) {
            std::vector<void*> blocks;
            for (int i = 0; i < 4; ++i) {
                blocks.push_back(must(device.allocate(pool, step / 2, bench.a)));
                CHECK(must(device.held_bytes(pool)) <= 2 * step);
            }
            const auto refused = device.allocate(pool, step / 2, bench.a);
            CHECK(kind_of(refused) == ErrorKind::out_of_memory);
            CHECK(must(device.held_bytes(pool)) == 2 * step);
            for (std::uint64_t i = 0; i < blocks.size(); ++i) {
                bench.harness.launch_pattern(blocks[i], step / 2, 10 + i, bench.a);
            }
            for (std::uint64_t i = 0; i < blocks.size(); ++i) {
                CHECK(bench.sum_of(blocks[i], step / 2, bench.a) == bench.pattern_sum(step / 2, 10 + i));
            }
            for (void* const block : blocks) { must(device.deallocate(pool, block, bench.a)); }
        }
        must(device.synchronize(bench.a));
        CHECK(before.free_bytes - must(device.memory()).free_bytes == 2 * step);
        must(device.trim(pool));
        CHECK(must(device.held_bytes(pool)) == 0);
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
        CHECK(kind_of(device.allocate(pool, 0, bench.a)) == ErrorKind::invalid_argument);
        CHECK(kind_of(device.allocate(pool, 3 * step, bench.a)) == ErrorKind::out_of_memory);
        must(device.destroy_pool(pool));
    }
    SUBCASE("a pool that is full of holes refuses what does not fit into one") {
        const std::uint64_t step = device.pool_granularity();
        const auto pool = must(device.create_pool(4 * step));
        std::vector<void*> blocks;
        for (int i = 0; i < 8; ++i) { blocks.push_back(must(device.allocate(pool, step / 2, bench.a))); }
        for (std::size_t i = 0; i < 8; i += 2) { must(device.deallocate(pool, blocks[i], bench.a)); }
        must(device.synchronize(bench.a));
        must(device.trim(pool));
        CHECK(must(device.held_bytes(pool)) == 4 * step);
        CHECK(kind_of(device.allocate(pool, step / 4 * 3, bench.a)) == ErrorKind::out_of_memory);
        blocks[0] = must(device.allocate(pool, step / 2, bench.a));
        for (std::size_t i = 0; i < 8; ++i) {
            if (i == 0 || i % 2 == 1) { must(device.deallocate(pool, blocks[i], bench.a)); }
        }
        must(device.synchronize(bench.a));
        must(device.destroy_pool(pool));
    }
    SUBCASE("a pool hands memory to another stream in order") {
        const std::uint64_t step = device.pool_granularity();
        const auto pool = must(device.create_pool(step));
        void* const first = must(device.allocate(pool, step, bench.a));
        bench.harness.launch_spin(5ms, bench.a);
        bench.harness.launch_pattern(first, step, 20, bench.a);
        must(device.deallocate(pool, first, bench.a));
        void* const second = must(device.allocate(pool, step, bench.b));
        bench.harness.launch_pattern(second, step, 21, bench.b);
        CHECK(bench.sum_of(second, step, bench.b) == bench.pattern_sum(step, 21));
        must(device.deallocate(pool, second, bench.b));
        must(device.synchronize());
        must(device.destroy_pool(pool));
    }
    SUBCASE("pinned host memory is read in place, allocated or pinned") {
        auto* const host = bytes_at(must(device.allocate_host(bytes + 3)));
        Harness::fill_pattern({host, bytes}, 30);
        CHECK(bench.sum_of(must(device.device_view(host)), bytes, bench.a) == bench.pattern_sum(bytes, 30));
        CHECK(must(device.device_view(host + 8)) != nullptr);
        must(device.deallocate_host(host));

        std::vector<std::byte> mine = bench.pattern(bytes, 31);
        CHECK_FALSE(device.device_view(mine.data()));
        must(device.pin(mine.data(), mine.size()));
        CHECK(bench.sum_of(must(device.device_view(mine.data())), bytes, bench.a) == bench.pattern_sum(bytes, 31));
        auto* const there = bytes_at(must(device.allocate(bytes)));
        bench.copy(there, mine.data(), bytes, bench.a);
        must(device.synchronize(bench.a));
        must(device.unpin(mine.data()));
        CHECK_FALSE(device.device_view(mine.data()));
        CHECK(bench.sum_of(there, bytes, bench.a) == bench.pattern_sum(bytes, 31));
        must(device.deallocate(there));
    }
    SUBCASE("pageable host memory is copied too") {
        std::vector<std::byte> mine = bench.pattern(bytes, 32), back(bytes);
        auto* const there = bytes_at(must(device.allocate(bytes)));
        bench.copy(there, mine.data(), bytes, bench.a);
        bench.copy(back.data(), there, bytes, bench.a);
        must(device.synchronize(bench.a));
        CHECK(mine == back);
        must(device.deallocate(there));
    }
    SUBCASE("D11: a piece of a copy keeps to one allocation, and to one pin") {
        bench.harness.expect_findings();
        auto* const host = bytes_at(must(device.allocate_host(2 * bytes)));
        std::vector<std::byte*> places(8);
        for (std::byte*& place : places) { place = bytes_at(must(device.allocate(bytes))); }
        std::ranges::sort(places);
        const auto next =
            std::ranges::adjacent_find(places, [](const std::byte* a, const std::byte* b) { return a + bytes == b; });
        if (next != places.end()) {
            const Copy across[] = {{*next + bytes / 2, host, bytes}, {host, *next + bytes / 2, bytes}};
            for (const Copy& each : across) { CHECK_FALSE(device.copy({&each, 1}, bench.a)); }
            CHECK_FALSE(device.copy(across, bench.a));
        } else {
            MESSAGE("no two allocations are neighbours here");
        }

        const std::unique_ptr<void, decltype(&std::free)> mine{std::aligned_alloc(65536, 2 * bytes), &std::free};
        auto* const memory = bytes_at(mine.get());
        Harness::fill_pattern({memory, 2 * bytes}, 33);
        must(device.pin(memory, bytes));
        const Copy across{places.front(), memory + bytes / 2, bytes};
        CHECK_FALSE(device.copy({&across, 1}, bench.a));  // the second half is pageable
        must(device.pin(memory + bytes, bytes));
        CHECK_FALSE(device.copy({&across, 1}, bench.a));
        bench.copy(places.front(), memory + bytes, bytes, bench.a);
        CHECK(bench.sum_of(places.front(), bytes, bench.a) == Harness::checksum({memory + bytes, bytes}));
        must(device.unpin(memory));
        must(device.unpin(memory + bytes));
        for (std::byte* place : places) { must(device.deallocate(place)); }
        must(device.deallocate_host(host));
    }
    SUBCASE("D12: a copy of large and small pieces does not wait for them") {
        constexpr std::uint64_t large = std::uint64_t{1} << 20, apart = large + (1U << 16);
        constexpr std::size_t pieces = 32;
        void* const host = must(device.allocate_host(pieces * apart));
        void* const there = must(device.allocate(pieces * apart));
        Harness::fill_pattern({bytes_at(host), pieces * apart}, 34);
        for (const std::uint64_t small :
             {std::uint64_t{512}, std::uint64_t{4096}, std::uint64_t{24576}, std::uint64_t{65536}}) {
            std::vector<Copy> copies;
            for (std::size_t i = 0; i < pieces; ++i) {
                copies.push_back({bytes_at(there) + i * apart, bytes_at(host) + i * apart, i % 2 == 0 ? large : small});
            }
            // The host may lose its core for longer than the copies take, so several tries.
            bool returned_before_it_was_complete = false;
            for (int tries = 0; tries < 20 && !returned_before_it_was_complete; ++tries) {
                must(device.copy(copies, bench.a));
                const auto event = bench.recorded(bench.a);
                returned_before_it_was_complete = !must(device.is_complete(event));
                must(device.synchronize(bench.a));
                must(device.destroy_event(event));
            }
            CHECK(returned_before_it_was_complete);
            CHECK(bench.sum_of(bytes_at(there) + 31 * apart, small, bench.a) ==
                  Harness::checksum({bytes_at(host) + 31 * apart, small}));
        }
        must(device.deallocate(there));
        must(device.deallocate_host(host));
    }
    SUBCASE("D9: threads with streams of their own") {
        constexpr std::size_t threads = 4;
        std::array<std::atomic<bool>, threads> right{};
        std::vector<std::thread> workers;
        for (std::size_t t = 0; t < threads; ++t) {
            workers.emplace_back([&, t] {
                auto stream = device.create_stream();
                auto event = device.create_event(Timing::off);
                auto host = device.allocate_host(bytes);
                auto there = device.allocate(bytes);
                if (!stream || !event || !host || !there) { return; }
                bool all = true;
                for (std::uint64_t round = 0; round < 5 && all; ++round) {
                    Harness::fill_pattern({bytes_at(*host), bytes}, t * 100 + round);
                    const Copy up{*there, *host, bytes}, down{*host, *there, bytes};
                    all =
                        device.copy({&up, 1}, *stream) && device.record(*event, *stream) && device.synchronize(*event);
                    std::memset(*host, 0, bytes);
                    all = all && device.copy({&down, 1}, *stream) && device.synchronize(*stream);
                    all = all && Harness::checksum({bytes_at(*host), bytes}) ==
                                     Bench<Harness>::pattern_sum(bytes, t * 100 + round);
                }
                right[t] = device.deallocate(*there) && device.deallocate_host(*host) && device.destroy_event(*event) &&
                           device.destroy_stream(*stream) && all;
            });
        }
        for (std::thread& worker : workers) { worker.join(); }
        for (const auto& one : right) { CHECK(one); }
    }
}

/// Captures and replay: D2, D3, D4.
template <class Harness>
void capture_conformance() {
    static_assert(residency::CapturingDevice<typename Harness::Device>);
    using Device = typename Harness::Device;
    using Event = typename Device::Event;
    Bench<Harness> bench;
    Device& device = bench.device;
    constexpr std::uint64_t bytes = 1 << 20;

    SUBCASE("nothing runs while it is captured; each launch runs all of it, with the bytes of that time") {
        auto* const host = bytes_at(must(device.allocate_host(bytes)));
        auto* const there = bytes_at(must(device.allocate(bytes)));
        must(device.fill(there, std::byte{0}, bytes, bench.a));
        must(device.synchronize(bench.a));
        CHECK_FALSE(must(device.is_capturing(bench.a)));
        must(device.begin_capture(bench.a));
        CHECK(must(device.is_capturing(bench.a)));
        CHECK_FALSE(must(device.is_capturing(bench.b)));
        // D4: several pieces, and empty ones.
        std::vector<Copy> pieces{{there, nullptr, 0}};
        for (std::uint64_t at = 0; at < bytes; at += bytes / 8) {
            pieces.push_back({there + at, host + at, bytes / 8});
        }
        must(device.copy(pieces, bench.a));
        const auto graph = must(device.end_capture(bench.a));
        CHECK_FALSE(must(device.is_capturing(bench.a)));
        CHECK(bench.sum_of(there, bytes, bench.a) == Harness::checksum(std::vector<std::byte>(bytes)));
        for (std::uint64_t round = 0; round < 3; ++round) {
            Harness::fill_pattern({host, bytes}, 40 + round);
            must(device.launch(graph, bench.a));
            CHECK(bench.sum_of(there, bytes, bench.a) == bench.pattern_sum(bytes, 40 + round));
        }
        must(device.destroy_graph(graph));
        must(device.deallocate(there));
        must(device.deallocate_host(host));
    }
    SUBCASE("fork and join; launches follow one another; a graph destroyed early still runs") {
        auto* const there = bytes_at(must(device.allocate(2 * bytes)));
        const Event fork = must(device.create_event(Timing::off)), join = must(device.create_event(Timing::off));
        must(device.begin_capture(bench.a));
        must(device.record(fork, bench.a));
        must(device.wait(bench.b, fork));
        CHECK(must(device.is_capturing(bench.b)));
        bench.harness.launch_pattern(there, bytes, 50, bench.a);
        bench.harness.launch_spin(5ms, bench.b);
        bench.harness.launch_pattern(there + bytes, bytes, 51, bench.b);
        must(device.record(join, bench.b));
        must(device.wait(bench.a, join));
        must(device.fill(there, std::byte{9}, 64, bench.a));
        const auto graph = must(device.end_capture(bench.a));
        CHECK_FALSE(must(device.is_capturing(bench.b)));
        must(device.launch(graph, bench.a));
        bench.order(bench.b, bench.a);
        must(device.launch(graph, bench.b));
        must(device.destroy_graph(graph));
        auto expected = bench.pattern(2 * bytes, 50);
        Harness::fill_pattern(std::span{expected}.first(bytes), 50);
        Harness::fill_pattern(std::span{expected}.last(bytes), 51);
        std::memset(expected.data(), 9, 64);
        CHECK(bench.sum_of(there, 2 * bytes, bench.b) == Harness::checksum(expected));
        must(device.synchronize());
        must(device.destroy_event(fork));
        must(device.destroy_event(join));
        must(device.deallocate(there));
    }
    SUBCASE("D2: a wait on an event recorded outside fails and invalidates the capture") {
        bench.harness.expect_findings();
        const Event outside = bench.recorded(bench.b);
        must(device.begin_capture(bench.a));
        CHECK_FALSE(device.wait(bench.a, outside));
        CHECK_FALSE(device.end_capture(bench.a));
        CHECK_FALSE(must(device.is_capturing(bench.a)));
        must(device.fill(bench.sum, std::byte{0}, 8, bench.a));
        must(device.synchronize(bench.a));
        must(device.destroy_event(outside));
    }
    SUBCASE("D2: an event recorded in a capture cannot be used outside of it") {
        bench.harness.expect_findings();
        const Event inside = must(device.create_event(Timing::off));
        must(device.begin_capture(bench.a));
        must(device.fill(bench.sum, std::byte{0}, 8, bench.a));
        must(device.record(inside, bench.a));
        const auto graph = must(device.end_capture(bench.a));
        CHECK_FALSE(device.wait(bench.b, inside));
        CHECK_FALSE(device.is_complete(inside));
        CHECK_FALSE(device.synchronize(inside));
        must(device.record(inside, bench.a));
        must(device.wait(bench.b, inside));
        must(device.synchronize(inside));
        must(device.destroy_graph(graph));
        must(device.destroy_event(inside));
    }
    SUBCASE("D2: a fork that is not joined fails at the end") {
        bench.harness.expect_findings();
        const Event fork = must(device.create_event(Timing::off));
        must(device.begin_capture(bench.a));
        must(device.record(fork, bench.a));
        must(device.wait(bench.b, fork));
        must(device.fill(bench.sum, std::byte{0}, 8, bench.b));
        CHECK_FALSE(device.end_capture(bench.a));
        CHECK_FALSE(must(device.is_capturing(bench.a)));
        CHECK_FALSE(must(device.is_capturing(bench.b)));
        must(device.destroy_event(fork));
    }
    if constexpr (residency::GraphTimingDevice<Device>) {
        SUBCASE("G5: each launch records the events of its graph, in the order of their streams") {
            const Event before = must(device.create_event(Timing::on)), after = must(device.create_event(Timing::on));
            must(device.begin_capture(bench.a));
            must(device.record_in_graph(before, bench.a));
            must(device.fill(bench.sum, std::byte{7}, 8, bench.a));
            must(device.record_in_graph(after, bench.a));
            const auto graph = must(device.end_capture(bench.a));
            CHECK(must(device.is_complete(after)));  // never recorded
            for (int round = 0; round < 2; ++round) {
                must(device.launch(graph, bench.a));
                bench.copy(bench.sum_back, bench.sum, 8, bench.a);
                must(device.synchronize());
                CHECK(bench.summed() == 0x0707070707070707U);
                CHECK(must(device.is_complete(before)));
                CHECK(must(device.is_complete(after)));
                CHECK(must(device.elapsed(before, after)).count() >= 0);
                must(device.fill(bench.sum, std::byte{0}, 8, bench.a));
            }
            must(device.synchronize());
            must(device.destroy_graph(graph));
            must(device.destroy_event(before));
            must(device.destroy_event(after));
        }
        SUBCASE("G5: refused where nothing is captured") {
            bench.harness.expect_findings();
            const Event event = must(device.create_event(Timing::on));
            CHECK_FALSE(device.record_in_graph(event, bench.a));
            must(device.destroy_event(event));
        }
    }
    SUBCASE("D3: queries and allocations neither fail nor harm a capture") {
        const Event other = bench.recorded(bench.b);
        const auto pool = must(device.create_pool(device.pool_granularity()));
        must(device.begin_capture(bench.a));
        must(device.fill(bench.sum, std::byte{5}, 8, bench.a));
        must(device.is_complete(other));
        void* const there = must(device.allocate(bytes));
        void* const host = must(device.allocate_host(bytes));
        void* const block = must(device.allocate(pool, device.pool_granularity() / 2, bench.b));
        must(device.deallocate(pool, block, bench.b));
        must(device.memory());
        must(device.destroy_event(must(device.create_event(Timing::off))));
        const auto graph = must(device.end_capture(bench.a));
        must(device.launch(graph, bench.a));
        bench.copy(bench.sum_back, bench.sum, 8, bench.a);
        must(device.synchronize());
        CHECK(bench.summed() == 0x0505050505050505U);
        must(device.deallocate(there));
        must(device.deallocate_host(host));
        must(device.destroy_pool(pool));
        must(device.destroy_event(other));
        must(device.destroy_graph(graph));
    }
    SUBCASE(
        "D6: waiting for the device is refused in a thread that captures; another thread waits for the capture too") {
        must(device.begin_capture(bench.a));
        std::atomic<bool> has_begun{false}, is_done{false};
        bool succeeded = false;
        std::thread other{[&] {
            has_begun = true;
            succeeded = device.synchronize().has_value();
            is_done = true;
        }};
        while (!has_begun) { std::this_thread::yield(); }
        must(device.fill(bench.sum, std::byte{7}, 8, bench.a));
        CHECK_FALSE(is_done);
        const auto graph = must(device.end_capture(bench.a));
        other.join();
        CHECK(succeeded);
        must(device.launch(graph, bench.a));
        bench.copy(bench.sum_back, bench.sum, 8, bench.a);
        must(device.synchronize());
        CHECK(bench.summed() == 0x0707070707070707U);
        must(device.destroy_graph(graph));
        must(device.begin_capture(bench.a));
        CHECK_FALSE(device.synchronize());
        if (const auto ended = device.end_capture(bench.a)) { must(device.destroy_graph(*ended)); }
        must(device.synchronize());
    }
    SUBCASE("D7: a pool refuses in a capture, and the capture goes on") {
        const auto pool = must(device.create_pool(device.pool_granularity()));
        must(device.begin_capture(bench.a));
        CHECK_FALSE(device.allocate(pool, device.pool_granularity() / 2, bench.a));
        must(device.fill(bench.sum, std::byte{5}, 8, bench.a));
        const auto graph = must(device.end_capture(bench.a));
        must(device.destroy_graph(graph));
        must(device.destroy_pool(pool));
    }
    SUBCASE("a stream is captured once at a time, and ends what it began") {
        bench.harness.expect_findings();
        CHECK_FALSE(device.end_capture(bench.a));
        must(device.begin_capture(bench.a));
        must(device.fill(bench.sum, std::byte{5}, 8, bench.a));
        const auto graph = must(device.end_capture(bench.a));
        must(device.destroy_graph(graph));
        CHECK_FALSE(device.end_capture(bench.a));
        CHECK_FALSE(device.begin_capture(typename Device::Stream{}));
    }
}

/// Virtual memory: V1 to V5, D6.
template <class Harness>
void virtual_memory_conformance() {
    static_assert(residency::VirtualMemoryDevice<typename Harness::Device>);
    using Device = typename Harness::Device;
    using Map = Mapping<typename Device::Chunk>;
    Bench<Harness> bench;
    Device& device = bench.device;
    const std::uint64_t chunk_bytes = device.chunk_granularity();

    SUBCASE("one chunk under several addresses") {
        const auto before = must(device.memory());
        auto* const range = bytes_at(must(device.reserve(4 * chunk_bytes)));
        CHECK(reinterpret_cast<std::uintptr_t>(range) % chunk_bytes == 0);
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
        const auto first = must(device.create_chunk(chunk_bytes));
        const auto second = must(device.create_chunk(chunk_bytes));
        CHECK(before.free_bytes - must(device.memory()).free_bytes == 2 * chunk_bytes);
        const std::array<Map, 4> maps{Map{range, first}, Map{range + chunk_bytes, second},
                                      Map{range + 2 * chunk_bytes, first}, Map{range + 3 * chunk_bytes, second}};
        must(device.map(maps, chunk_bytes));
        CHECK(before.free_bytes - must(device.memory()).free_bytes == 2 * chunk_bytes);
        // A kernel writes two chunks; they are read through the other addresses.
        bench.harness.launch_pattern(range, 2 * chunk_bytes, 60, bench.a);
        CHECK(bench.sum_of(range + 2 * chunk_bytes, 2 * chunk_bytes, bench.a) ==
              bench.pattern_sum(2 * chunk_bytes, 60));
        must(device.unmap(range, 2 * chunk_bytes));
        CHECK(bench.sum_of(range + 2 * chunk_bytes, 2 * chunk_bytes, bench.a) ==
              bench.pattern_sum(2 * chunk_bytes, 60));
        // The chunks change places under the same addresses.
        const std::array<Map, 2> swapped{Map{range, second}, Map{range + chunk_bytes, first}};
        must(device.map(swapped, chunk_bytes));
        auto expected = bench.pattern(2 * chunk_bytes, 60);
        std::rotate(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(chunk_bytes), expected.end());
        CHECK(bench.sum_of(range, 2 * chunk_bytes, bench.a) == Harness::checksum(expected));
        must(device.unmap(range, 4 * chunk_bytes));
        must(device.destroy_chunk(first));
        must(device.destroy_chunk(second));
        must(device.release(range, 4 * chunk_bytes));
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
    }
    SUBCASE("a copy crosses chunks") {
        auto* const range = bytes_at(must(device.reserve(3 * chunk_bytes)));
        std::vector<Map> maps;
        for (std::uint64_t i = 0; i < 3; ++i) {
            maps.push_back({range + i * chunk_bytes, must(device.create_chunk(chunk_bytes))});
        }
        must(device.map(maps, chunk_bytes));
        auto* const host = bytes_at(must(device.allocate_host(2 * chunk_bytes)));
        Harness::fill_pattern({host, 2 * chunk_bytes}, 61);
        bench.copy(range + chunk_bytes / 2, host, 2 * chunk_bytes, bench.a);
        CHECK(bench.sum_of(range + chunk_bytes / 2, 2 * chunk_bytes, bench.a) ==
              bench.pattern_sum(2 * chunk_bytes, 61));
        must(device.unmap(range, 3 * chunk_bytes));
        for (const Map& map : maps) { must(device.destroy_chunk(map.chunk)); }
        must(device.release(range, 3 * chunk_bytes));
        must(device.deallocate_host(host));
    }
    SUBCASE("sizes are multiples of the granularity") {
        for (const std::uint64_t odd : {std::uint64_t{0}, std::uint64_t{1}, chunk_bytes + 1}) {
            CHECK(kind_of(device.reserve(odd)) == ErrorKind::invalid_argument);
            CHECK(kind_of(device.create_chunk(odd)) == ErrorKind::invalid_argument);
        }
    }
    SUBCASE("V4: all or nothing") {
        bench.harness.expect_findings();
        auto* const range = bytes_at(must(device.reserve(2 * chunk_bytes)));
        const auto chunk = must(device.create_chunk(chunk_bytes));
        const std::array<Map, 3> overlapping{Map{range + chunk_bytes, chunk}, Map{range, chunk}, Map{range, chunk}};
        CHECK_FALSE(device.map(overlapping, chunk_bytes));
        const std::array<Map, 2> right{Map{range, chunk}, Map{range + chunk_bytes, chunk}};
        must(device.map(right, chunk_bytes));
        CHECK_FALSE(device.unmap(range, chunk_bytes / 2));
        must(device.unmap(range, 2 * chunk_bytes));
        CHECK_FALSE(device.unmap(range, 2 * chunk_bytes));
        must(device.destroy_chunk(chunk));
        must(device.release(range, 2 * chunk_bytes));
    }
    SUBCASE("V3: a destroyed chunk stays until it is unmapped") {
        const auto before = must(device.memory());
        void* const range = must(device.reserve(chunk_bytes));
        const auto chunk = must(device.create_chunk(chunk_bytes));
        const Map map{range, chunk};
        must(device.map({&map, 1}, chunk_bytes));
        must(device.destroy_chunk(chunk));
        bench.harness.launch_pattern(range, chunk_bytes, 62, bench.a);
        CHECK(bench.sum_of(range, chunk_bytes, bench.a) == bench.pattern_sum(chunk_bytes, 62));
        must(device.unmap(range, chunk_bytes));
        CHECK(must(device.memory()).free_bytes == before.free_bytes);
        must(device.release(range, chunk_bytes));
    }
    SUBCASE("D6: mapping and unmapping are refused during a capture, which goes on") {
        if constexpr (residency::CapturingDevice<Device>) {
            auto* const range = bytes_at(must(device.reserve(2 * chunk_bytes)));
            const auto chunk = must(device.create_chunk(chunk_bytes));
            const Map map{range, chunk}, more{range + chunk_bytes, chunk};
            must(device.map({&map, 1}, chunk_bytes));
            must(device.begin_capture(bench.a));
            CHECK_FALSE(device.map({&more, 1}, chunk_bytes));
            CHECK_FALSE(device.unmap(range, chunk_bytes));
            bench.harness.launch_pattern(range, chunk_bytes, 63, bench.a);
            // Calls of another thread wait until the capture has ended.
            std::atomic<bool> has_begun{false}, is_done{false};
            bool succeeded = false;
            std::thread other{[&] {
                has_begun = true;
                succeeded = device.map({&more, 1}, chunk_bytes).has_value();
                is_done = true;
                succeeded = succeeded && device.unmap(range + chunk_bytes, chunk_bytes).has_value();
            }};
            while (!has_begun) { std::this_thread::yield(); }
            CHECK_FALSE(is_done);
            const auto graph = must(device.end_capture(bench.a));
            other.join();
            CHECK(succeeded);
            must(device.launch(graph, bench.a));
            CHECK(bench.sum_of(range, chunk_bytes, bench.a) == bench.pattern_sum(chunk_bytes, 63));
            must(device.destroy_graph(graph));
            must(device.unmap(range, chunk_bytes));
            must(device.destroy_chunk(chunk));
            must(device.release(range, 2 * chunk_bytes));
        }
    }
}

/// Flags: F1 to F3.
template <class Harness>
void flag_conformance() {
    static_assert(residency::FlagDevice<typename Harness::Device>);
    using Device = typename Harness::Device;
    Bench<Harness> bench;
    Device& device = bench.device;
    constexpr std::uint64_t bytes = 1 << 16;

    SUBCASE("a stream waits for another thread, and sees what it wrote") {
        const auto flag = must(device.create_flag());
        auto* const host = bytes_at(must(device.allocate_host(bytes)));
        auto* const there = bytes_at(must(device.allocate(bytes)));
        for (std::uint32_t round = 1; round <= 3; ++round) {
            must(device.wait_flag(bench.a, flag, round));
            bench.copy(there, host, bytes, bench.a);
            bench.sum_up(there, bytes, bench.a);
            const auto arrived = bench.recorded(bench.a);
            CHECK_FALSE(must(device.is_complete(arrived)));
            std::thread worker{[&] {
                Harness::fill_pattern({host, bytes}, 70 + round);
                static_cast<void>(device.raise_flag(flag, round).has_value());
            }};
            must(device.synchronize(arrived));
            worker.join();
            CHECK(bench.summed() == bench.pattern_sum(bytes, 70 + round));
            must(device.destroy_event(arrived));
        }
        must(device.destroy_flag(flag));
        must(device.deallocate(there));
        must(device.deallocate_host(host));
    }
    SUBCASE("a flag that is high enough does not hold; it never falls; streams are held one by one") {
        const auto flag = must(device.create_flag());
        must(device.raise_flag(flag, 5));
        must(device.raise_flag(flag, 3));
        must(device.wait_flag(bench.a, flag, 4));
        must(device.wait_flag(bench.a, flag, 5));
        must(device.synchronize(bench.a));
        must(device.wait_flag(bench.b, flag, 6));
        const auto held = bench.recorded(bench.b);
        must(device.synchronize(bench.a));
        CHECK_FALSE(must(device.is_complete(held)));
        must(device.raise_flag(flag, 7));
        must(device.synchronize(held));
        must(device.destroy_event(held));
        must(device.destroy_flag(flag));
    }
    SUBCASE("F2: refused in a capture, which goes on") {
        if constexpr (residency::CapturingDevice<Device>) {
            const auto flag = must(device.create_flag());
            must(device.begin_capture(bench.a));
            CHECK_FALSE(device.wait_flag(bench.a, flag, 1));
            must(device.fill(bench.sum, std::byte{5}, 8, bench.a));
            must(device.destroy_graph(must(device.end_capture(bench.a))));
            must(device.destroy_flag(flag));
        }
    }
}

/// A Bench with a peer, and memory on the way: pinned memory of the host, memory of the peer, memory of the device.
template <class Harness>
struct PeerBench : Bench<Harness> {
    static_assert(residency::PeerDevice<typename Harness::Device>);
    using Device = typename Harness::Device;  ///< the devices under test
    using Stream = typename Device::Stream;   ///< of one of them
    using Event = typename Device::Event;     ///< of one of them
    using Bench<Harness>::device;
    using Bench<Harness>::harness;
    static constexpr std::uint64_t bytes = 1 << 20;  ///< that fit into `bounce`

    Device& peer = harness.peer();                                      ///< of the harness
    Stream there = must(peer.create_stream());                          ///< the peer's
    Event filled = must(peer.create_event(Timing::off));                ///< the peer's: `bounce` has its bytes
    Event emptied = must(device.create_event(Timing::off));             ///< the device's: `bounce` was read
    std::byte* host = bytes_at(must(device.allocate_host(2 * bytes)));  ///< pinned by the device
    std::byte* bounce = bytes_at(must(peer.allocate(bytes)));           ///< of the peer
    std::byte* here = bytes_at(must(device.allocate(2 * bytes)));       ///< of the device

    PeerBench() { must(device.enable_peer(peer)); }
    ~PeerBench() {
        static_cast<void>(peer.synchronize().has_value());
        static_cast<void>(device.synchronize().has_value());
        static_cast<void>(device.deallocate(here).has_value());
        static_cast<void>(peer.deallocate(bounce).has_value());
        static_cast<void>(device.deallocate_host(host).has_value());
        static_cast<void>(device.destroy_event(emptied).has_value());
        static_cast<void>(peer.destroy_event(filled).has_value());
        static_cast<void>(peer.destroy_stream(there).has_value());
    }

    /// The peer takes bytes of the host into its memory, late, and records `filled`.
    void fill(const std::byte* from) {
        const Copy up{bounce, from, bytes};
        harness.launch_peer_spin(5ms, there);
        must(peer.copy({&up, 1}, there));
        must(peer.record(filled, there));
    }
};

/// Peers: N1, N2.
template <class Harness>
void peer_conformance() {
    PeerBench<Harness> bench;
    auto& device = bench.device;
    auto& peer = bench.peer;
    std::byte *const host = bench.host, *const bounce = bench.bounce, *const here = bench.here;
    constexpr std::uint64_t bytes = bench.bytes;

    SUBCASE("N1: may be called again, and for itself") {
        must(device.enable_peer(peer));
        must(device.enable_peer(device));
        Harness::fill_pattern({host, bytes}, 80);
        bench.fill(host);
        must(peer.synchronize(bench.there));
        bench.copy(here, bounce, bytes, bench.a);
        CHECK(bench.sum_of(here, bytes, bench.a) == bench.pattern_sum(bytes, 80));
    }
    SUBCASE("N2: waits order copies of the two, also where memory is used again") {
        for (std::uint64_t round = 0; round < 3; ++round) {
            Harness::fill_pattern({host, bytes}, 81);
            Harness::fill_pattern({host + bytes, bytes}, 82 + round);
            for (std::uint64_t half = 0; half < 2; ++half) {
                must(peer.wait(bench.there, bench.emptied));  // D1: never recorded the first time
                bench.fill(host + half * bytes);
                must(device.wait(bench.a, bench.filled));
                bench.copy(here + half * bytes, bounce, bytes, bench.a);
                must(device.record(bench.emptied, bench.a));
            }
            CHECK(bench.sum_of(here, bytes, bench.a) == bench.pattern_sum(bytes, 81));
            CHECK(bench.sum_of(here + bytes, bytes, bench.a) == bench.pattern_sum(bytes, 82 + round));
        }
    }
    SUBCASE("pieces of one call come from the host and from a peer") {
        Harness::fill_pattern({host, 2 * bytes}, 85);
        bench.fill(host);
        must(device.wait(bench.a, bench.filled));
        std::vector<Copy> pieces;
        for (std::uint64_t at = 0; at < bytes; at += bytes / 8) {
            pieces.push_back({here + at, bounce + at, bytes / 8});
            pieces.push_back({here + bytes + at, host + bytes + at, bytes / 8});
        }
        must(device.copy(pieces, bench.a));
        CHECK(bench.sum_of(here, 2 * bytes, bench.a) == bench.pattern_sum(2 * bytes, 85));
    }
    if constexpr (requires { bench.harness.findings(); }) {
        SUBCASE("a wait that is missing is found") {
            bench.fill(host);
            must(device.wait(bench.a, bench.filled));
            bench.copy(here, bounce, bytes, bench.a);
            CHECK(bench.harness.findings() == 0);
            bench.harness.expect_findings();
            bench.copy(here, bounce, bytes, bench.b);  // waits for neither of the two
            const auto found = bench.harness.findings();
            CHECK(found > 0);
            bench.fill(host);  // while it may still be read
            CHECK(bench.harness.findings() > found);
        }
    }
}

/// Captures that peers take part in: N1, N2, D2, D6.
template <class Harness>
void peer_capture_conformance() {
    static_assert(residency::CapturingDevice<typename Harness::Device>);
    PeerBench<Harness> bench;
    using Device = typename Harness::Device;
    auto& device = bench.device;
    auto& peer = bench.peer;
    constexpr std::uint64_t bytes = bench.bytes;
    const auto fork = must(device.create_event(Timing::off));

    SUBCASE("N2: a stream of a peer takes part in a capture; each launch moves the bytes of that time") {
        must(device.begin_capture(bench.a));
        must(device.record(fork, bench.a));
        must(peer.wait(bench.there, fork));
        CHECK(must(peer.is_capturing(bench.there)));
        bench.fill(bench.host);
        must(device.wait(bench.a, bench.filled));
        bench.copy(bench.here, bench.bounce, bytes, bench.a);
        const auto graph = must(device.end_capture(bench.a));
        CHECK_FALSE(must(peer.is_capturing(bench.there)));
        for (std::uint64_t round = 0; round < 2; ++round) {
            Harness::fill_pattern({bench.host, bytes}, 90 + round);
            must(device.launch(graph, bench.a));
            CHECK(bench.sum_of(bench.here, bytes, bench.a) == bench.pattern_sum(bytes, 90 + round));
        }
        must(device.destroy_graph(graph));
    }
    SUBCASE("D6: a capture that a peer takes part in keeps other threads from waiting for the peer") {
        Harness::fill_pattern({bench.host, bytes}, 92);
        must(device.begin_capture(bench.a));
        must(device.record(fork, bench.a));
        must(peer.wait(bench.there, fork));
        std::atomic<bool> has_begun{false}, is_done{false};
        bool succeeded = false;
        std::thread other{[&] {
            has_begun = true;
            succeeded = peer.synchronize().has_value();
            is_done = true;
        }};
        while (!has_begun) { std::this_thread::yield(); }
        bench.fill(bench.host);
        CHECK_FALSE(is_done);
        must(device.wait(bench.a, bench.filled));
        bench.copy(bench.here, bench.bounce, bytes, bench.a);
        const auto graph = must(device.end_capture(bench.a));
        other.join();
        CHECK(succeeded);
        must(device.launch(graph, bench.a));
        CHECK(bench.sum_of(bench.here, bytes, bench.a) == bench.pattern_sum(bytes, 92));
        must(device.destroy_graph(graph));
    }
    SUBCASE("D6: a thread that captures on one of two peers is refused waiting for the other; N1: and enable_peer()") {
        const auto is_refused = [&](Device& first, Device& second, typename Device::Stream stream) {
            must(first.begin_capture(stream));
            CHECK_FALSE(first.enable_peer(second));
            CHECK_FALSE(second.enable_peer(first));
            CHECK_FALSE(second.synchronize());
            if (const auto ended = first.end_capture(stream)) { must(first.destroy_graph(*ended)); }
            must(second.synchronize());
        };
        is_refused(device, peer, bench.a);
        is_refused(peer, device, bench.there);  // the other way round than they were given to enable_peer()
    }
    SUBCASE("D2: what a peer recorded outside of the capture invalidates it") {
        bench.harness.expect_findings();
        must(peer.record(bench.filled, bench.there));
        must(device.begin_capture(bench.a));
        CHECK_FALSE(device.wait(bench.a, bench.filled));
        CHECK_FALSE(device.end_capture(bench.a));
    }
    SUBCASE("D2: a fork to a peer that is not joined fails at the end") {
        bench.harness.expect_findings();
        must(device.begin_capture(bench.a));
        must(device.record(fork, bench.a));
        must(peer.wait(bench.there, fork));
        must(peer.fill(bench.bounce, std::byte{1}, 8, bench.there));
        CHECK_FALSE(device.end_capture(bench.a));
        CHECK_FALSE(must(peer.is_capturing(bench.there)));
    }
    must(device.destroy_event(fork));
}

}  // namespace residency::conformance
