// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Predicts where the next pass ends: at the furthest end of the last few. A pass may end before the last step of the schedule, and may go
/// further than predicted.
class PassEnds {
public:
    /// Begins anew, for another schedule of `steps` steps.
    void start(std::uint32_t steps) noexcept {
        steps_ = steps;
        passes_ = 0;
    }
    /// A pass has ended; its furthest step was before this one. 0: it reached no step, which says nothing.
    void note(std::uint32_t end) noexcept {
        if (end > 0) { ends_[passes_++ % ends_.size()] = end; }
    }
    /// The next pass is expected to end before this step.
    [[nodiscard]] std::uint32_t expected() const noexcept {
        return passes_ < ends_.size() ? steps_ : *std::max_element(ends_.begin(), ends_.end());
    }

private:
    std::uint32_t steps_ = 0;
    std::uint64_t passes_ = 0;             // that were noted
    std::array<std::uint32_t, 3> ends_{};  // of the last ones
};

}}}  // namespace residency::RESIDENCY_ABI::core
