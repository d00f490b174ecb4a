// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/pool/stream_ordered.hpp"

namespace lab {

residency::Result<RunCounts> run_online(const RunJob& job, const MakeEvictor& evictor,
                                        std::function<AnyPrefetcher()> prefetcher) {
    if (job.gpu != nullptr) { return run_online_on_gpu(job, evictor, std::move(prefetcher)); }
    using Weights =
        residency::Residency<AnyEvictor, AnyPrefetcher, residency::pool::StreamOrdered<residency::SimulatedDevice>>;
    return simulate<Weights>(job, [&](const Setting& setting, Weights::Options& options) {
        options.policies.evictor = evictor(setting);
        options.policies.prefetcher = prefetcher();
    });
}

}  // namespace lab
