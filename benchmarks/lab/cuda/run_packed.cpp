// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/gpu.hpp"
#include "benchmarks/lab/cuda/unpacker.hpp"
#include "benchmarks/lab/measure.hpp"
#include "benchmarks/lab/packed_bytes.hpp"
#include "residency/packed.hpp"

namespace lab {

residency::Result<RunCounts> run_packed_on_gpu(const RunJob& job) {
    using Weights = residency::Packed<residency::CudaDevice>;
    const auto packed = packed_bytes_of(job.work);
    if (!packed) { return packed.error(); }
    const auto host = job.gpu->new_host(packed->bytes);
    if (!host) { return host.error(); }
    const auto catalog = catalog_of(job.work, *host, packed->stored);
    if (!catalog) { return catalog.error(); }
    return measure<Weights>(job, *job.gpu, *catalog, [](const Setting&, Weights::Options& options) {
        options.policies.unpacker = &gpu_unpacker();
    });
}

}  // namespace lab
