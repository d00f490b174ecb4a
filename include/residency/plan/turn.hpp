// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// The step from which on a pass is best planned. A planner holds each storage from its first reader to its last one: what the last step
/// reads and the first one of the next pass, such as an embedding that is also the head, for all of the pass. From a step on before which
/// it may be away, the pass is the same, and the two readers are neighbours. 0, the begin of the pass, unless the floor is lower from
/// elsewhere. O(accesses), and images where a storage is held less. Precondition: the problem is well formed.
[[nodiscard]] RESIDENCY_INLINE std::uint32_t best_turn(const Problem& problem);

/// The problem of the passes that begin with this step. Precondition: it is cyclic.
[[nodiscard]] RESIDENCY_INLINE Problem turned(const Problem& problem, std::uint32_t step);

/// The step of a problem that is a step of turned(problem, by); none for none.
[[nodiscard]] inline std::uint32_t step_before_turn(std::uint32_t step, std::uint32_t by,
                                                    std::uint32_t steps) noexcept {
    return step == none || by == 0 ? step : step < steps - by ? step + by : step - (steps - by);
}

/// A plan of turned(problem, step) as a plan of the problem. What a call brings for the last steps of a pass and the first ones of the next
/// is among the residents too: the first pass has no call before it that brings it. Its times and its cut are the caller's.
[[nodiscard]] RESIDENCY_INLINE PlanData turned_back(PlanData plan, const Problem& problem, std::uint32_t step);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/turn.ipp"
#endif
