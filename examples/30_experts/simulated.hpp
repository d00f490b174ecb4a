// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "examples/support/simulated_backend.hpp"
#include "residency/simulation/simulated_server.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "run.hpp"

namespace experts {

// What each operation reads and writes, for the simulated device's checker.
using Kernel = residency::SimulatedDevice::Kernel;
void declare(const Embed& o, Kernel& kernel);
void declare(const Route& o, Kernel& kernel);
void declare(const Choose& o, Kernel& kernel);
void declare(const Expand& o, Kernel& kernel);
void declare(const Reduce& o, Kernel& kernel);

class Simulated : public examples::SimulatedBackend {
public:
    /// What kernels bring is known only when they run: their time there is none.
    static constexpr bool times_fills = false;
    [[nodiscard]] const residency::Unpacker<Device>& unpacker() const noexcept { return unpacker_; }
    [[nodiscard]] const residency::SimulatedServer<>& server() const noexcept { return server_; }

private:
    residency::SimulatedUnpacker unpacker_;
    residency::SimulatedServer<> server_;
};

}  // namespace experts

GENERATE(extern, experts::Simulated, residency::Cached);
GENERATE(extern, experts::Simulated, residency::Experts);
GENERATE(extern, experts::Simulated, residency::PackedExperts);
