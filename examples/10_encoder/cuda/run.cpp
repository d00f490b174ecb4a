// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run.hpp"

#include <string>

#include "examples/support/cuda_backend.hpp"
#include "kernels.hpp"
#include "residency/residency.hpp"

namespace encoder {
namespace {

/// Runs operations as kernels of a GPU.
class Gpu : public examples::CudaBackend {
public:
    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        timed(name, [&] { examples::check(encoder::launch(operation, stream()), std::string{"the kernel "} + name); });
    }
};

}  // namespace

Results run_cuda(const Job& job, const Checkpoint& model) {
    Gpu gpu;
    return run_all(gpu, job, model);
}

}  // namespace encoder
