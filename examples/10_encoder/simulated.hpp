// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "examples/support/simulated_backend.hpp"
#include "host_kernels.hpp"
#include "operations.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "run.hpp"

namespace encoder {

class Simulated : public examples::SimulatedBackend {
public:
    [[nodiscard]] const residency::Unpacker<Device>& unpacker() const noexcept { return unpacker_; }

private:
    residency::SimulatedUnpacker unpacker_;
};

// What each operation reads and writes, for the simulated device's checker.
using Kernel = residency::SimulatedDevice::Kernel;
void declare(const Embed& o, Kernel& kernel);
void declare(const Linear& o, Kernel& kernel);
void declare(const Attention& o, Kernel& kernel);
void declare(const AddNormalise& o, Kernel& kernel);
void declare(const Pool& o, Kernel& kernel);

extern template std::vector<std::pair<std::string, Outcome>> run_presets(Simulated&, const Job&, const Checkpoint&,
                                                                         const Workspace<Simulated>&);
extern template Outcome run<residency::Experts<residency::SimulatedDevice>>(Simulated&, const Checkpoint&,
                                                                            const Workspace<Simulated>&,
                                                                            const residency::Budget&, bool, int, bool);

}  // namespace encoder
