// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "run_split.hpp"
#include "simulated.hpp"

namespace decoder {

Results run_split_simulated(const Job& job, const Checkpoint& model) {
    std::deque<Simulated> devices;
    std::vector<Simulated*> all;
    all.reserve(job.gpus);
    for (std::uint32_t i = 0; i < job.gpus; ++i) {
        all.push_back(&devices.emplace_back(model.catalog.streamed_bytes() / job.gpus));
    }
    return run_split<Simulated>(all, job, model);
}

}  // namespace decoder
