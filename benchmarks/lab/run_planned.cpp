// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace lab {

residency::Result<RunCounts> run_planned(const RunJob& job) {
    using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                         residency::pool::Virtual<residency::SimulatedDevice>>;
    auto counts = job.gpu != nullptr ? run_planned_on_gpu(job)
                                     : simulate<Weights>(job, [](const Setting&, Weights::Options& options) {
                                           options.learn = false;  // the workload declares its times
                                       });
    if (counts) { count_moved(*counts); }
    return counts;
}

}  // namespace lab
