// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// On which slot each chunk of an image lies when a plan comes into force. Every pinned chunk keeps its bytes and its address. A
/// pinned chunk lies on its own slot of the plan, or it is *misplaced*: on a slot of the ring if one is free, else on any other free
/// slot, else on an extra slot beyond the plan. A chunk is never moved within the device: it is mapped, and its bytes are copied again.
struct ChunkPlacement {
    std::vector<std::uint32_t> table;             ///< by chunk: its slot, or none
    std::uint32_t slots = 0;                      ///< the plan's slots, and extra ones for misplaced chunks
    std::vector<std::uint32_t> kept;              ///< chunks that keep their bytes, at most one per slot
    std::vector<std::uint32_t> misplaced_leased;  ///< kept chunks that are not on the slot that the plan gives them
    std::vector<std::uint32_t> sharers;  ///< by slot of the plan: the number of chunks that the plan puts there
};

/// Places the chunks for `plan`. `pinned`: chunks that are leased, or that must not leave. Also keeps a chunk that is there if it is the
/// first one that a pass of the plan brings to its slot. `there`: by chunk of the plan's image; empty if the device holds nothing of it.
[[nodiscard]] ChunkPlacement place_chunks(const plan::Plan& plan, std::span<const std::uint32_t> pinned,
                                          const std::vector<bool>& there);

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/chunk_placement.ipp"
#endif
