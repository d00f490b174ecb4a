// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/core/copy_timer.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/plan/link.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Blocks for 20 to 90 ms: the longer, the more others use the link. Measures rate and latency of copies to the device: the least time of
/// calls of two sizes, and the line through both. Uses at most `device_bytes` of device memory during the call, and as much pinned host
/// memory; 32 MiB are enough. The latency of a graph's copy node cannot be measured from outside: it keeps its default ratio to that of a
/// call. With less than 64 KiB nothing is measured, and the defaults are returned.
template <Device D>
[[nodiscard]] Result<plan::Link> try_measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    constexpr std::uint64_t granule = std::uint64_t{64} << 10;
    // What an allocation takes is a multiple of its granularity.
    const std::uint64_t unit = (std::max)(granule, device.allocation_granularity());
    const std::uint64_t long_bytes = (std::min)(device_bytes, std::uint64_t{32} << 20) / unit * unit;
    if (long_bytes == 0) { return plan::Link{}; }
    const std::uint64_t short_bytes = (std::max)(granule, long_bytes / 32 / granule * granule);
    core::CopyTimer<D> timer{device};
    if (auto opened = timer.open(long_bytes, false); !opened) { return opened.error(); }
    const auto cost = timer.measure(short_bytes, long_bytes);
    if (!cost) { return cost.error(); }
    plan::Link link;
    if (!detail::is_positive(cost->seconds_per_byte)) { return link; }
    link.bytes_per_second = 1 / cost->seconds_per_byte;
    if (short_bytes < long_bytes) {
        const double node_ratio = link.node_latency_seconds / link.latency_seconds;
        link.latency_seconds = cost->latency_seconds;
        link.node_latency_seconds = link.latency_seconds * node_ratio;
    }
    return link;
}

/// Blocks for a few milliseconds. Measures how many bytes of device memory kernels read per second: copies within the device, of
/// which every byte is read and written. Uses at most `device_bytes` of device memory during the call; 128 MiB are enough, and with less
/// than a cache holds the cache is measured. With less than two allocations nothing is measured, and the default is returned.
template <Device D>
[[nodiscard]] Result<double> try_measure_memory(D& device, std::uint64_t device_bytes = std::uint64_t{128} << 20) {
    const std::uint64_t unit = (std::max)(std::uint64_t{64} << 10, device.allocation_granularity());
    const std::uint64_t bytes = (std::min)(device_bytes / 2, std::uint64_t{64} << 20) / unit * unit;
    if (bytes == 0) { return plan::default_memory_bytes_per_second; }
    core::CopyTimer<D> timer{device};
    if (auto opened = timer.open(bytes, true); !opened) { return opened.error(); }
    const auto cost = timer.measure(bytes / 2, bytes);
    if (!cost) { return cost.error(); }
    return detail::is_positive(cost->seconds_per_byte) ? 2 / cost->seconds_per_byte
                                                       : plan::default_memory_bytes_per_second;
}

#if RESIDENCY_EXCEPTIONS
template <Device D>
[[nodiscard]] plan::Link measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    return unwrap(try_measure_link(device, device_bytes));
}
template <Device D>
[[nodiscard]] double measure_memory(D& device, std::uint64_t device_bytes = std::uint64_t{128} << 20) {
    return unwrap(try_measure_memory(device, device_bytes));
}
#endif

}}  // namespace residency::RESIDENCY_ABI
