// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/model_based/any_weights.hpp"
#include "tests/model_based/scenario.hpp"

namespace model_based {

/// Runs a scenario on one composition, and checks every invariant after every operation. Empty, or what went wrong.
[[nodiscard]] std::string run(const Composition& composition, const Scenario& scenario, Tally& tally);

/// The same as what run_scenarios takes.
inline Run runs(const Composition& composition) {
    return [composition](const Scenario& scenario, Tally& tally) { return run(composition, scenario, tally); };
}

}  // namespace model_based
