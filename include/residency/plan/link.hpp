// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The way from the host to the device. Calls occupy it one after the other; one of b bytes takes latency + b / rate.
struct Link {
    double bytes_per_second = 55.5e9;      ///< to the device
    double latency_seconds = 2.4e-6;       ///< per call: copies that start together after one wait
    double node_latency_seconds = 2.7e-6;  ///< per copy node of a captured graph, which has no calls of several copies

    friend bool operator==(const Link&, const Link&) = default;  ///< compares all members
};

/// The rate at which kernels read device memory, where it is not measured (H200: 4.2 TB/s).
inline constexpr double default_memory_bytes_per_second = 4.2e12;

}}}  // namespace residency::RESIDENCY_ABI::plan
