// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/image.hpp"
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

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// The fastest greedy plan of one pass over the chunks of one image. Precondition: `budget_chunks` >= floor_chunks(image).
[[nodiscard]] RESIDENCY_INLINE PlanData one_shot_plan(const Problem& problem, const Image& image,
                                                      std::uint64_t budget_chunks, const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/planner.ipp"
#endif
