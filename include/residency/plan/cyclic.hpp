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

/// The best cyclic plan over the chunks of one image. `budget` is in chunks. No plan is faster than `bound_seconds`: the search ends near
/// it.
/// Precondition: budget >= floor_chunks(image).
[[nodiscard]] RESIDENCY_INLINE PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                                    const Options& options, double bound_seconds);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/cyclic.ipp"
#endif
