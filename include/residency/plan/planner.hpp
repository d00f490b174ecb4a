// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The plan of a problem. Budget 0 asks for the floor, more than everything is as much as everything. Refuses what is malformed
/// (invalid_argument) and a budget below the floor (budget, with BudgetNumbers). Deterministic: the same input gives the same
/// plan, bit for bit. O(steps + chunks) times some hundreds of evaluations. Of cyclic plans it takes one that lasts: where steps cover the
/// copies, it bears a slower link; where copies take up to 2.5 times as long as the steps, it is the best with steps as measured and
/// 5 % longer, together.
RESIDENCY_INLINE Result<Plan> make_plan(const Problem& problem, const Options& options = {});

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/planner.ipp"
#endif
