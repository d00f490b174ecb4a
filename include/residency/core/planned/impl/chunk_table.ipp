// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <tuple>

#include "residency/config.hpp"
#include "residency/core/planned/chunk_table.hpp"
#include "residency/model/sort.hpp"

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

RESIDENCY_INLINE ChunkContents::ChunkContents(const plan::Plan& plan, std::byte* base) : base_{base} {
    // By chunk, in the order of the image, so that pieces that are neighbours there follow each other and may be joined.
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>> on_chunk;
    for (std::uint32_t s = 0; s < plan.storages(); ++s) {
        chunks_.push_back(plan.chunks_of_storage(s));
        for (const std::uint32_t chunk : chunks_.back()) { on_chunk.emplace_back(chunk, plan.storage_offset(s), s); }
    }
    residency::detail::sort(on_chunk);
    first_.assign(plan.chunks() + std::size_t{1}, 0);
    for (const auto& [chunk, offset, storage] : on_chunk) {
        ++first_[chunk + std::size_t{1}];
        storages_.push_back(storage);
    }
    for (std::size_t i = 1; i < first_.size(); ++i) { first_[i] += first_[i - 1]; }
    first_piece_.push_back(0);
    for (const plan::Call& call : plan.calls()) {
        for (const plan::Copy& copy : plan.copies(call)) {
            append_pieces(plan, copy.image_begin, copy.image_end, call_pieces_);
        }
        first_piece_.push_back(call_pieces_.size());
    }
}

RESIDENCY_INLINE void ChunkContents::append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                                                   std::vector<transport::Fetch>& pieces) const {
    const std::uint64_t chunk_bytes = plan.chunk_bytes();
    std::uint32_t last = plan::none;
    for (const std::uint32_t chunk : plan::chunks_of(begin, end, chunk_bytes)) {
        for (const std::uint32_t s : storages(chunk)) {
            const std::uint64_t offset = plan.storage_offset(s);
            const std::uint64_t from = (std::max)(begin, offset);
            const std::uint64_t to = (std::min)(end, offset + plan.storage_bytes(s));
            if (from >= to || s == last) { continue; }
            // A storage that spans several chunks becomes one piece, at the first of them.
            if (chunk * chunk_bytes > from) { continue; }
            last = s;
            pieces.push_back({StorageId{s}, from - offset, to - from, base_ + from});
        }
    }
}

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
            result.misplaced.push_back(chunk);
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
    for (const std::uint32_t chunk : result.misplaced) {
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
