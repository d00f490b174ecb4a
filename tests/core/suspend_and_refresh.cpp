// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Device memory that is given back and taken again, and weights that are replaced: random programs on every kind of composition.
#include <doctest/doctest.h>

#include <cstdint>

#include "residency/transport/staged.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/replaced_weights.hpp"
#include "tests/support/simulated_harness.hpp"

using support::SimulatedHarness;
using support::WeightsIn;

namespace {

using Device = residency::SimulatedDevice;
template <class Weights>
struct WithStaging;
template <class Evictor, class Prefetcher, class Pool, class Transport>
struct WithStaging<residency::Residency<Evictor, Prefetcher, Pool, Transport>> {
    using type = residency::Residency<Evictor, Prefetcher, Pool, residency::transport::Staged<Device>>;
};

template <class Weights>
void run_programs(std::uint64_t programs, WeightsIn place) {
    support::replace_weights<Weights, SimulatedHarness>(programs, place, 16384, 0, [](auto& options) {
        if constexpr (requires { options.policies.pool.chunk_bytes; }) { options.policies.pool.chunk_bytes = 4096; }
        if constexpr (requires { options.poison; }) { options.poison = true; }
        if constexpr (requires { options.transport.ring_bytes; }) {
            options.transport.ring_bytes = 32768;
            options.transport.slot_bytes = 4096;
            options.transport.threads = 2;
        }
    });
}

}  // namespace

TEST_SUITE_BEGIN("core suspend and refresh");

TEST_CASE_TEMPLATE("C30 C31: memory that is given back, weights that are replaced: random programs", Weights,
                   compositions::OnDemand, compositions::OnSlab, compositions::Ahead, compositions::Hinted,
                   compositions::Planned) {
    run_programs<Weights>(30, WeightsIn::pinned);
}

TEST_CASE_TEMPLATE("C30 C31: the same through a staging ring, from pageable memory and from a file", Weights,
                   compositions::OnDemand, compositions::Planned) {
    using Staged = typename WithStaging<Weights>::type;
    run_programs<Staged>(12, WeightsIn::pageable);
    run_programs<Staged>(12, WeightsIn::file);
}

TEST_SUITE_END();
