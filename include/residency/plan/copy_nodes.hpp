// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// The copy nodes of a graph of the plan. One brings bytes that are neighbours in the image and at their source. 0: where the sources lie is
/// not known. O(storages log storages + copies).
[[nodiscard]] RESIDENCY_INLINE std::uint64_t copy_nodes(const PlanData& plan, const Options& options);

/// What a pass takes: predicted_seconds, and for a captured plan the latency of each copy node beyond one a call, which no search counts.
[[nodiscard]] RESIDENCY_INLINE double seconds_with_nodes(const PlanData& plan, const Problem& problem,
                                                         const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/copy_nodes.ipp"
#endif
