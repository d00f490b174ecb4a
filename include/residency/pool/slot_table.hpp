// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// The slots of a slab, and the chunks of memory that lie under them: a slot is given out only if it is open, unused and backed. Open are
/// the first slots, as many as the cap has chunks for. A slot is backed if every chunk that it touches is mapped. Makes no device call.
class SlotTable {
public:
    /// No slot is open yet. `packs`: of free slots, take() gives the first ones, so that from an empty table any numbers of slots fit that
    /// come to no more than are open. Allocates, as all calls do that say nothing else.
    void open(std::size_t slots, std::uint64_t slot_bytes, std::uint64_t chunk_bytes, bool packs = false);
    [[nodiscard]] bool is_open() const noexcept { return !used_.empty(); }
    /// Chunks under all slots.
    [[nodiscard]] std::size_t chunks() const noexcept { return mapped_.size(); }
    [[nodiscard]] std::size_t used_slots() const noexcept { return used_slots_; }

    /// The slot that has been free for longest, so that neighbours stay together. Allocates nothing.
    [[nodiscard]] std::optional<std::size_t> take() noexcept;
    /// Takes `count` neighbouring slots as one, and returns the first. Precondition: the table packs. Allocates nothing.
    [[nodiscard]] std::optional<std::size_t> take(std::size_t count) noexcept;
    /// Gives back what take() gave. Allocates nothing.
    void give_back(std::size_t slot) noexcept;

    /// Another cap; slots that are not open any more have to be given back, apart from `fixed` ones, which take() gave, and whose chunks
    /// count.
    void begin_resize(std::size_t cap_chunks, std::span<const std::size_t> fixed);
    /// Whether more slots are used, apart from fixed ones, than are open and backed. Allocates nothing.
    [[nodiscard]] bool is_over() const noexcept { return used_slots_ - fixed_slots_ > places_; }
    /// Whether a slot that take() gave must be given back before the change of the cap ends.
    [[nodiscard]] bool must_be_given_back(std::size_t slot) const noexcept {
        return slot + neighbours(slot) > open_slots_;
    }
    /// Opens as many slots as the cap has chunks for beside those under used slots. Returns, by chunk, whether it has to be mapped.
    [[nodiscard]] std::vector<bool> end_resize();

    [[nodiscard]] bool is_mapped(std::size_t chunk) const noexcept { return mapped_[chunk]; }
    /// list_free() has to follow. Allocates nothing.
    void set_mapped(std::size_t chunk, bool is_mapped) noexcept { mapped_[chunk] = is_mapped; }
    /// Lists the slots that can be given out, by number. Allocates nothing.
    void list_free() noexcept;

private:
    /// Chunks under the first `slots` slots.
    [[nodiscard]] std::size_t chunks_of(std::size_t slots) const noexcept {
        return static_cast<std::size_t>((slots * slot_bytes_ + chunk_bytes_ - 1) / chunk_bytes_);
    }
    [[nodiscard]] std::size_t first_chunk(std::size_t slot) const noexcept {
        return static_cast<std::size_t>(slot * slot_bytes_ / chunk_bytes_);
    }
    [[nodiscard]] bool is_backed(std::size_t slot) const noexcept;
    /// How many slots were taken as one with this first one.
    [[nodiscard]] std::size_t neighbours(std::size_t slot) const noexcept { return packs_ ? taken_[slot] : 1; }
    /// Opens as many slots as the cap has chunks for beside those under `kept` slots that are not open.
    void open_slots(const std::vector<bool>& kept);
    void add_free(std::size_t slot) noexcept;

    std::uint64_t slot_bytes_ = 0;
    std::uint64_t chunk_bytes_ = 0;
    std::size_t cap_chunks_ = 0;
    std::size_t open_slots_ = 0;
    std::vector<bool> mapped_;  // by chunk
    std::vector<bool> used_;    // by slot
    bool packs_ = false;
    std::vector<std::size_t> taken_;  // where it packs, by first slot: how many were taken
    std::vector<std::size_t> free_;   // a ring, in the order in which the slots became free
    std::size_t next_free_ = 0;       // where the ring begins
    std::size_t free_slots_ = 0;      // in the ring
    std::size_t used_slots_ = 0;
    std::size_t fixed_slots_ = 0;  // during a change of the cap
    std::size_t places_ = 0;       // during a change of the cap: open, backed slots that are not fixed
};

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/slot_table.ipp"
#endif
