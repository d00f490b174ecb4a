// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The ranges into which a pass of a plan falls where all steps of a range start and end together, as in one launch: in order, each
/// step in one. Few, but the bytes of the next range come while one computes: the pass takes at most tuning::range_loss longer
/// than step by step. One range where the plan has no copies. `compute`: seconds, one for each step; missing ones are 0.
[[nodiscard]] RESIDENCY_INLINE std::vector<StepRange> step_ranges(const Plan& plan, const Link& link,
                                                                  std::span<const double> compute);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/step_ranges.ipp"
#endif
