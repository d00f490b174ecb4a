// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

/// The fastest greedy plan of one pass over the chunks of one image. Precondition: `budget_chunks` >= floor_chunks(image).
[[nodiscard]] RESIDENCY_INLINE PlanData one_shot_plan(const Problem& problem, const Image& image,
                                                      std::uint64_t budget_chunks, const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/one_shot.ipp"
#endif
