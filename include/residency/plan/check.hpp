// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Verifies that a plan is consistent in itself, so that an executor that replays it reads and writes nothing outside what it holds.
/// Storages lie inside the image and do not overlap; copies lie inside the image, on chunks that have slots; calls are in order and
/// wait for earlier steps; the cut is possible. O(n log n). The error names the place.
[[nodiscard]] RESIDENCY_INLINE Status check_shape(const Plan& plan);

/// Verifies a plan against its problem, from its bytes alone and whatever planner made it. Its shape is consistent. Residents and copies
/// cover every storage, exactly once where the plan is cyclic. A call that a step waits for has brought the step's bytes, and no later
/// call of any pass overwrites them before the step has ended. What is kept does not stream. O((copies + reads) log) in ranges of
/// device bytes. The error names the place.
[[nodiscard]] RESIDENCY_INLINE Status check(const Plan& plan, const Problem& problem);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/check.ipp"
#endif
