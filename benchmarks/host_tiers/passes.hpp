// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "residency/model/catalog.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace host_tiers {

inline constexpr std::uint64_t tensor_bytes = std::uint64_t{32} << 20;
inline constexpr std::uint64_t slot_bytes = std::uint64_t{4} << 20;
inline constexpr std::uint64_t ring_bytes = std::uint64_t{128} << 20;
inline constexpr std::uint64_t ahead_ring_bytes = std::uint64_t{256} << 20;
inline constexpr unsigned threads = 8;

inline residency::SimulatedDevice::Config plain_device() {
    residency::SimulatedDevice::Config config;
    config.checker = false;
    return config;
}

/// Seconds a pass from the disk, after one that is not counted, where the host does something else between passes. That time does
/// not count.
double paused_pass_seconds(const residency::Catalog& catalog, bool reads_ahead, double pause_seconds, int passes);

/// Seconds from nothing to the end of the first pass. With a pace the file gives one tensor in that time, and a step takes as
/// long; without one both go as fast as the machine does.
double first_pass_seconds(const residency::Catalog& catalog, bool overlapped, std::chrono::duration<double> pace);

}  // namespace host_tiers
