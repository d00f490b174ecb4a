// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Verifies that a plan is consistent in itself, so that whoever replays it reads and writes nothing outside what it holds:
/// storages inside the image without overlaps, copies inside the image and what is held, slots, calls in order, waits on earlier
/// steps, the cut. O(n log n). The error names the place.
RESIDENCY_INLINE Status check_shape(const Plan& plan);

/// Verifies a plan against its problem, from the bytes alone and without the planner's own ideas of how it was made: its shape;
/// residents and copies cover every storage (exactly once where the plan is cyclic); a step's bytes are where it looks for them,
/// brought by a call that it waits for, and no later call of any pass overwrites them before the step has ended; what is pinned
/// does not stream.
/// O((copies + reads) log) in ranges of device bytes. The error names the place.
RESIDENCY_INLINE Status check(const Plan& plan, const Problem& problem);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/check.ipp"
#endif
