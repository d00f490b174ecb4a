// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../together.hpp"

#include "residency/device/cuda.hpp"

namespace compiled {

Results run_cuda(const Job& job) {
    residency::CudaDevice device{0};
    Results results = run_job(device, job, true);
    results.device = device.name();
    return results;
}

}  // namespace compiled
