// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/ring_assignment.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Streams every cell that is not held once per pass, from before its first reader to after its last, through `slots` chunk slots; a
/// cell takes the slots that were released first. Succeeds whenever the slots hold what lies between its first and its last reader at
/// every step (floor_chunks), since intervals of steps make an interval graph. False otherwise.
[[nodiscard]] RESIDENCY_INLINE bool interval_ring(const Image& image, const std::vector<bool>& hold,
                                                  std::uint32_t slots, RingAssignment& assignment);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/interval_ring.ipp"
#endif
