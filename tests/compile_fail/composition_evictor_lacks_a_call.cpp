// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: who leaves: the first parameter has to model evict::EvictionPolicy, or be evict::Planned
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

// An evictor that is never told what left.
struct Forgetful {
    Status attach(const evict::Context&) { return {}; }
    void inserted(StorageId, StepIndex) noexcept {}
    void used(StorageId, StepIndex) noexcept {}
    template <class MayLeave>
    std::optional<StorageId> victim(StepIndex, MayLeave&&) noexcept {
        return {};
    }
};

#ifdef SHOULD_FAIL
using Weights = Residency<Forgetful, prefetch::None, pool::Slab<SimulatedDevice>>;
#else
using Weights = Residency<evict::Lru, prefetch::None, pool::Slab<SimulatedDevice>>;
#endif

int main() {
    SimulatedDevice device;
    return Weights::try_create(device, {}) ? 0 : 1;
}
