// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/simulation/simulated_device.hpp"
#include "together.hpp"

namespace compiled {

Results run_simulated(const Job& job) {
    residency::SimulatedDevice device;
    Results results = run_job(device, job, false);
    results.device = "the simulated device, kernels on the processor";
    for (const auto& report : device.reports()) { results.reports.push_back(report.text); }
    return results;
}

}  // namespace compiled
