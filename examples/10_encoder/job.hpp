// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"

namespace encoder {

/// What to do, whatever the device.
struct Job {
    std::vector<std::vector<std::int32_t>> ids;  ///< of the sentences
    residency::Budget budget;
    bool presets = true;
    bool packed = false;   ///< also with packed weights
    std::string timeline;  ///< the file to write
    std::string report;    ///< the same; empty: none
};

/// What one composition did with one budget.
struct Outcome {
    residency::ResolvedBudget budget;
    bool is_raised = false;  ///< to the floor: what was asked for is below it
    residency::Statistics statistics;
    std::vector<std::vector<float>> passes;  ///< the embeddings, sentence after sentence
};

/// The same budget with raw weights and with packed ones, in turns.
struct PackedResults {
    std::uint64_t raw_bytes = 0, packed_bytes = 0;  ///< of what is packed
    std::vector<Outcome> raw, packed;
};

struct Results {
    std::string device;
    double load_seconds = 0;
    Outcome resident, streamed;
    std::vector<std::pair<std::string, Outcome>> presets;
    PackedResults packed;              ///< empty where it was not asked for
    std::vector<std::string> reports;  ///< of the simulated device's checker
    std::string timeline;              ///< what is in the file
};

/// The same job on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated(const Job& job, const Checkpoint& model);
[[nodiscard]] Results run_cuda(const Job& job, const Checkpoint& model);

}  // namespace encoder
