// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// In a table of slots by chunk: the chunk lies on no slot.
inline constexpr std::uint32_t no_slot = UINT32_MAX;

/// Which old slots are used again when the chunks of an image are mapped in another way: for each new slot, the old slot whose physical
/// chunk it takes over, or no_slot. The old mapping has `slots_now` slots, the new one `slots`; `table_now` and `table` give the slot of
/// each chunk. Each old slot is taken over once at most. The chunks in `keeping` have the first choice, because their bytes must stay;
/// then chunks that have a slot of their own in both mappings, so that their bytes can stay; then every chunk whose mapping can stay.
[[nodiscard]] std::vector<std::uint32_t> kept_slots(std::size_t slots_now, std::span<const std::uint32_t> table_now,
                                                    std::uint32_t slots, std::span<const std::uint32_t> table,
                                                    std::span<const std::uint32_t> keeping);

/// One address range for the whole image: a weight's address is base + offset, from open() to close(). Each chunk of the image lies on a
/// physical chunk of its own, or on one that it shares with other chunks (a slot of the ring), or on none. Nothing fragments and nothing
/// is padded, and exactly as many physical chunks exist as are held. Goes with planned policies.
///
/// Two addresses of one physical chunk are coherent only across operations that streams order: a kernel that is still running when the
/// copy lands must not read those bytes (no programmatic dependent launch, no kernel that runs on after its lease).
template <VirtualMemoryDevice D>
class Virtual : private ChunkSleeper {
public:
    using Device = D;  ///< whose memory it gives
    /// The sizes of its parts.
    struct Config {
        /// Rounded up to what the device maps.
        std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
        /// Where its physical chunks come from, of its size; outlives the pool. Null: from the device.
        ChunkStock<D>* stock = nullptr;
    };
    /// As pool::no_slot.
    static constexpr std::uint32_t none = no_slot;

    Virtual() : Virtual(Config{}) {}
    /// Cuts memory as `config` says.
    explicit Virtual(Config config) noexcept : config_{config} {}
    Virtual(const Virtual&) = delete;
    Virtual& operator=(const Virtual&) = delete;
    ~Virtual() override { close(); }

    /// Bytes of a physical chunk on that device.
    [[nodiscard]] std::uint64_t chunk_bytes(const D& device) const {
        return config_.stock != nullptr ? config_.stock->chunk_bytes()
                                        : round_up(config_.chunk_bytes, device.chunk_granularity());
    }

    /// Where its physical chunks come from; null: from the device.
    [[nodiscard]] ChunkStock<D>* stock() const noexcept { return config_.stock; }

    /// Blocks. Reserves the range; holds no memory yet.
    [[nodiscard]] Status open(D& device, std::uint64_t image_bytes);

    /// Blocks. Holds `slots` physical chunks from now on. Chunk c of the image lies on slot table[c], or on none. A chunk that was and stays
    /// alone on its slot keeps its bytes, and so does every chunk in `keeping`, of which no two share a slot, before or in `table`. Their
    /// slot numbers may differ all the same: `table` says which chunks share a slot, not which physical chunk it is. Only what changes is
    /// unmapped and mapped. Precondition: every stream is drained, apart from reads of `keeping`. On failure, what keeps its bytes still
    /// does, other chunks may be unmapped, and arrange() has to be called again.
    [[nodiscard]] Status arrange(std::uint32_t slots, std::span<const std::uint32_t> table,
                                 std::span<const std::uint32_t> keeping = {});
    /// Blocks. arrange() for which the first `slots` chunks of the image lie on a slot each, and the others on none.
    [[nodiscard]] Status hold(std::uint32_t slots) {
        std::vector<std::uint32_t> table(table_.size(), none);
        for (std::uint32_t i = 0; i < slots; ++i) { table[i] = i; }
        return arrange(slots, table);
    }
    /// Blocks. Puts one chunk of the image on another slot, or on none. Precondition: nothing uses the chunk.
    [[nodiscard]] Status remap(std::uint32_t chunk, std::uint32_t slot);

    /// Blocks. Holds one physical chunk more, on which nothing lies; its number is the next one.
    [[nodiscard]] Status add_slot() {
        auto slot = take_slot();
        if (!slot) { return slot.error(); }
        slots_.push_back(*slot);
        return {};
    }

    /// Blocks. Holds one physical chunk less; the last slot takes the number of this one. Precondition: no chunk of the image lies on it.
    [[nodiscard]] Status give_back(std::uint32_t slot);

    /// Where the image begins; the same from open() to close().
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    /// Device bytes of all physical chunks that it has.
    [[nodiscard]] std::uint64_t held_bytes() const noexcept {
        const auto own = std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.is_awake; });
        return static_cast<std::uint64_t>(own) * chunk_bytes_;
    }
    /// The physical chunk under a chunk of the image, or no slot.
    [[nodiscard]] std::uint32_t slot_of(std::uint32_t chunk) const noexcept { return table_[chunk]; }

    /// Gives all physical chunks back and keeps the range, until arrange(). Chunks of a stock stay mapped: arrange() with the same table maps
    /// only what it does not get again. Without a stock it blocks, and unmaps them. On failure it may be called again. Precondition: every
    /// stream is drained.
    [[nodiscard]] Status sleep();
    /// While it is asleep: takes the physical chunk again that a chunk of the image lies on, ahead of arrange(). False: it cannot be had.
    [[nodiscard]] bool wake_chunk(std::uint32_t chunk);
    /// While it is the same, wake_chunk() takes no more than it took before.
    [[nodiscard]] std::uint64_t given_back() const { return is_asleep_ ? config_.stock->given_back() : 0; }

    /// Blocks. Gives everything back. On failure arrange() or try_close() go on from there. Precondition: every stream is drained.
    [[nodiscard]] Status try_close();
    /// Gives everything back, as try_close(). What fails twice is left behind.
    void close() noexcept;
    void abandon() noexcept;  ///< forgets everything without a call of the device, which is broken

private:
    /// A physical chunk.
    struct Slot {
        typename D::Chunk chunk{};
        std::uint32_t number = none;  // in the stock; asleep: none, where it is forgotten
        bool is_awake = true;         // it belongs to this pool
    };

    [[nodiscard]] std::byte* address(std::size_t chunk) const noexcept { return base_ + chunk * chunk_bytes_; }
    [[nodiscard]] Result<Slot> take_slot() {
        if (config_.stock == nullptr) {
            auto chunk = device_->create_chunk(chunk_bytes_);
            if (!chunk) { return chunk.error(); }
            return Slot{*chunk};
        }
        const auto number = config_.stock->take();
        if (!number) { return number.error(); }
        return Slot{config_.stock->chunk(*number), *number};
    }
    /// Precondition: nothing is mapped on it.
    [[nodiscard]] Status return_slot(const Slot& slot) {
        if (config_.stock == nullptr) { return device_->destroy_chunk(slot.chunk); }
        if (slot.is_awake) { config_.stock->give_back(slot.number); }
        return {};
    }
    /// Unmaps what lies on chunks of the stock: the pool is awake, and holds nothing.
    [[nodiscard]] Status forget_all();
    /// Has nothing of the stock any more, and keeps no addresses there.
    void leave_stock() noexcept;
    /// Takes what it had when it fell asleep, or others in its place. On failure it is asleep, with what it has got.
    [[nodiscard]] Status wake();
    /// Takes other chunks where somebody else has those that it had, and maps all addresses that lie elsewhere, or nowhere.
    [[nodiscard]] Status map_elsewhere();
    [[nodiscard]] Status forget(std::span<const std::uint32_t> chunks) override;
    /// Unmaps chunks of the image for which `is_leaving(chunk)` holds, in as few calls as there are ranges.
    template <class IsLeaving>
    [[nodiscard]] Status unmap_if(const IsLeaving& is_leaving);

    /// Destroys the last physical chunks, until `slots` are left. Precondition: nothing is mapped on them.
    [[nodiscard]] Status shrink(std::size_t slots);

    Config config_;
    D* device_ = nullptr;        // the caller's; null: not open
    std::byte* base_ = nullptr;  // of the range; null: the image is empty
    std::uint64_t chunk_bytes_ = 0;
    std::vector<Slot> slots_;                  // physical chunks, by slot
    std::vector<std::uint32_t> table_;         // by chunk of the image: its slot, or none
    bool is_asleep_ = false;                   // its chunks are the stock's, apart from some
    std::vector<std::uint32_t> asleep_table_;  // the table as it fell asleep
};

template <VirtualMemoryDevice D>
Status Virtual<D>::open(D& device, std::uint64_t image_bytes) {
    chunk_bytes_ = chunk_bytes(device);
    table_.assign(static_cast<std::size_t>(round_up(image_bytes, chunk_bytes_) / chunk_bytes_), none);
    if (!table_.empty()) {
        auto at = device.reserve(table_.size() * chunk_bytes_);
        if (!at) { return at.error(); }
        base_ = static_cast<std::byte*>(*at);
    }
    device_ = &device;
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::arrange(std::uint32_t slots, std::span<const std::uint32_t> table,
                           std::span<const std::uint32_t> keeping) {
    RESIDENCY_ASSERT(table.size() == table_.size(), "one entry for each chunk of the image");
    if (is_asleep_) {
        const auto still = config_.stock->hold_still();
        if (slots == slots_.size() && std::equal(table.begin(), table.end(), asleep_table_.begin())) { return wake(); }
        if (auto forgotten = forget_all(); !forgotten) { return forgotten; }
    }
    const std::size_t had = slots_.size();
    while (slots_.size() < slots) {
        if (auto added = add_slot(); !added) {
            static_cast<void>(shrink(had).has_value());
            return added;
        }
    }
    const std::vector<std::uint32_t> kept = kept_slots(slots_.size(), table_, slots, table, keeping);
    const auto stays = [&](std::size_t chunk) {
        return table_[chunk] != none && table[chunk] != none && kept[table[chunk]] == table_[chunk];
    };
    if (auto done = unmap_if([&](std::size_t chunk) { return !stays(chunk); }); !done) { return done; }

    // The physical chunks in their new order; those to be destroyed come last.
    std::vector<bool> is_kept(slots_.size(), false);
    for (const std::uint32_t was : kept) {
        if (was != none) { is_kept[was] = true; }
    }
    std::vector<Slot> spare;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (!is_kept[i]) { spare.push_back(slots_[i]); }
    }
    std::vector<Slot> arranged(slots);
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < slots; ++i) { arranged[i] = kept[i] != none ? slots_[kept[i]] : spare[next++]; }
    arranged.insert(arranged.end(), spare.begin() + static_cast<std::ptrdiff_t>(next), spare.end());
    slots_ = std::move(arranged);
    std::vector<Mapping<typename D::Chunk>> mappings;
    for (std::size_t chunk = 0; chunk < table_.size(); ++chunk) {
        if (table_[chunk] != none) {
            table_[chunk] = table[chunk];
        } else if (table[chunk] != none) {
            mappings.push_back({address(chunk), slots_[table[chunk]].chunk});
        }
    }
    if (auto done = shrink(slots); !done) { return done; }
    if (mappings.empty()) { return {}; }
    if (auto done = device_->map(mappings, chunk_bytes_); !done) { return done; }
    table_.assign(table.begin(), table.end());
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::remap(std::uint32_t chunk, std::uint32_t slot) {
    if (table_[chunk] != none) {
        if (auto done = device_->unmap(address(chunk), chunk_bytes_); !done) { return done; }
    }
    const std::uint32_t before = std::exchange(table_[chunk], none);
    if (slot == none) { return {}; }
    const Mapping<typename D::Chunk> mapping{address(chunk), slots_[slot].chunk};
    if (auto done = device_->map({&mapping, 1}, chunk_bytes_); !done) {
        if (before == none) { return done; }
        const Mapping<typename D::Chunk> back{address(chunk), slots_[before].chunk};
        if (device_->map({&back, 1}, chunk_bytes_)) { table_[chunk] = before; }
        return done;
    }
    table_[chunk] = slot;
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::give_back(std::uint32_t slot) {
    if (auto done = return_slot(slots_[slot]); !done) { return done; }
    const auto last = static_cast<std::uint32_t>(slots_.size() - 1);
    slots_[slot] = slots_[last];
    slots_.pop_back();
    for (std::uint32_t& of : table_) {
        if (of == last) { of = slot; }
    }
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::try_close() {
    if (device_ == nullptr) { return {}; }
    if (is_asleep_) {
        const auto still = config_.stock->hold_still();
        if (auto done = forget_all(); !done) { return done; }
    }
    if (auto done = unmap_if([](std::size_t) { return true; }); !done) { return done; }
    if (auto done = shrink(0); !done) { return done; }
    if (base_ != nullptr) {
        if (auto done = device_->release(base_, table_.size() * chunk_bytes_); !done) { return done; }
    }
    abandon();
    return {};
}

template <VirtualMemoryDevice D>
void Virtual<D>::close() noexcept {
    if (try_close() || try_close()) { return; }
    for (const Slot& slot : slots_) {
        if (config_.stock == nullptr) { static_cast<void>(device_->destroy_chunk(slot.chunk).has_value()); }
    }
    if (base_ != nullptr) { static_cast<void>(device_->release(base_, table_.size() * chunk_bytes_).has_value()); }
    abandon();
}

template <VirtualMemoryDevice D>
void Virtual<D>::abandon() noexcept {
    if (config_.stock != nullptr) {
        const auto still = config_.stock->hold_still();
        leave_stock();
    }
    device_ = nullptr;
    base_ = nullptr;
    slots_.clear();
    table_.clear();
}

template <VirtualMemoryDevice D>
template <class IsLeaving>
Status Virtual<D>::unmap_if(const IsLeaving& is_leaving) {
    const auto leaves = [&](std::size_t chunk) { return table_[chunk] != none && is_leaving(chunk); };
    for (std::size_t chunk = 0; chunk < table_.size();) {
        std::size_t end = chunk;
        while (end < table_.size() && leaves(end)) { ++end; }
        if (end > chunk) {
            if (auto done = device_->unmap(address(chunk), (end - chunk) * chunk_bytes_); !done) { return done; }
        }
        for (; chunk < end; ++chunk) { table_[chunk] = none; }
        ++chunk;
    }
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::sleep() {
    if (config_.stock == nullptr) { return hold(0); }
    const auto still = config_.stock->hold_still();
    for (Slot& slot : slots_) {
        if (!slot.is_awake) { continue; }
        if (!is_asleep_) { config_.stock->keep(slot.number, *this); }
        config_.stock->give_back(slot.number);
        slot.is_awake = false;
    }
    if (!std::exchange(is_asleep_, true)) { asleep_table_ = table_; }
    return {};
}

template <VirtualMemoryDevice D>
bool Virtual<D>::wake_chunk(std::uint32_t chunk) {
    if (!is_asleep_) { return false; }
    const auto still = config_.stock->hold_still();
    if (table_[chunk] == none) { return false; }
    Slot& slot = slots_[table_[chunk]];
    if (slot.is_awake) { return true; }
    if (slot.number == none || !config_.stock->take_again(slot.number)) { return false; }
    slot.is_awake = true;
    return true;
}

template <VirtualMemoryDevice D>
Status Virtual<D>::wake() {
    bool are_awake = true;
    for (Slot& slot : slots_) {
        slot.is_awake = slot.is_awake || (slot.number != none && config_.stock->take_again(slot.number));
        are_awake = are_awake && slot.is_awake;
    }
    // Some may be unmapped all the same, where a call failed.
    if (!are_awake || table_ != asleep_table_) {
        if (auto mapped = map_elsewhere(); !mapped) { return mapped; }
    }
    for (const Slot& slot : slots_) { config_.stock->forget(slot.number, *this); }
    is_asleep_ = false;
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::map_elsewhere() {
    std::vector<Slot> taken(slots_.size());
    Status had;
    for (std::size_t i = 0; i < slots_.size() && had; ++i) {
        if (slots_[i].is_awake) { continue; }
        auto slot = take_slot();
        had = slot ? Status{} : Status{slot.error()};
        if (slot) { taken[i] = *slot; }
    }
    if (had) {
        had = unmap_if([&](std::size_t chunk) { return !slots_[table_[chunk]].is_awake; });
    }
    if (had) {
        std::vector<Mapping<typename D::Chunk>> mappings;
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].is_awake || slots_[i].number == none) { continue; }
            config_.stock->forget(std::exchange(slots_[i].number, none), *this);
        }
        for (std::size_t chunk = 0; chunk < asleep_table_.size(); ++chunk) {
            const std::uint32_t slot = asleep_table_[chunk];
            if (table_[chunk] != none || slot == none) { continue; }
            mappings.push_back({address(chunk), (slots_[slot].is_awake ? slots_ : taken)[slot].chunk});
        }
        if (!mappings.empty()) { had = device_->map(mappings, chunk_bytes_); }
    }
    if (!had) {
        for (const Slot& slot : taken) {
            if (slot.number != none) { config_.stock->give_back(slot.number); }
        }
        return had;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].is_awake) { slots_[i] = taken[i]; }
    }
    table_ = asleep_table_;
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::forget_all() {
    if (auto done = unmap_if([](std::size_t) { return true; }); !done) { return done; }
    leave_stock();
    return {};
}

template <VirtualMemoryDevice D>
void Virtual<D>::leave_stock() noexcept {
    for (const Slot& slot : slots_) {
        if (slot.number == none) { continue; }
        if (is_asleep_) { config_.stock->forget(slot.number, *this); }
        if (slot.is_awake) { config_.stock->give_back(slot.number); }
    }
    slots_.clear();
    is_asleep_ = false;
}

template <VirtualMemoryDevice D>
Status Virtual<D>::forget(std::span<const std::uint32_t> chunks) {
    std::vector<bool> leaves(slots_.size(), false);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        leaves[i] = !slots_[i].is_awake && std::binary_search(chunks.begin(), chunks.end(), slots_[i].number);
    }
    if (auto done = unmap_if([&](std::size_t chunk) { return leaves[table_[chunk]]; }); !done) { return done; }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (leaves[i]) { slots_[i].number = none; }
    }
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::shrink(std::size_t slots) {
    for (; slots_.size() > slots; slots_.pop_back()) {
        if (auto done = return_slot(slots_.back()); !done) { return done; }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/virtual.ipp"
#endif
