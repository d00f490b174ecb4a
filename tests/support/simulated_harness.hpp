// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedDevice under the conformance suites of residency/conformance/device.hpp.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "residency/simulation/simulated_device.hpp"

namespace support {

/// The value of a Result. An error ends the test case, with its message.
template <class R>
decltype(auto) must(R&& result) {
    if (!result) { FAIL(result.error().message()); }
    if constexpr (requires { *result; }) { return *std::forward<R>(result); }
}

/// Small granularities: one page instead of the driver's 2 and 32 MiB.
inline residency::SimulatedDevice::Config small_device() {
    residency::SimulatedDevice::Config config;
    config.memory_bytes = std::uint64_t{256} << 20U;
    config.allocation_granularity = 4096;
    config.pool_granularity = 65536;
    config.chunk_granularity = 4096;
    return config;
}

/// The same with a link of 1 byte per nanosecond up and half of it down, and 100 ns per call; calls cost the host nothing.
inline residency::SimulatedDevice::Config device_of_round_numbers() {
    auto config = small_device();
    config.link = {.name = "simple",
                   .to_device_bytes_per_second = 1e9,
                   .to_host_bytes_per_second = 0.5e9,
                   .pageable_bytes_per_second = 0.25e9,
                   .on_device_bytes_per_second = 4e9,
                   .call_latency = std::chrono::nanoseconds{100},
                   .node_latency = std::chrono::nanoseconds{300}};
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = {};
    return config;
}

/// FNV-1a, and a pattern that has no period.
inline std::uint64_t checksum_of(std::span<const std::byte> bytes) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const std::byte byte : bytes) { hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U; }
    return bytes.empty() ? 0 : hash;
}
inline void write_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
    for (std::byte& byte : bytes) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        byte = static_cast<std::byte>(state >> 56U);
    }
}

class SimulatedHarness {
public:
    using Device = residency::SimulatedDevice;
    using Stream = Device::Stream;

    SimulatedHarness() : SimulatedHarness{small_device()} {}
    explicit SimulatedHarness(Device::Config config) : device_{std::move(config)} {}
    SimulatedHarness(const SimulatedHarness&) = delete;
    SimulatedHarness& operator=(const SimulatedHarness&) = delete;
    ~SimulatedHarness() {
        if (!findings_expected_) {
            for (const auto& report : device_.reports()) { FAIL_CHECK(report.text); }
        }
        for (const auto& leak : device_.leaks()) { FAIL_CHECK("left: " << leak.what); }
    }

    [[nodiscard]] Device& device() noexcept { return device_; }
    void expect_findings() noexcept { findings_expected_ = true; }

    void launch_checksum(const void* at, std::uint64_t bytes, std::uint64_t* sum, Stream stream) {
        run(stream, {.name = "checksum",
                     .duration = std::chrono::microseconds{5},
                     .reads = {{at, bytes}, {sum, 8}},
                     .writes = {{sum, 8}},
                     .body = [=] { *sum += checksum({static_cast<const std::byte*>(at), bytes}); }});
    }
    void launch_pattern(void* at, std::uint64_t bytes, std::uint64_t seed, Stream stream) {
        run(stream, {.name = "pattern",
                     .duration = std::chrono::microseconds{5},
                     .reads = {},
                     .writes = {{at, bytes}},
                     .body = [=] { fill_pattern({static_cast<std::byte*>(at), bytes}, seed); }});
    }
    void launch_spin(std::chrono::nanoseconds duration, Stream stream) {
        run(stream, {.name = "spin", .duration = duration, .reads = {}, .writes = {}, .body = {}});
    }
    static std::uint64_t checksum(std::span<const std::byte> bytes) { return checksum_of(bytes); }
    static void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) { write_pattern(bytes, seed); }

private:
    void run(Stream stream, Device::Kernel kernel) {
        if (residency::Status launched = device_.launch(stream, std::move(kernel)); !launched) {
            FAIL(launched.error().message());
        }
    }
    Device device_;
    bool findings_expected_ = false;
};

/// Two GPUs of one host.
class SimulatedPair : public SimulatedHarness {
public:
    SimulatedPair() : SimulatedPair{small_device()} {}
    explicit SimulatedPair(const Device::Config& config) : SimulatedHarness{config}, peer_{config, device()} {}
    ~SimulatedPair() {
        for (const auto& leak : peer_.leaks()) { FAIL_CHECK("left by the peer: " << leak.what); }
    }

    [[nodiscard]] Device& peer() noexcept { return peer_; }
    [[nodiscard]] std::uint64_t findings() const { return peer_.report_count(); }
    void launch_peer_spin(std::chrono::nanoseconds duration, Stream stream) {
        must(peer_.launch(stream, {.name = "spin", .duration = duration, .reads = {}, .writes = {}, .body = {}}));
    }

private:
    Device peer_;
};

}  // namespace support
