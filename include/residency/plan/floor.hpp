// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The ends of the range of budgets, in whole chunks.
struct ChunkFloor {
    std::uint64_t floor_bytes = 0;       ///< the smallest budget for which make_plan finds a plan
    std::uint64_t everything_bytes = 0;  ///< with a budget of so much nothing streams
    std::uint32_t step =
        none;  ///< the step that sets the floor; none: what stays, or what is asked for at once, sets it
    std::uint64_t unread_bytes = 0;  ///< of everything beside that: storages that no step reads, and that are not kept
    std::uint64_t kept_bytes = 0;    ///< of the floor, what stays because it is kept
    bool is_at_once = false;         ///< what is asked for at once sets the floor
};

/// Both ends for a problem, where `at_once` storages of any size may be asked for together beside the steps. Errors: what make_plan says
/// of a malformed problem.
[[nodiscard]] RESIDENCY_INLINE Result<ChunkFloor> chunk_floor(const Problem& problem, std::uint32_t at_once = 0);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/floor.ipp"
#endif
