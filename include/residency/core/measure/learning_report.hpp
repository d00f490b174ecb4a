// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Where the order of the steps comes from.
enum class OrderOrigin : std::uint8_t {
    none,      ///< there is no schedule
    declared,  ///< the caller gave a schedule
    guessed,   ///< no schedule was given: storages are assumed to be read in the natural order of their names
    learned,   ///< no schedule was given: the order is that of a pass that ran
};

/// What became of measuring the compute times of the steps.
enum class LearningState : std::uint8_t {
    off,        ///< nothing is measured
    measuring,  ///< some steps have not been timed often enough yet
    done,       ///< every step was timed, and the plan in force assumes these times, to Options::learn_threshold
    gave_up,  ///< not every step was timed, and no more are; the plan assumes what was measured, and for the rest what it assumed before
};

/// Why nothing is measured (any more).
enum class LearningReason : std::uint8_t {
    none,             ///< measuring, or done
    not_wanted,       ///< off: Options::learn is false
    makes_no_plan,    ///< off: the composition is online, or replays a plan that was given
    nothing_streams,  ///< off: everything is resident; measuring begins once something streams
    captured,         ///< gave up: a pass was captured, and another plan would make its graph stale
    untimed_steps,  ///< gave up: leases of some steps overlap others, were requested ahead, or cover a part of the step only
    no_plan,        ///< gave up: there is no plan for what was measured
};

[[nodiscard]] RESIDENCY_INLINE std::string_view to_string(OrderOrigin origin) noexcept;
[[nodiscard]] RESIDENCY_INLINE std::string_view to_string(LearningState state) noexcept;
[[nodiscard]] RESIDENCY_INLINE std::string_view to_string(LearningReason reason) noexcept;

/// What a Residency knows of the order and the compute times of its steps, and how it came to know it.
struct LearningReport {
    OrderOrigin order = OrderOrigin::none;               ///< where the order of the steps comes from
    LearningState state = LearningState::off;            ///< what became of measuring
    LearningReason reason = LearningReason::not_wanted;  ///< why nothing is measured
    std::uint32_t steps = 0;                             ///< of the schedule
    std::uint32_t timed_steps = 0;  ///< of these, measured at least once since the schedule came into force
    std::uint32_t replans = 0;      ///< times that the pass was planned again for what was learned, order included
    /// Steps that have no measured time, because their leases overlap others: what ran in one cannot be told from what ran in the other.
    std::uint32_t overlapping_steps = 0;
    /// While measuring, passes that were not measured because as many as are measured at once are not complete: the host runs so far ahead.
    std::uint64_t passes_ahead = 0;

    friend bool operator==(const LearningReport&, const LearningReport&) = default;  ///< compares all members
};

/// One line, such as "order learned; step times: gave up (untimed_steps), 24 of 25 steps timed; planned again 2 times".
[[nodiscard]] RESIDENCY_INLINE std::string describe(const LearningReport& report);

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/learning_report.ipp"
#endif
