// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// On which slot each chunk of an image lies when a plan comes into force. Every pinned chunk keeps its bytes and its address. A
/// pinned chunk lies on its own slot of the plan, or it is *misplaced*: on a slot of the ring if one is free, else on any other free
/// slot, else on an extra slot beyond the plan. A chunk is never moved within the device: it is mapped, and its bytes are copied again.
struct ChunkPlacement {
    std::vector<std::uint32_t> table;      ///< by chunk: its slot, or none
    std::uint32_t slots = 0;               ///< the plan's slots, and extra ones for misplaced chunks
    std::vector<std::uint32_t> kept;       ///< chunks that keep their bytes, at most one per slot
    std::vector<std::uint32_t> misplaced;  ///< kept chunks that are not on the slot that the plan gives them
    std::vector<std::uint32_t> sharers;    ///< by slot of the plan: the number of chunks that the plan puts there
};

/// Places the chunks for `plan`. `pinned`: chunks that are leased, or that must not leave. Also keeps a chunk that is there if it is the
/// first one that a pass of the plan brings to its slot. `there`: by chunk of the plan's image; empty if the device holds nothing of it.
[[nodiscard]] ChunkPlacement place_chunks(const plan::Plan& plan, std::span<const std::uint32_t> pinned,
                                          const std::vector<bool>& there);

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

/// The bytes of an image that begins at a fixed device address: which storages lie on each chunk, and which parts of storages a range
/// of the image or a call of the plan consists of. Constant while a plan is in force.
class ChunkContents {
public:
    ChunkContents() = default;
    ChunkContents(const plan::Plan& plan, std::byte* base);

    /// The storages that lie on a chunk, in the order of the image.
    [[nodiscard]] std::span<const std::uint32_t> storages(std::uint32_t chunk) const noexcept {
        return std::span{storages_}.subspan(first_[chunk], first_[chunk + std::size_t{1}] - first_[chunk]);
    }
    /// The chunks that a storage lies on; none if it has no bytes.
    [[nodiscard]] plan::Chunks chunks(StorageId id) const noexcept { return chunks_[index(id)]; }
    /// The parts of storages that call `k` of the plan brings.
    [[nodiscard]] std::span<const transport::Fetch> call(std::uint32_t k) const noexcept {
        return std::span{call_pieces_}.subspan(first_piece_[k], first_piece_[k + std::size_t{1}] - first_piece_[k]);
    }
    /// Appends the parts of storages that lie in bytes [begin, end) of the image: one piece per storage, in the order of the image.
    void append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                       std::vector<transport::Fetch>& pieces) const;

private:
    std::byte* base_ = nullptr;       // device address of the image
    std::vector<std::size_t> first_;  // by chunk: where its storages begin in storages_; one more entry at the end
    std::vector<std::uint32_t> storages_;
    std::vector<plan::Chunks> chunks_;  // by storage
    std::vector<std::size_t>
        first_piece_;  // by call: where its pieces begin in call_pieces_; one more entry at the end
    std::vector<transport::Fetch> call_pieces_;
};

/// Whether the predicate holds for one of the chunks that these copies of a plan bring. Stops at the first.
template <std::predicate<std::uint32_t> Predicate>
[[nodiscard]] bool any_chunk(const plan::Plan& plan, std::span<const plan::Copy> copies, Predicate predicate) {
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) {
            if (predicate(chunk)) { return true; }
        }
    }
    return false;
}

/// Calls `visit` with each chunk that these copies of a plan bring, in their order.
template <std::invocable<std::uint32_t> Visit>
void for_each_chunk(const plan::Plan& plan, std::span<const plan::Copy> copies, Visit visit) {
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { visit(chunk); }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/planned/impl/chunk_table.ipp"
#endif
