// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"
#include "simulated.hpp"

namespace decoder {

Results run_simulated(const Job& job, const Checkpoint& model) {
    Simulated backend{model.catalog.streamed_bytes()};
    return run_all(backend, job, model);
}

}  // namespace decoder
