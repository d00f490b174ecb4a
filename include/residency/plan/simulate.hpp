// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The times of a plan. A call costs its latency once, that of one copy node where the plan is captured. `compute`: seconds, one for each
/// step; missing ones are 0.
[[nodiscard]] RESIDENCY_INLINE Timeline timeline(const PlanData& plan, const Link& link,
                                                 std::span<const double> compute);

/// Seconds that a pass of a plan takes on its timeline, or on one in which steps are joined; see simulate() and TimelineSolver::period.
[[nodiscard]] RESIDENCY_INLINE double seconds_of(TimelineSolver& solver, const Timeline& line, const PlanData& plan,
                                                 double tolerance, double give_up = 1e300);

/// Seconds that a pass of the plan takes under the model. Cyclic: the steady period, of a graph with its cut where the plan is captured.
/// One-shot: from the first start to the last end of a step.
[[nodiscard]] RESIDENCY_INLINE double simulate(const PlanData& plan, const Link& link, std::span<const double> compute);

}}}  // namespace residency::RESIDENCY_ABI::plan

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// Sets the cut of a captured plan and the seconds that the plan takes. `line`: the plan's.
/// @{
RESIDENCY_INLINE void finalize_times(PlanData& data, const Timeline& line);
RESIDENCY_INLINE void finalize_times(PlanData& data, const Problem& problem);
/// @}

/// Whether `a` is faster than `b`, or as fast with fewer bytes.
[[nodiscard]] RESIDENCY_INLINE bool is_better(const PlanData& a, const PlanData& b);

/// The copy nodes of each call of the plan in a graph: a node brings bytes that are neighbours in the image and at their source. Empty: where the
/// sources lie is not known. O((storages + copies) log storages).
[[nodiscard]] RESIDENCY_INLINE std::vector<std::uint32_t> copy_nodes(const PlanData& plan, const Options& options);

/// Whether any two storages are neighbours at their sources: otherwise no image saves nodes. O(storages log storages).
[[nodiscard]] RESIDENCY_INLINE bool has_neighbours(const Problem& problem, const Options& options);

/// Sets the predicted seconds and the cut of a captured plan for the copy nodes that its calls have, where that is known; searches count one
/// node a call.
RESIDENCY_INLINE void count_nodes(PlanData& plan, const Problem& problem, const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/simulate.ipp"
#endif
