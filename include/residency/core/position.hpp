// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/step_index.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Where a pass is.
struct Position {
    static constexpr std::uint32_t nowhere = UINT32_MAX;

    StepIndex moment = 0;
    std::uint32_t step = nowhere;  ///< in the schedule; nowhere without one
    bool is_announced = false;     ///< what is asked for is what the schedule reads at this step
    bool is_whole = false;         ///< it is all that the step reads
    bool is_counted = false;       ///< set by a planned decider: the lease belongs to step `absolute`
    bool is_unplanned = false;     ///< set by a planned decider: no step accounts for the lease
    std::uint64_t absolute = 0;    ///< counted across passes, as the decider counts them
    std::uint64_t era = 0;         ///< of a planned decider's counts: another one once a plan has come into force
};

}}}  // namespace residency::RESIDENCY_ABI::core
