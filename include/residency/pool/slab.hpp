// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/pool/memory_pool.hpp"

namespace residency::inline RESIDENCY_ABI::pool {

/// Equal slots, each as large as the largest streamed storage, in one allocation. Nothing fragments and the floor is exact;
/// smaller storages waste the rest of their slot, so it suits storages of one size (layers, experts).
template <Device D>
class Slab {
public:
    using Device = D;
    struct Config {
        /// Slots begin at multiples of this.
        std::uint64_t alignment_bytes = 256;
    };
    static constexpr bool fixed_addresses = false;

    Slab() : Slab(Config{}) {}
    explicit Slab(Config config) noexcept : config_{config} {}
    Slab(Slab&& other) noexcept
        : config_{other.config_},
          device_{std::exchange(other.device_, nullptr)},
          base_{other.base_},
          slot_{other.slot_},
          held_{std::exchange(other.held_, 0)},
          free_{std::move(other.free_)},
          slots_{other.slots_} {}
    Slab& operator=(Slab&&) = delete;
    ~Slab() { close(); }

    /// Before open(), where the slot is not known yet, the bytes themselves.
    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept { return slot_ == 0 ? bytes : slot_; }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.step_storages * slot_bytes(needs) + padding(needs), device.allocation_granularity());
    }
    [[nodiscard]] std::uint64_t ceiling_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.storages * slot_bytes(needs) + padding(needs), device.allocation_granularity());
    }

    [[nodiscard]] Status open(D& device, const Needs& needs, std::uint64_t cap_bytes) {
        const std::uint64_t slot = slot_bytes(needs);
        const std::uint64_t cap = round_down(cap_bytes, device.allocation_granularity());
        const std::uint64_t slots =
            slot == 0 || cap < padding(needs) ? 0 : (std::min)(needs.storages, (cap - padding(needs)) / slot);
        const std::uint64_t bytes = slots * slot + padding(needs);
        void* base = nullptr;
        if (slots > 0) {
            auto at = device.allocate(bytes);
            if (!at) { return at.error(); }
            base = *at;
        }
        device_ = &device;
        base_ = static_cast<std::byte*>(base);
        slot_ = slot;
        slots_ = slots;
        held_ = slots == 0 ? 0 : round_up(bytes, device.allocation_granularity());
        auto* const first = reinterpret_cast<std::byte*>(round_up(
            reinterpret_cast<std::uintptr_t>(base), (std::max)(needs.largest_alignment_bytes, std::uint64_t{1})));
        free_.resize(static_cast<std::size_t>(slots));
        for (std::size_t i = 0; i < free_.size(); ++i) { free_[i] = first + (slots - 1 - i) * slot; }
        return {};
    }
    [[nodiscard]] Result<void*> allocate([[maybe_unused]] std::uint64_t bytes, typename D::Stream) {
        RESIDENCY_ASSERT(bytes <= slot_, "a storage larger than the largest that was announced");
        if (free_.empty()) { return nullptr; }
        void* at = free_.back();
        free_.pop_back();
        return at;
    }
    /// A slot is reused by copies of the same stream only, which has waited for its last use.
    [[nodiscard]] Status deallocate(void* at, std::uint64_t, typename D::Stream) {
        free_.push_back(static_cast<std::byte*>(at));
        return {};
    }
    [[nodiscard]] Status recover() { return {}; }

    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_; }
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return (slots_ - free_.size()) * slot_; }

    void close() noexcept {
        if (device_ != nullptr && base_ != nullptr) { static_cast<void>(device_->deallocate(base_).has_value()); }
        abandon();
    }
    void abandon() noexcept {
        device_ = nullptr;
        base_ = nullptr;
        held_ = slots_ = 0;
        free_.clear();
    }

private:
    [[nodiscard]] std::uint64_t slot_bytes(const Needs& needs) const noexcept {
        return round_up(needs.largest_storage_bytes,
                        (std::max)(config_.alignment_bytes, needs.largest_alignment_bytes));
    }
    /// What may be lost before the first slot: a device's allocations begin at multiples of 256 bytes.
    [[nodiscard]] static std::uint64_t padding(const Needs& needs) noexcept {
        return needs.largest_alignment_bytes > 256 ? needs.largest_alignment_bytes - 256 : 0;
    }

    Config config_;
    D* device_ = nullptr;
    std::byte* base_ = nullptr;
    std::uint64_t slot_ = 0;
    std::uint64_t held_ = 0;
    std::vector<std::byte*> free_;
    std::uint64_t slots_ = 0;
};

}  // namespace residency::inline RESIDENCY_ABI::pool
