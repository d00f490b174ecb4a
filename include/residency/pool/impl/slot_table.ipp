// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/pool/slot_table.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

RESIDENCY_INLINE void SlotTable::open(std::size_t slots, std::uint64_t slot_bytes, std::uint64_t chunk_bytes,
                                      bool packs) {
    *this = {};
    packs_ = packs;
    taken_.assign(packs ? slots : 0, 0);
    slot_bytes_ = slot_bytes;
    chunk_bytes_ = chunk_bytes;
    used_.assign(slots, false);
    free_.assign(slots, 0);
    mapped_.assign(chunks_of(slots), false);
}

RESIDENCY_INLINE std::optional<std::size_t> SlotTable::take() noexcept {
    if (packs_) { return take(1); }
    if (free_slots_ == 0) { return std::nullopt; }
    const std::size_t slot = free_[next_free_];
    next_free_ = next_free_ + 1 == free_.size() ? 0 : next_free_ + 1;
    --free_slots_;
    used_[slot] = true;
    ++used_slots_;
    return slot;
}

RESIDENCY_INLINE std::optional<std::size_t> SlotTable::take(std::size_t count) noexcept {
    std::size_t run = 0;  // free slots just before `slot`
    for (std::size_t slot = 0; slot < open_slots_ && count <= free_slots_; ++slot) {
        run = used_[slot] || !is_backed(slot) ? 0 : run + 1;
        if (run < count) { continue; }
        const std::size_t first = slot + 1 - count;
        for (std::size_t k = first; k <= slot; ++k) { used_[k] = true; }
        taken_[first] = count;
        used_slots_ += count;
        free_slots_ -= count;
        return first;
    }
    return std::nullopt;
}

RESIDENCY_INLINE void SlotTable::give_back(std::size_t slot) noexcept {
    const std::size_t count = neighbours(slot);
    for (std::size_t k = slot; k < slot + count; ++k) {
        used_[k] = false;
        --used_slots_;
        if (k < open_slots_) { add_free(k); }
    }
}

RESIDENCY_INLINE void SlotTable::begin_resize(std::size_t cap_chunks, std::span<const std::size_t> fixed) {
    cap_chunks_ = cap_chunks;
    std::vector<bool> kept(used_.size(), false);
    fixed_slots_ = 0;
    for (const std::size_t slot : fixed) {
        for (std::size_t k = slot; k < slot + neighbours(slot); ++k) { kept[k] = true; }
        fixed_slots_ += neighbours(slot);
    }
    open_slots(kept);
    places_ = 0;
    for (std::size_t slot = 0; slot < open_slots_; ++slot) { places_ += is_backed(slot) && !kept[slot] ? 1U : 0U; }
}

RESIDENCY_INLINE std::vector<bool> SlotTable::end_resize() {
    open_slots(used_);
    fixed_slots_ = 0;
    places_ = used_.size();
    std::vector<bool> wanted(mapped_.size(), false);
    const auto want = [&](std::size_t begin, std::size_t end) {
        for (std::size_t chunk = begin; chunk < end; ++chunk) { wanted[chunk] = true; }
    };
    want(0, chunks_of(open_slots_));
    for (std::size_t slot = open_slots_; slot < used_.size(); ++slot) {
        if (used_[slot]) { want(first_chunk(slot), chunks_of(slot + 1)); }
    }
    return wanted;
}

RESIDENCY_INLINE void SlotTable::list_free() noexcept {
    next_free_ = free_slots_ = 0;
    for (std::size_t slot = 0; slot < open_slots_; ++slot) {
        if (!used_[slot] && is_backed(slot)) { add_free(slot); }
    }
}

RESIDENCY_INLINE bool SlotTable::is_backed(std::size_t slot) const noexcept {
    for (std::size_t chunk = first_chunk(slot); chunk < chunks_of(slot + 1); ++chunk) {
        if (!mapped_[chunk]) { return false; }
    }
    return true;
}

RESIDENCY_INLINE void SlotTable::open_slots(const std::vector<bool>& kept) {
    std::vector<std::size_t> kept_behind(mapped_.size() + 1, 0);  // by chunk: kept ones from there on
    for (std::size_t slot = 0; slot < kept.size(); ++slot) {
        if (!kept[slot]) { continue; }
        for (std::size_t chunk = first_chunk(slot); chunk < chunks_of(slot + 1); ++chunk) { kept_behind[chunk] = 1; }
    }
    for (std::size_t chunk = mapped_.size(); chunk-- > 0;) { kept_behind[chunk] += kept_behind[chunk + 1]; }
    open_slots_ = used_.size();
    while (open_slots_ > 0 && chunks_of(open_slots_) + kept_behind[chunks_of(open_slots_)] > cap_chunks_) {
        --open_slots_;
    }
    list_free();
}

RESIDENCY_INLINE void SlotTable::add_free(std::size_t slot) noexcept {
    if (packs_) {  // take() looks at used_
        ++free_slots_;
        return;
    }
    const std::size_t end = next_free_ + free_slots_;
    free_[end < free_.size() ? end : end - free_.size()] = slot;
    ++free_slots_;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
