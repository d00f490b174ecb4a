// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/on_slab.hpp"

#include "benchmarks/lab/simulate.hpp"
#include "residency/pool/slab.hpp"

using namespace residency;

Result<lab::RunCounts> run_on_slab(const lab::RunJob& job, const lab::MakeEvictor& evictor,
                                   const std::function<lab::AnyPrefetcher()>& prefetcher) {
    using Weights = Residency<lab::AnyEvictor, lab::AnyPrefetcher, pool::Slab<SimulatedDevice>>;
    return lab::simulate<Weights>(job, [&](const lab::Setting& setting, Weights::Options& options) {
        options.policies.evictor = evictor(setting);
        options.policies.prefetcher = prefetcher();
    });
}
