// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/lab/common_options.hpp"
#include "benchmarks/lab/packing.hpp"

namespace lab {

struct RunOptions : CommonOptions {
    std::vector<std::string> workloads, policies;
    std::vector<std::string> cards{"h200_measured"};
    std::vector<std::string> budgets{"10%", "25%", "50%", "75%", "90%"};
    std::string model, trace, format, pictures, timeline, link;
    std::string device{"simulated"};
    std::optional<double> wanted_seconds;
    std::uint32_t passes = 4;
    bool advise = false;
    Packing packing;
};

/// Compositions × budgets × workloads × cards on the simulated device or a GPU. Throws Failed.
void run(RunOptions options);

}  // namespace lab
