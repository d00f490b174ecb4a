// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// Sets the cut of a captured plan and the seconds that the plan takes. `line`: the plan's.
/// @{
RESIDENCY_INLINE void finalize_times(PlanData& data, const Timeline& line);
RESIDENCY_INLINE void finalize_times(PlanData& data, const Problem& problem);
/// @}

/// Whether `a` is faster than `b`, or as fast with fewer bytes.
[[nodiscard]] RESIDENCY_INLINE bool is_better(const PlanData& a, const PlanData& b);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/finalize_times.ipp"
#endif
