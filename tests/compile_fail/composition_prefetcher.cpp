// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: what comes next: the second parameter has to model prefetch::PrefetchPolicy, or be prefetch::Planned
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

#ifdef SHOULD_FAIL
using Weights = Residency<evict::Lru, evict::Lru, pool::Slab<SimulatedDevice>>;
#else
using Weights = Residency<evict::Lru, prefetch::None, pool::Slab<SimulatedDevice>>;
#endif

int main() {
    SimulatedDevice device;
    return Weights::try_create(device, {}) ? 0 : 1;
}
