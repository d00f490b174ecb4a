// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// The copy nodes of each call of the plan in a graph: a node brings bytes that are neighbours in the image and at their source. Empty: where the
/// sources lie is not known. O((storages + copies) log storages).
[[nodiscard]] RESIDENCY_INLINE std::vector<std::uint32_t> copy_nodes(const PlanData& plan, const Options& options);

/// Whether any two storages are neighbours at their sources: otherwise no image saves nodes. O(storages log storages).
[[nodiscard]] RESIDENCY_INLINE bool has_neighbours(const Problem& problem, const Options& options);

/// Searches count one node a call. Sets the predicted seconds and the cut of a captured plan for the nodes that its calls have, if that is known.
RESIDENCY_INLINE void count_nodes(PlanData& plan, const Problem& problem, const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/copy_nodes.ipp"
#endif
