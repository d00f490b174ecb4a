// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The link between host and device memory. A call of b bytes occupies one direction for latency + b / rate; calls of one direction
/// run one after another.
struct LinkModel {
    std::string_view name = "h200_measured";      ///< for tables
    double to_device_bytes_per_second = 55.5e9;   ///< from pinned host memory
    double to_host_bytes_per_second = 55.5e9;     ///< to pinned host memory
    double pageable_bytes_per_second = 10.4e9;    ///< of host memory that is not pinned, in either direction
    double on_device_bytes_per_second = 2.1e12;   ///< of copies and fills within the device
    std::chrono::nanoseconds call_latency{2400};  ///< of a call, however many pieces it has
    std::chrono::nanoseconds node_latency{2700};  ///< of a copy node of a captured graph

    friend bool operator==(const LinkModel&, const LinkModel&) = default;  ///< compares all members
};

/// What a transport uses: the device's own link to the host, or a neighbour's link, and the neighbour's memory.
struct LinkUse {
    std::string device;                 ///< whose link it is
    double bytes_per_second = 0;        ///< that it brings, as measured or assumed
    std::uint64_t bytes = 0;            ///< that eager calls have enqueued over it; graphs are not counted
    std::string reason;                 ///< why it is not used; empty: it is
    std::uint64_t held_bytes = 0;       ///< of the neighbour's memory, in which bytes of the model lie
    double held_bytes_per_second = 0;   ///< that copies bring from there, as measured or assumed
    std::uint64_t bytes_from_held = 0;  ///< that eager calls have enqueued from there; graphs are not counted
    std::string held_reason;            ///< why less is held than makes passes faster; empty: it is
};

/// Presets. `h200_measured` was measured (H200, PCIe 5 x16, CUDA 13). The other rates are what the standards leave for payload (about
/// 80 % of the raw rate of PCIe, 90 % of NVLink-C2C); their latencies are the measured ones.
namespace links {

/// PCIe 3.0, 16 lanes.
inline constexpr LinkModel pcie3{.name = "pcie3",
                                 .to_device_bytes_per_second = 12.5e9,
                                 .to_host_bytes_per_second = 12.5e9,
                                 .pageable_bytes_per_second = 6e9,
                                 .on_device_bytes_per_second = 0.4e12};
/// PCIe 4.0, 16 lanes.
inline constexpr LinkModel pcie4{.name = "pcie4",
                                 .to_device_bytes_per_second = 25e9,
                                 .to_host_bytes_per_second = 25e9,
                                 .pageable_bytes_per_second = 8e9,
                                 .on_device_bytes_per_second = 0.8e12};
/// PCIe 5.0, 16 lanes.
inline constexpr LinkModel pcie5{.name = "pcie5",
                                 .to_device_bytes_per_second = 51e9,
                                 .to_host_bytes_per_second = 51e9,
                                 .pageable_bytes_per_second = 10e9,
                                 .on_device_bytes_per_second = 1.6e12};
/// NVLink-C2C of a GH200.
inline constexpr LinkModel gh200{.name = "gh200",
                                 .to_device_bytes_per_second = 400e9,
                                 .to_host_bytes_per_second = 400e9,
                                 .pageable_bytes_per_second = 100e9,
                                 .on_device_bytes_per_second = 1.9e12};
inline constexpr LinkModel h200_measured{};  ///< PCIe 5.0, as an H200 was measured

inline constexpr std::array all{pcie3, pcie4, pcie5, gh200, h200_measured};  ///< for those who go through all of them

/// The preset of that name; null: there is none.
[[nodiscard]] constexpr const LinkModel* find(std::string_view name) noexcept {
    for (const LinkModel& link : all) {
        if (link.name == name) { return &link; }
    }
    return nullptr;
}

}  // namespace links

}}  // namespace residency::RESIDENCY_ABI
