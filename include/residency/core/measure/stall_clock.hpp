// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/mark.hpp"
#include "residency/core/measure/stalls.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Says how long streams wait for bytes, and why, from the marks around each wait and around each call of copies. A demand miss is a cause
/// by itself. cause_of_stall() finds the others: a call of copies waited for memory because its stream waited for a use, or a prefetch
/// found no room.
class StallClock {
public:
    /// Shorter ones are not told from the cost of the events.
    static constexpr std::chrono::nanoseconds least_stall{5'000};

    /// A stall that was read.
    struct Stall {
        Mark wait;  ///< its end
        std::chrono::nanoseconds time{};
        StallCause cause = StallCause::link;
    };

    /// Another schedule: what was measured of the steps is forgotten.
    void start(std::uint32_t steps) {
        current_.assign(steps, {});
        last_.assign(steps, {});
        stall_.reset();
        idle_room_ = idle_late_ = {};
    }
    /// Reads the next mark; copies before the wait for them. `planned_seconds`: of each step, as the plan assumes; may be empty. Returns
    /// the stall that ends there.
    RESIDENCY_INLINE std::optional<Stall> read(const Mark& mark, std::span<const double> planned_seconds);

    [[nodiscard]] const StallStatistics& statistics() const noexcept { return statistics_; }
    /// By step of the schedule: of the last pass that was timed and is complete.
    [[nodiscard]] std::span<const Stalls> by_step() const noexcept { return last_; }

private:
    using Time = std::optional<std::chrono::nanoseconds>;

    RESIDENCY_INLINE std::optional<Stall> read_wait(const Mark& wait, std::span<const double> planned_seconds);
    /// What the plan assumes of the steps from the last stall up to this one; unset: it says nothing.
    [[nodiscard]] RESIDENCY_INLINE std::optional<double> planned_since_stall(std::span<const double> planned_seconds,
                                                                             const Mark& wait) const noexcept;

    Time wait_start_, copy_end_;                          // of the last wait, of the last call of copies
    std::optional<Mark> stall_;                           // the end of the last one
    std::chrono::nanoseconds idle_room_{}, idle_late_{};  // of the link, since the last stall
    StallStatistics statistics_;
    Stalls pass_;                         // that is read
    std::vector<Stalls> current_, last_;  // by step: of that pass, and of the last one
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/stall_clock.ipp"
#endif
