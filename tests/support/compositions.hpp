// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compositions that many test files use.

#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace compositions {

using Pinned = residency::transport::Pinned<residency::SimulatedDevice>;
using StreamOrdered = residency::pool::StreamOrdered<residency::SimulatedDevice>;
using Slab = residency::pool::Slab<residency::SimulatedDevice>;
using Virtual = residency::pool::Virtual<residency::SimulatedDevice>;

using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::None, StreamOrdered>;
using OnSlab = residency::Residency<residency::evict::Lru, residency::prefetch::None, Slab>;
using Ahead = residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, Slab>;
using Hinted = residency::Residency<residency::evict::Lru, residency::prefetch::Hinted, StreamOrdered>;
using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned, Virtual>;

}  // namespace compositions
