// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Device memory that is given back and taken again, and weights that are replaced, on a real GPU: the random programs of the simulated
// device.
#include <doctest/doctest.h>

#include <cstdint>

#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/transport/links.hpp"
#include "residency/transport/staged.hpp"
#include "tests/gpu/cuda_harness.hpp"
#include "tests/gpu/support.hpp"
#include "tests/support/replaced_weights.hpp"

namespace suspend_and_refresh_on_gpu {

using support::WeightsIn;

namespace {

using Device = residency::CudaDevice;
using OnDemand =
    residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::StreamOrdered<Device>>;
using OnSlab =
    residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<2>, residency::pool::Slab<Device>>;
using Planned =
    residency::Residency<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<Device>>;
using PlannedLinks = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                          residency::pool::Virtual<Device>, residency::transport::Links<Device>>;
using PlannedStaged = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                           residency::pool::Virtual<Device>, residency::transport::Staged<Device>>;

template <class Weights, class Configure>
void run_programs(std::uint64_t programs, WeightsIn place, const Configure& configure) {
    std::uint64_t reads = 0, all = 0;
    gpu::for_seeds(0, [&](unsigned seed) {
        reads += support::replace_weights<Weights, gpu::CudaHarness>(seed * programs + 1, programs, place, 2 * gpu::MiB,
                                                                     gpu::driver_own_bytes, configure);
        all += programs;
    });
    CHECK(reads > 30 * all);
}
template <class Weights>
void run_programs(std::uint64_t programs, WeightsIn place) {
    run_programs<Weights>(programs, place, [](auto& options) {
        if constexpr (requires { options.transport.ring_bytes; }) {
            options.transport.ring_bytes = 8 * gpu::MiB;
            options.transport.slot_bytes = gpu::MiB;
        }
    });
}

}  // namespace

TEST_CASE("C31 C32: memory that is given back, weights that are replaced: random programs on the driver") {
    run_programs<OnDemand>(8, WeightsIn::pinned);
    run_programs<OnSlab>(8, WeightsIn::pinned);
    run_programs<Planned>(12, WeightsIn::pinned);
    run_programs<PlannedStaged>(4, WeightsIn::pageable);
    run_programs<PlannedStaged>(4, WeightsIn::file);
}
TEST_CASE("C31 C32: the same programs on two GPUs, by both links and from the neighbour's memory") {
    if (!gpu::has_pair()) { return; }
    residency::CudaDevice neighbour{1};
    for (const std::uint64_t held : {0 * gpu::MiB, 8 * gpu::MiB}) {
        CAPTURE(held);
        run_programs<PlannedLinks>(8, WeightsIn::pinned, [&](auto& options) {
            options.transport.neighbours = {&neighbour};
            options.transport.bounce_bytes = 8 * gpu::MiB;
            options.transport.memory_bytes = {held};
        });
    }
}

}  // namespace suspend_and_refresh_on_gpu
