// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "examples/support/simulated_backend.hpp"
#include "run.hpp"

namespace diffusion {

/// What a product reads and writes, for the simulated device's checker.
void declare(const Product& o, residency::SimulatedDevice::Kernel& kernel) {
    using examples::range;
    kernel.reads = {range(o.in, std::size_t{o.pixels} * o.from), range(o.weight, std::size_t{o.from} * o.to)};
    const auto out = range(o.out, std::size_t{o.pixels} * o.to);
    kernel.writes = {out};
    if (!o.up) { kernel.reads.push_back(out); }
}

Results run_simulated() {
    examples::SimulatedBackend backend;
    return run_all(backend, {.pixels = 48, .width = 64});
}

}  // namespace diffusion
