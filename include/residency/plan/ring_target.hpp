// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Targets of this many kinds: 0 to 2: the fluid relaxation, with a ring that is smaller by as many half pieces; 3: in proportion to
/// what each step may stream.
inline constexpr int target_kinds = 4;

/// How many chunks each step should stream, by step. False where there is no such target.
[[nodiscard]] RESIDENCY_INLINE bool fluid_target(const RingProblem& problem, const RingShape& shape, int kind,
                                                 std::vector<double>& target);

/// The same, near what memory holds: chunks that are no residents stream first, others where the target of that kind asks for more.
/// Kind 4 (target_kinds): in proportion to the chunks that are no residents. Precondition: problem.knows_presence().
[[nodiscard]] RESIDENCY_INLINE bool refetch_target(const RingProblem& problem, const RingShape& shape, int kind,
                                                   std::vector<double>& target);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_target.ipp"
#endif
