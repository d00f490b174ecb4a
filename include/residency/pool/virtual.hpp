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
class Virtual {
public:
    using Device = D;  ///< whose memory it gives
    /// The sizes of its parts.
    struct Config {
        /// Rounded up to what the device maps.
        std::uint64_t chunk_bytes = std::uint64_t{2} << 20;
    };
    /// As pool::no_slot.
    static constexpr std::uint32_t none = no_slot;

    Virtual() : Virtual(Config{}) {}
    /// Cuts memory as `config` says.
    explicit Virtual(Config config) noexcept : config_{config} {}
    /// The source is empty afterwards.
    Virtual(Virtual&& other) noexcept
        : config_{other.config_},
          device_{std::exchange(other.device_, nullptr)},
          base_{other.base_},
          chunk_bytes_{other.chunk_bytes_},
          slots_{std::move(other.slots_)},
          table_{std::move(other.table_)} {}
    Virtual& operator=(Virtual&&) = delete;
    ~Virtual() { close(); }

    /// Bytes of a physical chunk on that device.
    [[nodiscard]] std::uint64_t chunk_bytes(const D& device) const {
        return round_up(config_.chunk_bytes, device.chunk_granularity());
    }

    /// Blocks. Reserves the range; holds no memory yet.
    [[nodiscard]] Status open(D& device, std::uint64_t image_bytes);

    /// Blocks. Holds `slots` physical chunks from now on. Chunk c of the image lies on slot table[c], or on none. A chunk that was and stays
    /// alone on its slot keeps its bytes, and so does every chunk in `keeping`, of which no two share a slot, before or in `table`. Their
    /// slot numbers may differ all the same: `table` says which chunks share a slot, not which physical chunk it is. Only what changes is
    /// unmapped and mapped. Precondition: every stream is drained, apart from reads of `keeping`. On failure, what keeps its bytes still
    /// does, other chunks may be unmapped, and arrange() has to be called again.
    [[nodiscard]] Status arrange(std::uint32_t slots, std::span<const std::uint32_t> table,
                                 std::span<const std::uint32_t> keeping = {});
    /// Blocks. Puts one chunk of the image on another slot, or on none. Precondition: nothing uses the chunk.
    [[nodiscard]] Status remap(std::uint32_t chunk, std::uint32_t slot);

    /// Blocks. Holds one physical chunk more, on which nothing lies; its number is the next one.
    [[nodiscard]] Status add_slot() {
        auto chunk = device_->create_chunk(chunk_bytes_);
        if (!chunk) { return chunk.error(); }
        slots_.push_back(*chunk);
        return {};
    }

    /// Blocks. Holds one physical chunk less; the last slot takes the number of this one. Precondition: no chunk of the image lies on it.
    [[nodiscard]] Status give_back(std::uint32_t slot);

    /// Where the image begins; the same from open() to close().
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    /// Device bytes of all physical chunks.
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return slots_.size() * chunk_bytes_; }
    /// The physical chunk under a chunk of the image, or no slot.
    [[nodiscard]] std::uint32_t slot_of(std::uint32_t chunk) const noexcept { return table_[chunk]; }

    /// Blocks. Gives everything back. On failure arrange() or try_close() go on from there. Precondition: every stream is drained.
    [[nodiscard]] Status try_close();
    /// Gives everything back, as try_close(). What fails twice is left behind.
    void close() noexcept;
    void abandon() noexcept;  ///< forgets everything without a call of the device, which is broken

private:
    [[nodiscard]] std::byte* address(std::size_t chunk) const noexcept { return base_ + chunk * chunk_bytes_; }

    /// Destroys the last physical chunks, until `slots` are left. Precondition: nothing is mapped on them.
    [[nodiscard]] Status shrink(std::size_t slots);

    Config config_;
    D* device_ = nullptr;        // the caller's; null: not open
    std::byte* base_ = nullptr;  // of the range; null: the image is empty
    std::uint64_t chunk_bytes_ = 0;
    std::vector<typename D::Chunk> slots_;  // physical chunks, by slot
    std::vector<std::uint32_t> table_;      // by chunk of the image: its slot, or none
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
    const std::size_t had = slots_.size();
    while (slots_.size() < slots) {
        auto chunk = device_->create_chunk(chunk_bytes_);
        if (!chunk) {
            static_cast<void>(shrink(had).has_value());
            return chunk.error();
        }
        slots_.push_back(*chunk);
    }
    const std::vector<std::uint32_t> kept = kept_slots(slots_.size(), table_, slots, table, keeping);
    const auto stays = [&](std::size_t chunk) {
        return table_[chunk] != none && table[chunk] != none && kept[table[chunk]] == table_[chunk];
    };
    for (std::size_t chunk = 0; chunk < table_.size();) {
        if (table_[chunk] == none || stays(chunk)) {
            ++chunk;
            continue;
        }
        std::size_t end = chunk;
        while (end < table_.size() && table_[end] != none && !stays(end)) { ++end; }
        if (auto done = device_->unmap(address(chunk), (end - chunk) * chunk_bytes_); !done) { return done; }
        for (; chunk < end; ++chunk) { table_[chunk] = none; }
    }

    // The physical chunks in their new order; those to be destroyed come last.
    std::vector<bool> is_kept(slots_.size(), false);
    for (const std::uint32_t was : kept) {
        if (was != none) { is_kept[was] = true; }
    }
    std::vector<typename D::Chunk> spare;
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (!is_kept[i]) { spare.push_back(slots_[i]); }
    }
    std::vector<typename D::Chunk> arranged(slots);
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < slots; ++i) { arranged[i] = kept[i] != none ? slots_[kept[i]] : spare[next++]; }
    arranged.insert(arranged.end(), spare.begin() + static_cast<std::ptrdiff_t>(next), spare.end());
    slots_ = std::move(arranged);
    std::vector<Mapping<typename D::Chunk>> mappings;
    for (std::size_t chunk = 0; chunk < table_.size(); ++chunk) {
        if (table_[chunk] != none) {
            table_[chunk] = table[chunk];
        } else if (table[chunk] != none) {
            mappings.push_back({address(chunk), slots_[table[chunk]]});
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
    const Mapping<typename D::Chunk> mapping{address(chunk), slots_[slot]};
    if (auto done = device_->map({&mapping, 1}, chunk_bytes_); !done) {
        if (before == none) { return done; }
        const Mapping<typename D::Chunk> back{address(chunk), slots_[before]};
        if (device_->map({&back, 1}, chunk_bytes_)) { table_[chunk] = before; }
        return done;
    }
    table_[chunk] = slot;
    return {};
}

template <VirtualMemoryDevice D>
Status Virtual<D>::give_back(std::uint32_t slot) {
    if (auto done = device_->destroy_chunk(slots_[slot]); !done) { return done; }
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
    for (std::size_t chunk = 0; chunk < table_.size();) {
        std::size_t end = chunk;
        while (end < table_.size() && table_[end] != none) { ++end; }
        if (end > chunk) {
            if (auto done = device_->unmap(address(chunk), (end - chunk) * chunk_bytes_); !done) { return done; }
        }
        for (; chunk < end; ++chunk) { table_[chunk] = none; }
        ++chunk;
    }
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
    for (const auto slot : slots_) { static_cast<void>(device_->destroy_chunk(slot).has_value()); }
    if (base_ != nullptr) { static_cast<void>(device_->release(base_, table_.size() * chunk_bytes_).has_value()); }
    abandon();
}

template <VirtualMemoryDevice D>
void Virtual<D>::abandon() noexcept {
    device_ = nullptr;
    base_ = nullptr;
    slots_.clear();
    table_.clear();
}

template <VirtualMemoryDevice D>
Status Virtual<D>::shrink(std::size_t slots) {
    for (; slots_.size() > slots; slots_.pop_back()) {
        if (auto done = device_->destroy_chunk(slots_.back()); !done) { return done; }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/virtual.ipp"
#endif
