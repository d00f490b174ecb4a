// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include "gpu.hpp"

namespace decoder {

Results run_cuda(const Job& job, const Checkpoint& model) {
    Gpu gpu{model.config, job.direct};
    return run_all(gpu, job, model);
}

}  // namespace decoder
