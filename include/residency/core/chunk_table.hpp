// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "residency/core/chunk_placement.hpp"
#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which chunk lies on which slot, and whose bytes each slot holds. A slot holds the bytes of at most one chunk, its *occupant*, and
/// the occupant lies on that slot. Plain data: maps and copies nothing.
class ChunkTable {
public:
    static constexpr std::uint32_t none = plan::none;

    ChunkTable() = default;
    /// The state just after a plan came into force with this placement: kept chunks occupy their slots, other slots are empty.
    ChunkTable(const plan::Plan& plan, ChunkPlacement placement);

    [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(slot_.size()); }
    [[nodiscard]] std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(occupant_.size()); }
    /// The slot that a chunk lies on, or none.
    [[nodiscard]] std::uint32_t slot(std::uint32_t chunk) const noexcept { return slot_[chunk]; }
    /// The chunk whose bytes a slot holds, or none.
    [[nodiscard]] std::uint32_t occupant(std::uint32_t slot) const noexcept { return occupant_[slot]; }
    /// Whether no chunk lies on a slot. Linear in the number of chunks.
    [[nodiscard]] bool is_empty(std::uint32_t slot) const noexcept;
    /// Whether the bytes of a chunk are in its slot, or their copy is enqueued.
    [[nodiscard]] bool is_there(std::uint32_t chunk) const noexcept {
        return slot_[chunk] != none && occupant_[slot_[chunk]] == chunk;
    }
    /// By chunk: is_there().
    [[nodiscard]] std::vector<bool> all_there() const;

    /// Whether a chunk is the sole owner of its slot: the plan gives that slot to no other chunk.
    [[nodiscard]] bool is_sole_owner(std::uint32_t chunk) const noexcept { return is_sole_owner_[chunk]; }
    /// Whether a chunk never leaves while the plan is followed: it is resident, and the sole owner of its slot.
    [[nodiscard]] bool stays(std::uint32_t chunk) const noexcept { return stays_[chunk]; }
    /// Whether every chunk stays that the plan has a slot for.
    [[nodiscard]] bool all_stay() const noexcept { return all_stay_; }
    /// Whether is_unplanned() of some storage.
    [[nodiscard]] bool has_unplanned() const noexcept { return has_unplanned_; }
    /// Whether the plan has no slot for some chunk of a storage: no step reads it.
    [[nodiscard]] bool is_unplanned(StorageId storage) const noexcept {
        return has_unplanned_ && is_unplanned_[index(storage)];
    }
    /// Whether all chunks of a storage stay.
    [[nodiscard]] bool never_leaves(StorageId storage) const noexcept { return never_leaves_[index(storage)]; }
    /// Whether a slot belongs to the plan and to no chunk that stays, or was added.
    [[nodiscard]] bool is_of_ring(std::uint32_t slot) const noexcept { return is_of_ring_[slot]; }

    /// A copy of a chunk to its slot was enqueued (`is_sent`) or failed; after a failure the slot has no occupant. Returns the chunk that was
    /// evicted, or none.
    std::uint32_t bring(std::uint32_t chunk, bool is_sent) noexcept {
        const std::uint32_t before = std::exchange(occupant_[slot_[chunk]], is_sent ? chunk : none);
        return before == chunk ? none : before;
    }
    /// The bytes of a chunk are lost.
    void lose(std::uint32_t chunk) noexcept {
        if (is_there(chunk)) { occupant_[slot_[chunk]] = none; }
    }
    /// A chunk lies on another slot from now on. Precondition: its bytes are not there.
    void set_slot(std::uint32_t chunk, std::uint32_t slot) noexcept { slot_[chunk] = slot; }
    /// Adds a slot, on which no chunk lies, and returns its number.
    std::uint32_t add() {
        occupant_.push_back(none);
        is_of_ring_.push_back(true);
        return slots() - 1;
    }
    /// Removes a slot; the last slot takes its number. Precondition: is_empty(slot), and the plan does not have the slot.
    void remove(std::uint32_t slot);

    /// By slot: occupant(). May be put back as long as no chunk was put on another slot since.
    [[nodiscard]] const std::vector<std::uint32_t>& occupants() const noexcept { return occupant_; }
    void set_occupants(const std::vector<std::uint32_t>& occupants) { occupant_ = occupants; }

private:
    // By chunk.
    std::vector<std::uint32_t> slot_;
    std::vector<bool> is_sole_owner_;
    std::vector<bool> stays_;
    bool all_stay_ = false;
    std::vector<bool> never_leaves_;  // by storage
    std::vector<bool> is_unplanned_;  // by storage
    bool has_unplanned_ = false;      // some storage is
    // By slot.
    std::vector<std::uint32_t> occupant_;
    std::vector<bool> is_of_ring_;
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/chunk_table.ipp"
#endif
