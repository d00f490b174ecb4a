// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

// Most chunks that one step reads, with those that stay: the floor of one pass whose chunks may come back anywhere.
RESIDENCY_INLINE FloorChunks one_shot_floor(const Problem& problem, const Image& image);

// One pass in the order that is known, from what is there at the start. `budget` in chunks; refuses one below the floor.
RESIDENCY_INLINE Result<PlanData> one_shot_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                                const Options& options);

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/one_shot.ipp"
#endif
