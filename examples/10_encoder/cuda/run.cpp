// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

namespace encoder {

Results run_cuda(const Job& job, const Checkpoint& model) {
    Gpu gpu;
    return run_all(gpu, job, model);
}

}  // namespace encoder
