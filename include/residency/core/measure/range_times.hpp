// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What was measured of ranges of steps: for each range the smallest of its times. A lease of one step is a range of one.
class RangeTimes {
public:
    /// Begins anew, for a schedule of `steps` steps. Nothing is measured yet.
    void open(std::uint32_t steps) noexcept {
        steps_ = steps;
        ranges_.clear();
    }
    RESIDENCY_INLINE void add(const StepRange& range, std::chrono::nanoseconds time);
    /// By step: whether a measured range covers it.
    [[nodiscard]] RESIDENCY_INLINE std::vector<bool> timed() const;
    /// By step: whether it was measured by itself.
    [[nodiscard]] RESIDENCY_INLINE std::vector<bool> timed_alone() const;

    /// The time of each step, none where no range covers it: what was measured of a range is shared over its steps in proportion to
    /// `assumed` (seconds, one for each step; missing ones are 0). Where ranges overlap, the shares are scaled until each range has its
    /// own time (iterative proportional fitting; Deming and Stephan 1940).
    [[nodiscard]] RESIDENCY_INLINE std::vector<std::optional<std::chrono::nanoseconds>> by_step(
        std::span<const double> assumed) const;

private:
    struct Measured {
        StepRange range;
        std::chrono::nanoseconds smallest{};
    };
    /// For a schedule of n steps, at most this many times n ranges are kept; others are not added then.
    static constexpr std::size_t most_ranges_per_step = 4;
    static constexpr int rounds = 50;

    std::uint32_t steps_ = 0;       // of the schedule
    std::vector<Measured> ranges_;  // each once, ascending by first and last step
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/range_times.ipp"
#endif
