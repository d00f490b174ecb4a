// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/evict/planned.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/planned.hpp"

namespace lab {

residency::Result<RunCounts> run_planned(const RunJob& job) {
    if (job.gpu != nullptr) { return run_planned_on_gpu(job); }
    using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                         residency::pool::Virtual<residency::SimulatedDevice>>;
    return simulate<Weights>(job, [](const Setting&, Weights::Options&) {});
}

}  // namespace lab
