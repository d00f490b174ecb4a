// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/gpu.hpp"
#include "benchmarks/lab/measure.hpp"
#include "residency/pool/stream_ordered.hpp"

namespace lab {

residency::Result<RunCounts> run_online_on_gpu(const RunJob& job, const MakeEvictor& evictor,
                                               std::function<AnyPrefetcher()> prefetcher) {
    using Weights =
        residency::Residency<AnyEvictor, AnyPrefetcher, residency::pool::StreamOrdered<residency::CudaDevice>>;
    return measure<Weights>(job, *job.gpu, [&](const Setting& setting, Weights::Options& options) {
        options.policies.evictor = evictor(setting);
        options.policies.prefetcher = prefetcher();
    });
}

}  // namespace lab
