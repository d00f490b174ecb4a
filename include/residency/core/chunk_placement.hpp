// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Where the chunks of an image come to lie when a plan comes into force. Pinned chunks, leased or never to leave, keep their bytes and
/// their addresses. Those that cannot all have their places in the plan are *guests* on other slots: of the ring where they can, else
/// any, else further ones.
struct ChunkPlacement {
    std::vector<std::uint32_t> table;             ///< by chunk: its slot, or none
    std::uint32_t slots = 0;                      ///< those of the plan, and beyond them what guests need
    std::vector<std::uint32_t> kept;              ///< chunks that keep their bytes, no two of them on one slot
    std::vector<std::uint32_t> misplaced_leased;  ///< of these, what is not at its own place
};

/// By slot: the chunks that lie on it.
[[nodiscard]] inline std::vector<std::uint32_t> count_chunks(std::span<const std::uint32_t> table) {
    std::vector<std::uint32_t> counts;
    for (const std::uint32_t slot : table) {
        if (slot == plan::none) { continue; }
        if (slot >= counts.size()) { counts.resize(slot + std::size_t{1}, 0); }
        ++counts[slot];
    }
    return counts;
}

/// Beside what is pinned, what is there is kept where it is the first that a pass of the plan brings to its slot. `there`: by chunk of
/// the plan's image; empty where memory holds nothing of that image.
[[nodiscard]] inline ChunkPlacement place_chunks(const plan::Plan& plan, std::span<const std::uint32_t> pinned,
                                                 const std::vector<bool>& there) {
    ChunkPlacement result;
    result.table = plan.data().chunk_slot;
    result.kept.assign(pinned.begin(), pinned.end());
    const std::vector<std::uint32_t> sharers = count_chunks(result.table);
    std::vector<bool> taken(plan.slots_held(), false);
    for (const std::uint32_t chunk : pinned) {
        const std::uint32_t slot = result.table[chunk];
        if (slot == plan::none || taken[slot]) {
            result.misplaced_leased.push_back(chunk);
        } else {
            taken[slot] = true;
        }
    }
    const auto first_free = [&](bool of_ring) {
        std::uint32_t slot = 0;
        while (slot < taken.size() && (taken[slot] || (of_ring && (slot >= sharers.size() || sharers[slot] < 2)))) {
            ++slot;
        }
        return slot;
    };
    for (const std::uint32_t chunk : result.misplaced_leased) {
        std::uint32_t place = first_free(true);
        if (place == taken.size()) { place = first_free(false); }
        if (place == taken.size()) { taken.push_back(false); }
        taken[place] = true;
        result.table[chunk] = place;
    }
    result.slots = static_cast<std::uint32_t>(taken.size());
    if (there.empty()) { return result; }
    std::vector<bool> is_kept(result.table.size(), false);
    for (const std::uint32_t chunk : pinned) { is_kept[chunk] = true; }
    for (const std::span<const plan::Copy> copies : {plan.residents(), plan.copies()}) {
        for (const plan::Copy& copy : copies) {
            for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) {
                const std::uint32_t slot = result.table[chunk];
                if (is_kept[chunk] || taken[slot]) { continue; }
                taken[slot] = true;
                if (there[chunk]) { result.kept.push_back(chunk); }
            }
        }
    }
    return result;
}

}}}  // namespace residency::RESIDENCY_ABI::core
