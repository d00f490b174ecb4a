// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/simulated_backend.hpp"
#include "run.hpp"

namespace experts {

// What each operation reads and writes, for the simulated device's checker.
using Kernel = residency::SimulatedDevice::Kernel;
void declare(const Embed& o, Kernel& kernel);
void declare(const Route& o, Kernel& kernel);
void declare(const Expand& o, Kernel& kernel);
void declare(const Reduce& o, Kernel& kernel);

}  // namespace experts

GENERATE(extern, examples::SimulatedBackend, residency::Cached);
GENERATE(extern, examples::SimulatedBackend, residency::Experts);
