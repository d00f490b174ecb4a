// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "residency/config.hpp"
#include "residency/plan/link.hpp"
#include "residency/plan/plan.hpp"
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

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/simulate.ipp"
#endif
