// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// Equal slots, each as large as the largest streamed storage, in one address range. Nothing fragments and the floor is exact;
/// smaller storages waste the rest of their slot, so it suits storages of one size (layers, experts).
///
/// The range has an address for every streamed storage; memory lies under as many slots as the cap has, the first ones, in pieces of
/// the device's chunk granularity (of a slot, where that is a multiple of it). Another cap takes or gives back pieces at the end; what
/// lies there and is not pinned moves to a slot that stays.
template <VirtualMemoryDevice D>
class Slab {
public:
    using Device = D;
    struct Config {
        /// Slots begin at multiples of this.
        std::uint64_t alignment_bytes = 256;
    };
    static constexpr bool one_range = true;

    Slab() : Slab(Config{}) {}
    explicit Slab(Config config) noexcept : config_{config} {}
    Slab(Slab&& other) noexcept
        : config_{other.config_},
          device_{std::exchange(other.device_, nullptr)},
          range_{other.range_},
          range_bytes_{other.range_bytes_},
          first_{other.first_},
          slot_{other.slot_},
          piece_{other.piece_},
          cap_pieces_{other.cap_pieces_},
          slots_{std::exchange(other.slots_, 0)},
          pieces_{std::move(other.pieces_)},
          used_{std::move(other.used_)},
          free_{std::move(other.free_)},
          next_free_{other.next_free_},
          free_count_{std::exchange(other.free_count_, 0)},
          held_pieces_{std::exchange(other.held_pieces_, 0)},
          in_use_{std::exchange(other.in_use_, 0)},
          pinned_{std::exchange(other.pinned_, 0)},
          places_{std::exchange(other.places_, 0)} {}
    Slab& operator=(Slab&&) = delete;
    ~Slab() { close(); }

    /// Before open(), where the slot is not known yet, the bytes themselves.
    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept { return slot_ == 0 ? bytes : slot_; }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.step.size() * slot_bytes(needs), piece_bytes(device, needs));
    }
    [[nodiscard]] std::uint64_t ceiling_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.storages.size() * slot_bytes(needs), piece_bytes(device, needs));
    }

    [[nodiscard]] Status open(D& device, const Needs& needs, std::uint64_t cap_bytes);
    [[nodiscard]] Result<void*> allocate([[maybe_unused]] std::uint64_t bytes, typename D::Stream);
    /// A slot is reused by copies of the same stream only, which has waited for its last use.
    [[nodiscard]] Status deallocate(void* at, std::uint64_t, typename D::Stream);
    [[nodiscard]] Status recover() { return settle(); }

    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_pieces_ * piece_; }
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return in_use_ * slot_; }

    [[nodiscard]] Status resize(std::uint64_t cap_bytes, std::span<const Place> allocated);
    [[nodiscard]] bool is_over() const noexcept { return in_use_ - pinned_ > places_; }
    [[nodiscard]] bool must_move(const void* at) const noexcept { return slot_of(at) >= slots_; }
    [[nodiscard]] Status reclaim() { return {}; }
    [[nodiscard]] Status settle();

    void close() noexcept;
    void abandon() noexcept;

private:
    struct Piece {
        typename D::Chunk chunk{};
        bool is_held = false;
        bool is_mapped = false;
    };

    [[nodiscard]] std::uint64_t slot_bytes(const Needs& needs) const noexcept {
        return round_up(needs.largest_storage_bytes,
                        (std::max)(config_.alignment_bytes, needs.largest_alignment_bytes));
    }
    [[nodiscard]] std::uint64_t piece_bytes(const D& device, const Needs& needs) const noexcept;
    [[nodiscard]] std::size_t slot_of(const void* at) const noexcept {
        return static_cast<std::size_t>(static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - first_) / slot_);
    }
    /// Of so many first slots.
    [[nodiscard]] std::size_t pieces_of(std::size_t slots) const noexcept {
        return static_cast<std::size_t>((slots * slot_ + piece_ - 1) / piece_);
    }
    [[nodiscard]] bool is_backed(std::size_t slot) const noexcept;
    /// As many first slots as the cap has beside the kept ones behind them.
    void fit(const std::vector<bool>& kept);
    void list_free() noexcept;
    void add_free(std::size_t slot) noexcept;
    [[nodiscard]] std::byte* address(std::size_t piece) const noexcept { return first_ + piece * piece_; }
    [[nodiscard]] Status give_back(std::size_t piece);
    /// All that is wanted and not there, or nothing.
    [[nodiscard]] Status take(const std::vector<bool>& wanted);

    Config config_;
    D* device_ = nullptr;
    void* range_ = nullptr;
    std::uint64_t range_bytes_ = 0;
    std::byte* first_ = nullptr;  // the first slot
    std::uint64_t slot_ = 0;
    std::uint64_t piece_ = 0;
    std::uint64_t cap_pieces_ = 0;
    std::size_t slots_ = 0;  // the first ones, that may be allocated
    std::vector<Piece> pieces_;
    std::vector<bool> used_;  // by slot
    // A ring of slots in the order in which they became free, so that neighbours stay together.
    std::vector<std::size_t> free_;
    std::size_t next_free_ = 0, free_count_ = 0;
    std::uint64_t held_pieces_ = 0;
    std::size_t in_use_ = 0;  // slots
    std::size_t pinned_ = 0;  // of these, in a change
    std::size_t places_ = 0;  // in a change: slots for what is not pinned
};

template <VirtualMemoryDevice D>
Status Slab<D>::open(D& device, const Needs& needs, std::uint64_t cap_bytes) {
    slot_ = slot_bytes(needs);
    piece_ = piece_bytes(device, needs);
    if (slot_ == 0 || needs.storages.empty()) {
        device_ = &device;
        return {};
    }
    // Ranges begin at multiples of the granularity.
    const std::uint64_t align = needs.largest_alignment_bytes;
    range_bytes_ = round_up(needs.storages.size() * slot_, piece_) + (align > device.chunk_granularity() ? align : 0);
    range_bytes_ = round_up(range_bytes_, device.chunk_granularity());
    auto range = device.reserve(range_bytes_);
    if (!range) { return range.error(); }
    device_ = &device;
    range_ = *range;
    first_ = reinterpret_cast<std::byte*>(
        round_up(reinterpret_cast<std::uintptr_t>(range_), (std::max)(align, std::uint64_t{1})));
    used_.assign(needs.storages.size(), false);
    free_.assign(used_.size(), 0);
    pieces_.assign(static_cast<std::size_t>(round_up(needs.storages.size() * slot_, piece_) / piece_), {});
    auto opened = resize(cap_bytes, {});
    if (opened) { opened = settle(); }
    if (!opened) { close(); }
    return opened;
}

template <VirtualMemoryDevice D>
Result<void*> Slab<D>::allocate([[maybe_unused]] std::uint64_t bytes, typename D::Stream) {
    RESIDENCY_ASSERT(bytes <= slot_, "a storage larger than the largest that was announced");
    if (free_count_ == 0) { return nullptr; }
    const std::size_t slot = free_[next_free_];
    next_free_ = next_free_ + 1 == free_.size() ? 0 : next_free_ + 1;
    --free_count_;
    used_[slot] = true;
    ++in_use_;
    return static_cast<void*>(first_ + slot * slot_);
}

template <VirtualMemoryDevice D>
Status Slab<D>::deallocate(void* at, std::uint64_t, typename D::Stream) {
    const std::size_t slot = slot_of(at);
    used_[slot] = false;
    --in_use_;
    if (slot < slots_) { add_free(slot); }
    return {};
}

template <VirtualMemoryDevice D>
Status Slab<D>::resize(std::uint64_t cap_bytes, std::span<const Place> allocated) {
    if (used_.empty()) { return {}; }
    cap_pieces_ = cap_bytes / piece_;
    std::vector<bool> kept(used_.size(), false);
    pinned_ = 0;
    for (const Place& place : allocated) {
        if (!place.is_pinned) { continue; }
        kept[slot_of(place.at)] = true;
        ++pinned_;
    }
    fit(kept);
    places_ = 0;
    for (std::size_t slot = 0; slot < slots_; ++slot) { places_ += is_backed(slot) && !kept[slot] ? 1U : 0U; }
    return {};
}

template <VirtualMemoryDevice D>
Status Slab<D>::settle() {
    if (used_.empty()) { return {}; }
    fit(used_);
    pinned_ = 0;
    places_ = used_.size();
    std::vector<bool> wanted(pieces_.size(), false);
    const auto want = [&](std::size_t begin, std::size_t end) {
        for (std::size_t piece = begin; piece < end; ++piece) { wanted[piece] = true; }
    };
    want(0, pieces_of(slots_));
    for (std::size_t slot = slots_; slot < used_.size(); ++slot) {
        if (used_[slot]) { want(slot * slot_ / piece_, pieces_of(slot + 1)); }
    }
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        if (wanted[piece] || !pieces_[piece].is_held) { continue; }
        if (auto done = give_back(piece); !done) { return done; }
    }
    auto taken = take(wanted);
    list_free();
    return taken;
}

template <VirtualMemoryDevice D>
void Slab<D>::close() noexcept {
    if (device_ != nullptr && range_ != nullptr) {
        for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
            if (pieces_[piece].is_held) { static_cast<void>(give_back(piece).has_value()); }
        }
        static_cast<void>(device_->release(range_, range_bytes_).has_value());
    }
    abandon();
}

template <VirtualMemoryDevice D>
void Slab<D>::abandon() noexcept {
    device_ = nullptr;
    range_ = nullptr;
    held_pieces_ = in_use_ = pinned_ = places_ = slots_ = free_count_ = 0;
    pieces_.clear();
    used_.clear();
    free_.clear();
}

template <VirtualMemoryDevice D>
std::uint64_t Slab<D>::piece_bytes(const D& device, const Needs& needs) const noexcept {
    const std::uint64_t slot = slot_bytes(needs);
    const std::uint64_t granularity = device.chunk_granularity();
    return slot != 0 && slot % granularity == 0 ? slot : granularity;
}

template <VirtualMemoryDevice D>
bool Slab<D>::is_backed(std::size_t slot) const noexcept {
    for (std::size_t piece = slot * slot_ / piece_; piece < pieces_of(slot + 1); ++piece) {
        if (!pieces_[piece].is_mapped) { return false; }
    }
    return true;
}

template <VirtualMemoryDevice D>
void Slab<D>::fit(const std::vector<bool>& kept) {
    std::vector<std::size_t> behind(pieces_.size() + 1, 0);  // by piece: those of kept slots from there on
    for (std::size_t slot = 0; slot < kept.size(); ++slot) {
        if (!kept[slot]) { continue; }
        for (std::size_t piece = slot * slot_ / piece_; piece < pieces_of(slot + 1); ++piece) { behind[piece] = 1; }
    }
    for (std::size_t piece = pieces_.size(); piece-- > 0;) { behind[piece] += behind[piece + 1]; }
    std::size_t slots = used_.size();
    while (slots > 0 && pieces_of(slots) + behind[pieces_of(slots)] > cap_pieces_) { --slots; }
    slots_ = slots;
    list_free();
}

template <VirtualMemoryDevice D>
void Slab<D>::list_free() noexcept {
    next_free_ = free_count_ = 0;
    for (std::size_t slot = 0; slot < slots_; ++slot) {
        if (!used_[slot] && is_backed(slot)) { add_free(slot); }
    }
}

template <VirtualMemoryDevice D>
void Slab<D>::add_free(std::size_t slot) noexcept {
    const std::size_t end = next_free_ + free_count_;
    free_[end < free_.size() ? end : end - free_.size()] = slot;
    ++free_count_;
}

template <VirtualMemoryDevice D>
Status Slab<D>::give_back(std::size_t piece) {
    Piece& of = pieces_[piece];
    if (of.is_mapped) {
        if (auto done = device_->unmap(address(piece), piece_); !done) { return done; }
        of.is_mapped = false;
    }
    if (auto done = device_->destroy_chunk(of.chunk); !done) { return done; }
    of.is_held = false;
    --held_pieces_;
    return {};
}

template <VirtualMemoryDevice D>
Status Slab<D>::take(const std::vector<bool>& wanted) {
    std::vector<Mapping<typename D::Chunk>> mappings;
    std::vector<std::size_t> taken;
    Status status;
    for (std::size_t piece = 0; piece < pieces_.size() && status; ++piece) {
        if (!wanted[piece] || pieces_[piece].is_mapped) { continue; }
        if (!pieces_[piece].is_held) {
            auto chunk = device_->create_chunk(piece_);
            if (!chunk) {
                status = chunk.error();
                break;
            }
            pieces_[piece] = {*chunk, true, false};
            taken.push_back(piece);
            ++held_pieces_;
        }
        mappings.push_back({address(piece), pieces_[piece].chunk});
    }
    if (status && !mappings.empty()) { status = device_->map(mappings, piece_); }
    if (!status) {
        for (const std::size_t piece : taken) { static_cast<void>(give_back(piece).has_value()); }
        return status;
    }
    for (const auto& mapping : mappings) {
        pieces_[static_cast<std::size_t>(static_cast<std::byte*>(mapping.at) - first_) / piece_].is_mapped = true;
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::pool
