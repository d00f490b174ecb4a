// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/allocation_count.hpp"

namespace support {

/// A simulated device of small granularities for the conformance suites of pools and transports. It counts none of its own host
/// allocations, keeps the pieces of copies, and fails the test for findings and leaks.
class WatchedDevice : public residency::SimulatedDevice {
public:
    WatchedDevice() : SimulatedDevice{config()} {}
    WatchedDevice(const WatchedDevice&) = delete;
    WatchedDevice& operator=(const WatchedDevice&) = delete;
    ~WatchedDevice() {
        if (const auto found = reports(); !found.empty()) { FAIL_CHECK(found.front().text); }
        for (const Leak& leak : leaks()) {
            if (!leaks_expected_) { FAIL_CHECK("left: " << leak.what); }
        }
    }
    void expect_leaks() noexcept { leaks_expected_ = true; }

    residency::Status copy(std::span<const residency::Copy> copies, Stream stream) {
        const test::Uncounted uncounted;
        pieces_.insert(pieces_.end(), copies.begin(), copies.end());
        return SimulatedDevice::copy(copies, stream);
    }
    /// The pieces that copy() was called with since the last call of this. Only in the thread that copies.
    [[nodiscard]] std::vector<residency::Copy> take_pieces() { return std::exchange(pieces_, {}); }

    [[nodiscard]] residency::Result<Event> create_event(residency::Timing timing) {
        const test::Uncounted uncounted;
        return SimulatedDevice::create_event(timing);
    }
    residency::Status record(Event event, Stream stream) {
        const test::Uncounted uncounted;
        return SimulatedDevice::record(event, stream);
    }
    residency::Status wait_flag(Stream stream, Flag flag, std::uint32_t value) {
        const test::Uncounted uncounted;
        return SimulatedDevice::wait_flag(stream, flag, value);
    }
    using SimulatedDevice::allocate;
    using SimulatedDevice::deallocate;
    [[nodiscard]] residency::Result<void*> allocate(Pool pool, std::uint64_t bytes, Stream stream) {
        const test::Uncounted uncounted;
        return SimulatedDevice::allocate(pool, bytes, stream);
    }
    residency::Status deallocate(Pool pool, void* at, Stream stream) {
        const test::Uncounted uncounted;
        return SimulatedDevice::deallocate(pool, at, stream);
    }
    [[nodiscard]] residency::Result<std::uint64_t> held_bytes(Pool pool) {
        const test::Uncounted uncounted;
        return SimulatedDevice::held_bytes(pool);
    }

private:
    static Config config() {
        Config config;
        config.memory_bytes = std::uint64_t{64} << 20U;
        config.allocation_granularity = 4096;
        config.pool_granularity = 16384;
        config.chunk_granularity = 4096;
        return config;
    }

    std::vector<residency::Copy> pieces_;
    bool leaks_expected_ = false;
};

}  // namespace support
