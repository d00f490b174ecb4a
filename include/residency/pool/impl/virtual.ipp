// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

RESIDENCY_INLINE std::vector<std::uint32_t> kept_slots(std::size_t slots_now, std::span<const std::uint32_t> table_now,
                                                       std::uint32_t slots, std::span<const std::uint32_t> table,
                                                       std::span<const std::uint32_t> keeping) {
    std::vector<std::uint32_t> kept(slots, no_slot);
    std::vector<std::uint32_t> before(slots_now, 0);
    std::vector<std::uint32_t> after(slots, 0);
    for (const std::uint32_t slot : table_now) {
        if (slot != no_slot) { ++before[slot]; }
    }
    for (const std::uint32_t slot : table) {
        if (slot != no_slot) { ++after[slot]; }
    }
    std::vector<bool> taken(slots_now, false);
    for (const std::uint32_t chunk : keeping) {
        kept[table[chunk]] = table_now[chunk];
        taken[table_now[chunk]] = true;
    }
    for (const bool alone : {true, false}) {
        for (std::size_t chunk = 0; chunk < table.size(); ++chunk) {
            const std::uint32_t was = table_now[chunk];
            const std::uint32_t slot = table[chunk];
            if (was == no_slot || slot == no_slot || kept[slot] != no_slot || taken[was]) { continue; }
            if (alone && (before[was] != 1 || after[slot] != 1)) { continue; }
            kept[slot] = was;
            taken[was] = true;
        }
    }
    return kept;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
