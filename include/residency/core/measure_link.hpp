// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/link.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Blocks for about 20 ms. Measures rate and latency of copies to the device: the median time of calls of two sizes, and the line
/// through both. Uses at most `device_bytes` of device memory during the call, and as much pinned host memory; 32 MiB are enough. The
/// latency of a graph's copy node cannot be measured from outside: it keeps its default ratio to that of a call. With less than 64 KiB
/// nothing is measured, and the defaults are returned.
template <Device D>
[[nodiscard]] Result<plan::Link> try_measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    constexpr std::uint64_t granule = std::uint64_t{64} << 10;
    // What an allocation takes is a multiple of its granularity.
    const std::uint64_t unit = (std::max)(granule, device.allocation_granularity());
    const std::uint64_t long_bytes = (std::min)(device_bytes, std::uint64_t{32} << 20) / unit * unit;
    if (long_bytes == 0) { return plan::Link{}; }
    const std::uint64_t short_bytes = (std::max)(granule, long_bytes / 32 / granule * granule);

    // Released in the reverse order, whatever fails.
    struct Scope {
        D& device;
        void* host = nullptr;
        void* at = nullptr;
        typename D::Stream stream{};
        bool has_stream = false;
        std::array<typename D::Event, 2> events{};
        std::size_t created = 0;
        ~Scope() {
            if (has_stream) { static_cast<void>(device.synchronize(stream).has_value()); }
            for (std::size_t i = 0; i < created; ++i) {
                static_cast<void>(device.destroy_event(events[i]).has_value());
            }
            if (has_stream) { static_cast<void>(device.destroy_stream(stream).has_value()); }
            if (at != nullptr) { static_cast<void>(device.deallocate(at).has_value()); }
            if (host != nullptr) { static_cast<void>(device.deallocate_host(host).has_value()); }
        }
    } scope{device};
    auto host = device.allocate_host(long_bytes);
    if (!host) { return host.error(); }
    scope.host = *host;
    auto at = device.allocate(long_bytes);
    if (!at) { return at.error(); }
    scope.at = *at;
    auto stream = device.create_stream();
    if (!stream) { return stream.error(); }
    scope.stream = *stream;
    scope.has_stream = true;
    for (auto& event : scope.events) {
        auto made = device.create_event(Timing::on);
        if (!made) { return made.error(); }
        event = *made;
        ++scope.created;
    }

    // Several calls between two events, so that the events' own cost vanishes.
    constexpr int calls = 8;
    const auto seconds_per_call = [&](std::uint64_t bytes) -> Result<double> {
        std::vector<double> seconds;
        for (int repeat = 0; repeat < 5; ++repeat) {
            if (auto done = device.record(scope.events[0], scope.stream); !done) { return done.error(); }
            for (int i = 0; i < calls; ++i) {
                const Copy copy{scope.at, scope.host, bytes};
                if (auto done = device.copy({&copy, 1}, scope.stream); !done) { return done.error(); }
            }
            if (auto done = device.record(scope.events[1], scope.stream); !done) { return done.error(); }
            if (auto done = device.synchronize(scope.stream); !done) { return done.error(); }
            auto elapsed = device.elapsed(scope.events[0], scope.events[1]);
            if (!elapsed) { return elapsed.error(); }
            if (repeat > 0) { seconds.push_back(std::chrono::duration<double>(*elapsed).count() / calls); }
        }
        residency::detail::sort(seconds);
        return (seconds[1] + seconds[2]) / 2;
    };
    auto long_call = seconds_per_call(long_bytes);
    if (!long_call) { return long_call.error(); }
    plan::Link link;
    const double node_ratio = link.node_latency_seconds / link.latency_seconds;
    if (short_bytes < long_bytes) {
        auto short_call = seconds_per_call(short_bytes);
        if (!short_call) { return short_call.error(); }
        const double slope = (*long_call - *short_call) / static_cast<double>(long_bytes - short_bytes);
        if (slope > 0) {
            link.bytes_per_second = 1 / slope;
            link.latency_seconds = (std::max)(0.0, *short_call - static_cast<double>(short_bytes) * slope);
            link.node_latency_seconds = link.latency_seconds * node_ratio;
        }
    } else if (*long_call > 0) {
        link.bytes_per_second = static_cast<double>(long_bytes) / *long_call;
    }
    return link;
}

#if RESIDENCY_EXCEPTIONS
template <Device D>
[[nodiscard]] plan::Link measure_link(D& device, std::uint64_t device_bytes = std::uint64_t{32} << 20) {
    return unwrap(try_measure_link(device, device_bytes));
}
#endif

}}  // namespace residency::RESIDENCY_ABI
