// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/simulated_backend.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "run.hpp"

namespace experts {

// What each operation reads and writes, for the simulated device's checker.
using Kernel = residency::SimulatedDevice::Kernel;
void declare(const Embed& o, Kernel& kernel);
void declare(const Route& o, Kernel& kernel);
void declare(const Expand& o, Kernel& kernel);
void declare(const Reduce& o, Kernel& kernel);

class Simulated : public examples::SimulatedBackend {
public:
    [[nodiscard]] const residency::Unpacker<Device>& unpacker() const noexcept { return unpacker_; }

private:
    residency::SimulatedUnpacker unpacker_;
};

}  // namespace experts

GENERATE(extern, experts::Simulated, residency::Cached);
GENERATE(extern, experts::Simulated, residency::Experts);
GENERATE(extern, experts::Simulated, residency::PackedExperts);
