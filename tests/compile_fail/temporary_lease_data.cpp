// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: deleted
// expect: data
// lines: 20
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/simulation/simulated_device.hpp"

using Device = residency::SimulatedDevice;
using Online = residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::Slab<Device>>;
using Planned =
    residency::Residency<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<Device>>;

// The address would outlive the lease.
const std::byte* first(Planned::Pass& pass, residency::WeightId weight) {
#ifdef SHOULD_FAIL
    return pass.acquire(weight).data(weight);
#else
    const auto lease = pass.acquire(weight);
    return lease.data(weight);
#endif
}
