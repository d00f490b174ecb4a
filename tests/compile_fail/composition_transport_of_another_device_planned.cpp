// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: how it travels: the fourth parameter has to model transport::TransportPolicy for the pool's device
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

using namespace residency;

// The same device by another type.
struct OtherDevice : SimulatedDevice {};

#ifdef SHOULD_FAIL
using Weights =
    Residency<evict::Planned, prefetch::Planned, pool::Virtual<SimulatedDevice>, transport::Pinned<OtherDevice>>;
#else
using Weights =
    Residency<evict::Planned, prefetch::Planned, pool::Virtual<SimulatedDevice>, transport::Pinned<SimulatedDevice>>;
#endif

int main() {
    SimulatedDevice device;
    return Weights::try_create(device, {}) ? 0 : 1;
}
