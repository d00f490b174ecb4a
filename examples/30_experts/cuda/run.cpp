// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

namespace experts {

Results run_cuda(bool packed) {
    Gpu gpu;
    return run_all(gpu,
                   {.layers = 4, .hidden = mixtral_hidden, .inner = mixtral_inner, .passes = 12, .batches = {1, 256}},
                   packed);
}

}  // namespace experts
