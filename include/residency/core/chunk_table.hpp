// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "residency/core/chunk_placement.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What memory holds of an image: on which slot each chunk lies, and the bytes of which chunk each slot has or is about to have.
class ChunkTable {
public:
    static constexpr std::uint32_t none = plan::none;

    ChunkTable() = default;
    /// As a plan comes into force.
    ChunkTable(const plan::Plan& plan, ChunkPlacement placement);

    [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(slot_.size()); }
    [[nodiscard]] std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(occupant_.size()); }
    [[nodiscard]] std::uint32_t slot(std::uint32_t chunk) const noexcept { return slot_[chunk]; }
    /// By chunk.
    [[nodiscard]] const std::vector<std::uint32_t>& all_slots() const noexcept { return slot_; }
    /// The chunk whose bytes a slot holds, or none.
    [[nodiscard]] std::uint32_t occupant(std::uint32_t slot) const noexcept { return occupant_[slot]; }
    [[nodiscard]] bool is_empty(std::uint32_t slot) const noexcept {
        return std::ranges::find(slot_, slot) == slot_.end();
    }
    /// Its bytes are in its slot, or on their way.
    [[nodiscard]] bool is_there(std::uint32_t chunk) const noexcept {
        return slot_[chunk] != none && occupant_[slot_[chunk]] == chunk;
    }
    [[nodiscard]] std::vector<bool> all_there() const;
    /// By the plan it never leaves.
    [[nodiscard]] bool stays(std::uint32_t chunk) const noexcept { return stays_[chunk]; }
    [[nodiscard]] bool all_stay() const noexcept { return all_stay_; }
    /// A slot of the plan that no chunk has for ever.
    [[nodiscard]] bool is_of_ring(std::uint32_t slot) const noexcept { return is_of_ring_[slot]; }

    /// A chunk was sent to its slot: what was there is no more. Where that failed, nobody knows what the slot holds. Whether another
    /// chunk had to leave.
    bool bring(std::uint32_t chunk, bool is_sent) noexcept {
        const std::uint32_t before = std::exchange(occupant_[slot_[chunk]], is_sent ? chunk : none);
        return before != none && before != chunk;
    }
    /// Its bytes are lost.
    void lose(std::uint32_t chunk) noexcept {
        if (is_there(chunk)) { occupant_[slot_[chunk]] = none; }
    }
    /// Lies on another slot from now on. Precondition: its bytes are not there.
    void move(std::uint32_t chunk, std::uint32_t slot) noexcept { slot_[chunk] = slot; }
    /// The last slot takes the number of one on which nothing lies.
    void remove(std::uint32_t slot);

    /// By slot, to go back to where the mapping has not changed since.
    [[nodiscard]] const std::vector<std::uint32_t>& occupants() const noexcept { return occupant_; }
    void set_occupants(const std::vector<std::uint32_t>& occupants) { occupant_ = occupants; }

private:
    // By chunk.
    std::vector<std::uint32_t> slot_;
    std::vector<bool> stays_;
    bool all_stay_ = false;
    // By slot.
    std::vector<std::uint32_t> occupant_;
    std::vector<bool> is_of_ring_;
};

inline ChunkTable::ChunkTable(const plan::Plan& plan, ChunkPlacement placement)
    : slot_{std::move(placement.table)},
      stays_(slot_.size(), false),
      occupant_(placement.slots, none),
      is_of_ring_(placement.slots, false) {
    for (const std::uint32_t chunk : placement.kept) { occupant_[slot_[chunk]] = chunk; }
    std::fill_n(is_of_ring_.begin(), plan.slots_held(), true);
    const std::vector<std::uint32_t> sharers = count_chunks(plan.data().chunk_slot);
    for (const plan::Copy& resident : plan.residents()) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(resident)) {
            const std::uint32_t slot = plan.slot_of_chunk(chunk);
            stays_[chunk] = sharers[slot] == 1;
            is_of_ring_[slot] = !stays_[chunk];
        }
    }
    all_stay_ = std::ranges::all_of(stays_, std::identity{});
}

inline std::vector<bool> ChunkTable::all_there() const {
    std::vector<bool> there(slot_.size());
    for (std::uint32_t chunk = 0; chunk < chunks(); ++chunk) { there[chunk] = is_there(chunk); }
    return there;
}

inline void ChunkTable::remove(std::uint32_t slot) {
    const std::uint32_t last = slots() - 1;
    for (std::uint32_t& of : slot_) {
        if (of == last) { of = slot; }
    }
    occupant_[slot] = occupant_[last];
    occupant_.pop_back();
    is_of_ring_.pop_back();
}

}}}  // namespace residency::RESIDENCY_ABI::core
