// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/chunk_loops.hpp"
#include "residency/core/chunk_placement.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE ChunkPlacement place_chunks(const plan::Plan& plan, std::span<const std::uint32_t> pinned,
                                             const std::vector<bool>& there) {
    ChunkPlacement result;
    result.table = plan.data().chunk_slot;
    result.kept.assign(pinned.begin(), pinned.end());
    result.sharers.assign(plan.slots_held(), 0);
    for (const std::uint32_t slot : result.table) {
        if (slot != plan::none) { ++result.sharers[slot]; }
    }
    std::vector<bool> is_taken(plan.slots_held(), false);
    for (const std::uint32_t chunk : pinned) {
        const std::uint32_t slot = result.table[chunk];
        if (slot == plan::none || is_taken[slot]) {
            result.misplaced_leased.push_back(chunk);
        } else {
            is_taken[slot] = true;
        }
    }
    const auto first_free = [&](std::uint32_t at_least_sharers) {
        std::uint32_t slot = 0;
        while (slot < is_taken.size() &&
               (is_taken[slot] || slot >= result.sharers.size() || result.sharers[slot] < at_least_sharers)) {
            ++slot;
        }
        return slot;
    };
    for (const std::uint32_t chunk : result.misplaced_leased) {
        std::uint32_t place = first_free(2);
        if (place == is_taken.size()) { place = first_free(0); }
        if (place == is_taken.size()) { is_taken.push_back(false); }
        is_taken[place] = true;
        result.table[chunk] = place;
    }
    result.slots = static_cast<std::uint32_t>(is_taken.size());
    if (there.empty()) { return result; }
    std::vector<bool> is_kept(result.table.size(), false);
    for (const std::uint32_t chunk : pinned) { is_kept[chunk] = true; }
    for (const std::span<const plan::Copy> copies : {plan.residents(), plan.copies()}) {
        for_each_chunk(plan, copies, [&](std::uint32_t chunk) {
            const std::uint32_t slot = result.table[chunk];
            if (is_kept[chunk] || is_taken[slot]) { return; }
            is_taken[slot] = true;
            if (there[chunk]) { result.kept.push_back(chunk); }
        });
    }
    return result;
}

}}}  // namespace residency::RESIDENCY_ABI::core
