// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// One access of a pass: the step of the schedule that it belongs to.
struct AccessPoint {
    static constexpr std::uint32_t nowhere = UINT32_MAX;

    StepIndex step_index = 0;
    std::uint32_t step = nowhere;  ///< in the schedule; nowhere without one. Of a range of steps: the last
    bool is_scheduled = false;     ///< the schedule reads at this step what the access asks for
    bool is_whole = false;         ///< the access asks for all that the step, or every step of the range, reads
    std::uint32_t steps = 1;       ///< of a range of steps, their number
    bool names_steps = false;      ///< the access names the step or the range: the steps end with the lease

    [[nodiscard]] bool is_range() const noexcept { return steps > 1; }
    /// The step, or the first of the range.
    [[nodiscard]] std::uint32_t first_step() const noexcept { return step - (steps - 1); }
    /// The range; a step is one of one. Precondition: there is a schedule.
    [[nodiscard]] StepRange range() const noexcept { return {first_step(), step + 1}; }
};

}}  // namespace residency::RESIDENCY_ABI
