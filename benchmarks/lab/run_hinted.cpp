// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/pool/slab.hpp"

namespace lab {

residency::Result<RunCounts> run_hinted(const RunJob& job, const MakeEvictor& evictor) {
    if (job.gpu != nullptr) { return run_hinted_on_gpu(job, evictor); }
    using Weights = residency::Residency<AnyEvictor, residency::prefetch::Hinted,
                                         residency::pool::Slab<residency::SimulatedDevice>>;
    return simulate<Weights>(
        job, [&](const Setting& setting, Weights::Options& options) { options.policies.evictor = evictor(setting); });
}

}  // namespace lab
