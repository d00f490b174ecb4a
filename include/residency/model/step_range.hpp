// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Consecutive steps of a schedule: [first, last).
struct StepRange {
    std::uint32_t first = 0;                                               ///< position of the first step
    std::uint32_t last = 0;                                                ///< one past the end
    friend bool operator==(const StepRange&, const StepRange&) = default;  ///< compares all members
};

}}  // namespace residency::RESIDENCY_ABI
