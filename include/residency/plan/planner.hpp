// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The plan of a problem. A budget of 0 asks for the floor. Errors: invalid_argument for a malformed problem; budget, with
/// BudgetNumbers, below the floor. Deterministic: the same input gives the same plan, bit for bit. O(steps + chunks) times some
/// hundreds of evaluations. A cyclic plan bears times that are not quite as measured: where the steps cover the copies, a slower link;
/// where the copies take somewhat longer than the steps, steps that are 5 % longer.
[[nodiscard]] RESIDENCY_INLINE Result<Plan> make_plan(const Problem& problem, const Options& options = {});

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/planner.ipp"
#endif
