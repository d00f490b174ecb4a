// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/chunk_loops.hpp"
#include "residency/core/chunk_placement.hpp"
#include "residency/core/chunk_table.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE ChunkTable::ChunkTable(const plan::Plan& plan, ChunkPlacement placement)
    : slot_{std::move(placement.table)},
      is_sole_owner_(slot_.size(), false),
      stays_(slot_.size(), false),
      never_leaves_(plan.storages(), true),
      is_unplanned_(plan.storages(), false),
      occupant_(placement.slots, none),
      is_of_ring_(placement.slots, false) {
    for (const std::uint32_t chunk : placement.kept) { occupant_[slot_[chunk]] = chunk; }
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
        const std::uint32_t slot = plan.slot_of_chunk(chunk);
        is_sole_owner_[chunk] = slot != none && placement.sharers[slot] == 1;
    }
    std::fill_n(is_of_ring_.begin(), plan.slots_held(), true);
    for_each_chunk(plan, plan.residents(), [&](std::uint32_t chunk) {
        stays_[chunk] = is_sole_owner_[chunk];
        is_of_ring_[plan.slot_of_chunk(chunk)] = !stays_[chunk];
    });
    all_stay_ = true;
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) {
        all_stay_ = all_stay_ && (stays_[chunk] || plan.slot_of_chunk(chunk) == none);
    }
    for (std::uint32_t s = 0; s < plan.storages(); ++s) {
        for (const std::uint32_t chunk : plan.chunks_of_storage(s)) {
            if (!stays_[chunk]) { never_leaves_[s] = false; }
            if (plan.slot_of_chunk(chunk) == none) { has_unplanned_ = is_unplanned_[s] = true; }
        }
    }
}

RESIDENCY_INLINE bool ChunkTable::is_empty(std::uint32_t slot) const noexcept {
    return std::find(slot_.begin(), slot_.end(), slot) == slot_.end();
}

RESIDENCY_INLINE std::vector<bool> ChunkTable::all_there() const {
    std::vector<bool> there(slot_.size());
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) { there[chunk] = is_there(chunk); }
    return there;
}

RESIDENCY_INLINE void ChunkTable::remove(std::uint32_t slot) {
    const std::uint32_t last = slots() - 1;
    std::replace(slot_.begin(), slot_.end(), last, slot);
    occupant_[slot] = occupant_[last];
    is_of_ring_[slot] = is_of_ring_[last];
    occupant_.pop_back();
    is_of_ring_.pop_back();
}

}}}  // namespace residency::RESIDENCY_ABI::core
