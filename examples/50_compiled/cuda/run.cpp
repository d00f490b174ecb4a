// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include "residency/device/cuda.hpp"

namespace compiled {

Results run_cuda(const Job& job) {
    residency::CudaDevice device{0};
    Results results = Runner<residency::CudaDevice>{device, job, true}.run();
    results.device = device.name();
    return results;
}

}  // namespace compiled
