// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/gpu.hpp"
#include "benchmarks/lab/measure.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace lab {

residency::Result<RunCounts> run_planned_on_gpu(const RunJob& job) {
    using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                         residency::pool::Virtual<residency::CudaDevice>>;
    return measure<Weights>(job, *job.gpu, [](const Setting&, Weights::Options&) {});
}

}  // namespace lab
