// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include <string>

#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"

namespace experts {
namespace {

class Gpu : public examples::CudaBackend {
public:
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        timed(name, [&] { examples::check(experts::launch(operation, stream()), std::string{"the kernel "} + name); });
    }
};

}  // namespace

Results run_cuda() {
    Gpu gpu;
    return run_all(gpu,
                   {.layers = 4, .hidden = mixtral_hidden, .inner = mixtral_inner, .passes = 12, .batches = {1, 256}});
}

}  // namespace experts
