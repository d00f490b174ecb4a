// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/core/planned_decider.hpp"
#include "residency/evict/planned.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/planned.hpp"

namespace lab {

residency::Result<RunCounts> run_planned(const RunJob& job) {
    using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                         residency::pool::Virtual<residency::SimulatedDevice>>;
    auto counts = job.gpu != nullptr ? run_planned_on_gpu(job)
                                     : simulate<Weights>(job, [](const Setting&, Weights::Options& options) {
                                           options.learn = false;  // the workload declares its times
                                       });
    if (counts) {
        // The core counts accesses of whole storages, of which a plan brings parts: what was there is what was not moved.
        const double moved = std::min(counts->fetched_bytes, counts->requested_bytes);
        counts->missed_bytes = std::min(counts->missed_bytes, moved);
        counts->ahead_bytes = moved - counts->missed_bytes;
    }
    return counts;
}

}  // namespace lab
