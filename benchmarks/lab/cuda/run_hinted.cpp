// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/gpu.hpp"
#include "benchmarks/lab/measure.hpp"
#include "residency/pool/slab.hpp"

namespace lab {

residency::Result<RunCounts> run_hinted_on_gpu(const RunJob& job, const MakeEvictor& evictor) {
    using Weights =
        residency::Residency<AnyEvictor, residency::prefetch::Hinted, residency::pool::Slab<residency::CudaDevice>>;
    return measure<Weights>(job, *job.gpu, [&](const Setting& setting, Weights::Options& options) {
        options.policies.evictor = evictor(setting);
    });
}

}  // namespace lab
