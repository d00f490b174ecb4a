// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Host memory that is touched ahead, and pinned when its size is known.
#include "residency/packed/memory_ahead.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/device.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace memory_ahead_test {

namespace {

using residency::conformance::must;
using residency::host::Region;
using residency::packed::detail::MemoryAhead;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

/// How many pages of a region are in memory.
std::size_t pages_there(const Region& region) {
    std::vector<unsigned char> pages((region.bytes() + Region::page_bytes - 1) / Region::page_bytes);
    REQUIRE(::mincore(region.data(), region.bytes(), pages.data()) == 0);
    return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; }));
}

}  // namespace

TEST_CASE("memory ahead: every range has the size that was asked for, all its pages, and nothing behind it") {
    for (const unsigned threads : {1U, 3U}) {
        std::mt19937 random{threads};
        std::vector<std::uint64_t> most, asked;
        for (int i = 0; i < 12; ++i) {
            most.push_back(random() % 4 == 0 ? random() % 9000 : random() % (13 * MiB));
            // More and less than the share that is touched before; sometimes nothing, sometimes all.
            asked.push_back(i % 5 == 1 ? 0 : i % 5 == 2 ? most.back() : most.back() * (random() % 100) / 100);
        }
        MemoryAhead ahead;
        must(ahead.start(most, 0.5, threads));
        std::vector<std::shared_ptr<Region>> taken;
        for (const std::uint64_t bytes : asked) { taken.push_back(must(ahead.take(bytes))); }
        for (std::size_t i = 0; i < taken.size(); ++i) {
            CAPTURE(i);
            REQUIRE(taken[i]->bytes() == asked[i]);
            if (asked[i] == 0) { continue; }
            CHECK(pages_there(*taken[i]) == (asked[i] + Region::page_bytes - 1) / Region::page_bytes);
            CHECK(std::ranges::all_of(taken[i]->span(), [](std::byte byte) { return byte == std::byte{}; }));
            std::ranges::fill(taken[i]->span(), static_cast<std::byte>(i));
        }
        for (std::size_t i = 0; i < taken.size(); ++i) {
            CHECK(std::ranges::all_of(taken[i]->span(),
                                      [&](std::byte byte) { return byte == static_cast<std::byte>(i); }));
        }
    }
}

TEST_CASE("memory ahead: it may end before anything, or everything, was taken") {
    MemoryAhead never_started;
    for (int taken = 0; taken < 3; ++taken) {
        MemoryAhead ahead;
        must(ahead.start({20 * MiB, 20 * MiB, 20 * MiB}, 1, 2));
        for (int i = 0; i < taken; ++i) { CHECK(must(ahead.take(MiB))->bytes() == MiB); }
    }
}

TEST_CASE("memory ahead: a range that the system does not give is an error of the one that takes it") {
    MemoryAhead ahead;
    must(ahead.start({MiB, std::uint64_t{1} << 62, MiB}, 0.001, 2));
    CHECK(must(ahead.take(MiB))->bytes() == MiB);
    const auto refused = ahead.take(4096);
    REQUIRE(!refused);
    CHECK(refused.error().kind() == residency::ErrorKind::out_of_memory);
}

TEST_CASE("memory ahead: more than a limit of the process leaves is refused before a page of it is taken") {
    MemoryAhead ahead;
    must(ahead.start({std::uint64_t{1} << 45, std::uint64_t{1} << 45}, 1e-9, 1));
    const auto refused = ahead.take(std::uint64_t{1} << 44);
    REQUIRE(!refused);
    CHECK(refused.error().kind() == residency::ErrorKind::out_of_memory);
    CHECK(refused.error().message().find("RLIMIT_MEMLOCK") != std::string::npos);
}

TEST_CASE("a region that is cut gives back what lies behind, and stays apart from others") {
    const auto region = must(Region::try_map(5 * MiB, false));
    std::ranges::fill(region->span(), std::byte{7});
    std::byte* const end = region->data() + 3 * Region::page_bytes;
    region->cut(2 * Region::page_bytes + 1);
    CHECK(region->bytes() == 2 * Region::page_bytes + 1);
    CHECK(std::ranges::all_of(region->span(), [](std::byte byte) { return byte == std::byte{7}; }));
    unsigned char page = 0;
    CHECK(::mincore(end + Region::page_bytes, Region::page_bytes, &page) == -1);
    CHECK(errno == ENOMEM);
    // One page behind it is still its own, and nothing is there.
    CHECK(::mincore(end, Region::page_bytes, &page) == 0);
    region->cut(2 * Region::page_bytes + 1);
    CHECK(region->bytes() == 2 * Region::page_bytes + 1);
}

TEST_CASE("memory that the device cannot pin: memory of its own takes the bytes") {
    residency::SimulatedDevice device;
    for (const bool can_pin : {true, false}) {
        auto region = must(Region::try_map(3 * MiB, true));
        std::ranges::fill(region->span(), std::byte{9});
        const std::byte* const at = region->data();
        if (!can_pin) { device.fail(residency::simulation::CallKind::pin, 1); }
        const auto memory = must(residency::packed::try_pin(device, std::move(region)));
        CHECK((memory.writable.data() == at) == can_pin);
        CHECK(memory.bytes->kind() == residency::HostMemory::pinned);
        CHECK(memory.writable.size() == 3 * MiB);
        CHECK(std::ranges::all_of(memory.writable, [](std::byte byte) { return byte == std::byte{9}; }));
    }
}

}  // namespace memory_ahead_test
