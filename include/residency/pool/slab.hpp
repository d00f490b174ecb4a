// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/slot_table.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// Equal slots in one address range, each as large as the largest storage that steps read, of all that stream if no steps are known.
/// Nothing fragments, and the floor is exact. A smaller storage wastes the rest of its slot, so the pool suits storages of one size
/// (layers, experts). A larger one, which no step reads, takes several neighbours.
///
/// The range has an address for every streamed storage. Memory lies under the first slots, as many as the cap allows, in chunks of the
/// device's granularity, or of a slot if that is a multiple of it. Another cap takes or gives back chunks at the end. What lies there and
/// is not fixed has to move to a slot that stays.
template <VirtualMemoryDevice D>
class Slab {
public:
    using Device = D;  ///< whose memory it gives
    /// The sizes of its parts.
    struct Config {
        /// Slots begin at multiples of this.
        std::uint64_t alignment_bytes = 256;
    };
    static constexpr bool one_range = true;  ///< all its memory is one range of addresses
    static constexpr bool is_laid_out_for_steps =
        true;  ///< a slot is as large as the largest storage that a step reads

    Slab() : Slab(Config{}) {}
    /// Cuts memory as `config` says.
    explicit Slab(Config config) noexcept : config_{config} {}
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;
    ~Slab() { close(); }

    /// What MemoryPool and its optional parts ask for. occupied() before open(), where the slot is not known yet: `bytes` themselves.
    /// @{
    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept {
        return slot_bytes_ == 0 ? bytes : slots_for(bytes, slot_bytes_) * slot_bytes_;
    }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Requirements& requirements) const {
        const std::uint64_t slot = slot_bytes(requirements);
        return round_up(slots_for(requirements.step, slot) * slot, chunk_bytes(device, requirements));
    }

    [[nodiscard]] std::uint64_t slot_bytes(const Requirements& requirements) const noexcept {
        return round_up(requirements.largest_scheduled_bytes != 0 ? requirements.largest_scheduled_bytes
                                                                  : requirements.largest_storage_bytes,
                        (std::max)(config_.alignment_bytes, requirements.largest_alignment_bytes));
    }

    /// Blocks while the device maps memory. After a failure, what the device refused to take back is held until try_close() or close().
    [[nodiscard]] Status open(D& device, const Requirements& requirements, std::uint64_t cap_bytes);
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, typename D::Stream) {
        const auto slot =
            bytes <= slot_bytes_ ? slots_.take() : slots_.take(static_cast<std::size_t>(slots_for(bytes, slot_bytes_)));
        return slot ? static_cast<void*>(first_slot_ + *slot * slot_bytes_) : nullptr;
    }
    /// A slot is reused only by copies of the same stream, which has waited for its last use.
    [[nodiscard]] Status deallocate(void* at, std::uint64_t, typename D::Stream) {
        slots_.give_back(slot_of(at));
        return {};
    }
    /// Blocks while the device maps memory. Maps what an earlier call failed to map.
    [[nodiscard]] Status recover() { return commit_resize(); }
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_chunks_ * chunk_bytes_; }
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return slots_.used_slots() * slot_bytes_; }

    [[nodiscard]] Status resize(std::uint64_t cap_bytes, std::span<const Place> allocated);
    [[nodiscard]] bool is_over() const noexcept { return slots_.is_over(); }
    [[nodiscard]] bool must_move(const void* at) const noexcept { return slots_.must_be_given_back(slot_of(at)); }
    [[nodiscard]] Status reclaim() { return {}; }
    /// Blocks while the device maps memory.
    [[nodiscard]] Status commit_resize();

    /// Blocks. Gives everything back; after a failure, another call goes on.
    [[nodiscard]] Status try_close();
    /// Calls try_close() twice at most. What fails twice is left behind.
    void close() noexcept;
    void abandon() noexcept;
    /// @}

private:
    /// Physical memory for chunk_bytes_ of the range.
    struct Chunk {
        typename D::Chunk handle{};
        bool is_held = false;
    };

    [[nodiscard]] static std::uint64_t slots_for(std::uint64_t bytes, std::uint64_t slot_bytes) noexcept {
        return (std::max)(bytes + slot_bytes - 1, slot_bytes) / slot_bytes;
    }
    [[nodiscard]] static std::uint64_t slots_for(std::span<const std::uint64_t> storages, std::uint64_t slot_bytes) {
        std::uint64_t sum = 0;
        for (const std::uint64_t bytes : storages) { sum += slots_for(bytes, slot_bytes); }
        return sum;
    }
    [[nodiscard]] std::uint64_t chunk_bytes(const D& device, const Requirements& requirements) const noexcept {
        const std::uint64_t slot = slot_bytes(requirements);
        const std::uint64_t granularity = device.chunk_granularity();
        return slot != 0 && slot % granularity == 0 ? slot : granularity;
    }
    [[nodiscard]] std::size_t slot_of(const void* at) const noexcept {
        const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - first_slot_);
        return static_cast<std::size_t>(offset / slot_bytes_);
    }
    [[nodiscard]] std::byte* address(std::size_t chunk) const noexcept { return first_slot_ + chunk * chunk_bytes_; }
    [[nodiscard]] Status give_back(std::size_t chunk);
    /// Maps every wanted chunk, or none.
    [[nodiscard]] Status take(const std::vector<bool>& wanted);

    Config config_;
    D* device_ = nullptr;    // the caller's; null: not open
    void* range_ = nullptr;  // the address range; null: no storage is streamed
    std::uint64_t range_bytes_ = 0;
    std::byte* first_slot_ = nullptr;
    std::uint64_t slot_bytes_ = 0;  // 0: not open yet
    std::uint64_t chunk_bytes_ = 0;
    SlotTable slots_;
    std::vector<Chunk> chunks_;  // in the order of addresses
    std::uint64_t held_chunks_ = 0;
};

template <VirtualMemoryDevice D>
Status Slab<D>::open(D& device, const Requirements& requirements, std::uint64_t cap_bytes) {
    slot_bytes_ = slot_bytes(requirements);
    chunk_bytes_ = chunk_bytes(device, requirements);
    if (slot_bytes_ == 0 || requirements.storages.empty()) {
        device_ = &device;
        return {};
    }
    // A range begins at a multiple of the granularity.
    const std::uint64_t align = requirements.largest_alignment_bytes;
    const std::uint64_t slots = slots_for(requirements.storages, slot_bytes_);
    range_bytes_ = round_up(slots * slot_bytes_, chunk_bytes_) + (align > device.chunk_granularity() ? align : 0);
    range_bytes_ = round_up(range_bytes_, device.chunk_granularity());
    auto range = device.reserve(range_bytes_);
    if (!range) { return range.error(); }
    device_ = &device;
    range_ = *range;
    first_slot_ = reinterpret_cast<std::byte*>(
        round_up(reinterpret_cast<std::uintptr_t>(range_), (std::max)(align, std::uint64_t{1})));
    slots_.open(static_cast<std::size_t>(slots), slot_bytes_, chunk_bytes_, slots > requirements.storages.size());
    chunks_.assign(slots_.chunks(), {});
    auto opened = resize(cap_bytes, {});
    if (opened) { opened = commit_resize(); }
    if (!opened) { static_cast<void>(try_close().has_value()); }
    return opened;
}

template <VirtualMemoryDevice D>
Status Slab<D>::resize(std::uint64_t cap_bytes, std::span<const Place> allocated) {
    if (!slots_.is_open()) { return {}; }
    std::vector<std::size_t> fixed;
    for (const Place& place : allocated) {
        if (place.is_fixed) { fixed.push_back(slot_of(place.at)); }
    }
    slots_.begin_resize(static_cast<std::size_t>(cap_bytes / chunk_bytes_), fixed);
    return {};
}

template <VirtualMemoryDevice D>
Status Slab<D>::commit_resize() {
    if (!slots_.is_open()) { return {}; }
    const std::vector<bool> wanted = slots_.end_resize();
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        if (wanted[chunk] || !chunks_[chunk].is_held) { continue; }
        if (auto done = give_back(chunk); !done) { return done; }
    }
    auto taken = take(wanted);
    slots_.list_free();
    return taken;
}

template <VirtualMemoryDevice D>
Status Slab<D>::try_close() {
    if (device_ != nullptr && range_ != nullptr) {
        for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
            if (!chunks_[chunk].is_held) { continue; }
            if (auto given = give_back(chunk); !given) { return given; }
        }
        if (auto released = device_->release(range_, range_bytes_); !released) { return released; }
    }
    abandon();
    return {};
}

template <VirtualMemoryDevice D>
void Slab<D>::close() noexcept {
    if (device_ != nullptr && range_ != nullptr) {
        for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
            if (!chunks_[chunk].is_held || give_back(chunk)) { continue; }
            static_cast<void>(give_back(chunk).has_value());
        }
        if (!device_->release(range_, range_bytes_)) {
            static_cast<void>(device_->release(range_, range_bytes_).has_value());
        }
    }
    abandon();
}

template <VirtualMemoryDevice D>
void Slab<D>::abandon() noexcept {
    device_ = nullptr;
    range_ = nullptr;
    held_chunks_ = 0;
    slots_ = {};
    chunks_.clear();
}

template <VirtualMemoryDevice D>
Status Slab<D>::give_back(std::size_t chunk) {
    if (slots_.is_mapped(chunk)) {
        if (auto done = device_->unmap(address(chunk), chunk_bytes_); !done) { return done; }
        slots_.set_mapped(chunk, false);
    }
    if (auto done = device_->destroy_chunk(chunks_[chunk].handle); !done) { return done; }
    chunks_[chunk].is_held = false;
    --held_chunks_;
    return {};
}

template <VirtualMemoryDevice D>
Status Slab<D>::take(const std::vector<bool>& wanted) {
    std::vector<Mapping<typename D::Chunk>> mappings;
    std::vector<std::size_t> created;
    Status status;
    for (std::size_t chunk = 0; chunk < chunks_.size() && status; ++chunk) {
        if (!wanted[chunk] || slots_.is_mapped(chunk)) { continue; }
        if (!chunks_[chunk].is_held) {
            auto handle = device_->create_chunk(chunk_bytes_);
            if (!handle) {
                status = handle.error();
                break;
            }
            chunks_[chunk] = {*handle, true};
            created.push_back(chunk);
            ++held_chunks_;
        }
        mappings.push_back({address(chunk), chunks_[chunk].handle});
    }
    if (status && !mappings.empty()) { status = device_->map(mappings, chunk_bytes_); }
    if (!status) {
        for (const std::size_t chunk : created) { static_cast<void>(give_back(chunk).has_value()); }
        return status;
    }
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        if (wanted[chunk]) { slots_.set_mapped(chunk, true); }
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::pool
