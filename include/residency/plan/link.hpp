// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The way from the host to the device: one call of b bytes occupies it for latency + b / rate, in order.
struct Link {
    double bytes_per_second = 55.5e9;
    double latency_seconds = 2.4e-6;       ///< of a call, that is a batch of copies that wait for the same step
    double node_latency_seconds = 2.7e-6;  ///< of a copy node of a captured graph, where there are no batches

    friend bool operator==(const Link&, const Link&) = default;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
