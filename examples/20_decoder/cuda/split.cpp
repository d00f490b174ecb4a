// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "../run_split.hpp"

#include "gpu.hpp"

namespace decoder {

Results run_split_cuda(const Job& job, const Checkpoint& model) {
    static_cast<void>(Split{model, job.gpus});  // refused before anything is begun
    const auto communicators = connect(job.gpus);
    std::vector<std::unique_ptr<Gpu>> gpus;
    std::vector<Gpu*> all;
    all.reserve(job.gpus);
    for (std::uint32_t i = 0; i < job.gpus; ++i) {
        all.push_back(
            gpus.emplace_back(std::make_unique<Gpu>(model.config, job.direct, int(i), communicators[i].get())).get());
    }
    return run_split<Gpu>(all, job, model);
}

}  // namespace decoder
