// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/staging_ring.hpp"

#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "residency/simulation/simulated_device.hpp"

namespace staging_ring_test {

using namespace residency;
using Ring = transport::StagingRing<SimulatedDevice>;

TEST_CASE(
    "StagingRing: slots come out in the order in which they were given back, with their copy and the next generation") {
    SimulatedDevice device;
    {
        Ring ring{device};
        REQUIRE(ring.open(5, 4096));
        const auto stream = device.create_stream().value();
        std::mt19937 random{1};
        std::deque<std::uint32_t> free;
        for (std::uint32_t slot = 0; slot < 5; ++slot) { free.push_back(slot); }
        std::vector<std::uint32_t> generations(5), taken;
        std::vector<bool> has_copy(5);
        for (int step = 0; step < 2000; ++step) {
            REQUIRE(ring.free_count() == free.size());
            if (!free.empty() && random() % 2 == 0) {
                const Ring::Taken got = ring.take();
                CHECK(got.slot == free.front());
                CHECK(got.generation == ++generations[got.slot]);
                CHECK(got.last_copy.has_value() == has_copy[got.slot]);
                if (got.last_copy) { ring.give_back_event(*got.last_copy); }
                taken.push_back(got.slot);
                free.pop_front();
            } else if (!taken.empty()) {
                std::swap(taken[random() % taken.size()], taken.back());
                const std::uint32_t slot = taken.back();
                taken.pop_back();
                has_copy[slot] = random() % 2 == 0;
                if (has_copy[slot]) {
                    const auto event = ring.take_event();
                    REQUIRE(event);
                    REQUIRE(device.record(*event, stream));
                    ring.give_back(slot, *event);
                } else {
                    ring.give_back(slot);
                }
                free.push_back(slot);
            }
        }
        CHECK(ring.memory(1) == ring.memory(0) + 4096);
        CHECK(ring.flag(0) != ring.flag(1));
        REQUIRE(device.synchronize(stream));
        REQUIRE(device.destroy_stream(stream));
    }
    for (const auto& leak : device.leaks()) { FAIL_CHECK("left: " << leak.what); }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

TEST_CASE("StagingRing: what cannot be opened leaves nothing, what is abandoned is left to the device") {
    SimulatedDevice device;
    using Kind = simulation::CallKind;
    for (const Kind kind : {Kind::allocate_host, Kind::create_flag}) {
        for (const std::uint64_t nth : {std::uint64_t{1}, std::uint64_t{3}}) {
            if (kind == Kind::allocate_host && nth > 1) { continue; }
            device.fail(kind, nth, ErrorKind::out_of_memory);
            Ring ring{device};
            CHECK(ring.open(4, 4096).error().kind() == ErrorKind::out_of_memory);
        }
    }
    CHECK(device.leaks().empty());
    {
        Ring ring{device};
        REQUIRE(ring.open(4, 4096));
        ring.abandon();
    }
    CHECK(device.leaks().size() == 5);  // the memory and four flags
}

}  // namespace staging_ring_test
