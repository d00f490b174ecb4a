// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"

namespace diffusion {
namespace {

class Gpu : public examples::CudaBackend {
public:
    void launch(const char* name, const Product& operation) {
        timed(name, [&] { examples::check_launch(diffusion::launch(operation, stream()), name); });
    }
};

}  // namespace

Results run_cuda() {
    Gpu gpu;
    return run_all(gpu, {.pixels = 256, .width = 1024});
}

}  // namespace diffusion
