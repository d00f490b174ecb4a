// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Equal slots of pinned memory, each with a flag that says how often it was filled. A slot is free, or taken for one generation;
/// free slots are taken in the order in which they were given back, which is the order in which their copies leave them.
/// One thread takes slots and gives them back; events are handed out and taken back in any thread.
template <FlagDevice D>
class StagingRing {
public:
    /// A slot that was free.
    struct Taken {
        std::uint32_t slot = 0;
        std::uint32_t generation = 0;  ///< the flag's value once the slot is full; counts from 1
        std::optional<typename D::Event>
            last_copy{};  ///< the copy that must be over before the slot is written; the taker's now
    };

    explicit StagingRing(D& device) noexcept : device_{device} {}
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;
    ~StagingRing() { close(); }

    /// Takes `slots` slots of `stride_bytes` bytes from the device. May block.
    [[nodiscard]] Status open(std::uint64_t slots, std::uint64_t stride_bytes) {
        auto memory = device_.allocate_host(slots * stride_bytes);
        if (!memory) { return memory.error().in("a ring of " + std::to_string(slots) + " slots"); }
        memory_ = static_cast<std::byte*>(*memory);
        stride_bytes_ = stride_bytes;
        slots_ = std::vector<Slot>(static_cast<std::size_t>(slots));
        free_.resize(slots_.size());
        std::iota(free_.begin(), free_.end(), std::uint32_t{0});
        free_count_ = slots_.size();
        for (Slot& slot : slots_) {
            auto flag = device_.create_flag();
            if (!flag) { return flag.error(); }
            slot.flag = *flag;
        }
        return {};
    }
    /// Gives everything back. Nothing uses the ring any more: neither the device nor another thread.
    void close() noexcept {
        for (const auto& event : free_events_) { static_cast<void>(device_.destroy_event(event).has_value()); }
        for (const Slot& slot : slots_) {
            if (slot.last_copy) { static_cast<void>(device_.destroy_event(*slot.last_copy).has_value()); }
            if (slot.flag) { static_cast<void>(device_.destroy_flag(*slot.flag).has_value()); }
        }
        if (memory_ != nullptr) { static_cast<void>(device_.deallocate_host(memory_).has_value()); }
        abandon();
    }
    /// Leaves everything to the device, which may still use it.
    void abandon() noexcept {
        free_events_.clear();
        slots_.clear();
        memory_ = nullptr;
    }

    [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
    [[nodiscard]] std::size_t free_count() const noexcept { return free_count_; }
    [[nodiscard]] std::byte* memory(std::uint32_t slot) const noexcept { return memory_ + slot * stride_bytes_; }
    [[nodiscard]] typename D::Flag flag(std::uint32_t slot) const noexcept { return *slots_[slot].flag; }

    /// Takes the slot that has been free for longest. Precondition: one is free.
    [[nodiscard]] Taken take() {
        RESIDENCY_ASSERT(free_count_ > 0, "take a slot only while one is free");
        const std::uint32_t number = free_[first_free_];
        first_free_ = (first_free_ + 1) % free_.size();
        --free_count_;
        Slot& slot = slots_[number];
        return {number, ++slot.generation, std::exchange(slot.last_copy, std::nullopt)};
    }
    /// Gives a slot back that nothing copies from.
    void give_back(std::uint32_t slot) noexcept {
        free_[(first_free_ + free_count_) % free_.size()] = slot;
        ++free_count_;
    }
    /// Gives a slot back that is copied from until `last_copy`, an event of take_event().
    void give_back(std::uint32_t slot, typename D::Event last_copy) noexcept {
        slots_[slot].last_copy = last_copy;
        give_back(slot);
    }

    /// An event for a copy out of a slot. Any thread.
    [[nodiscard]] Result<typename D::Event> take_event() {
        {
            const std::lock_guard lock{events_mutex_};
            if (!free_events_.empty()) {
                const auto event = free_events_.back();
                free_events_.pop_back();
                return event;
            }
        }
        return device_.create_event(Timing::off);
    }
    /// An event that nothing waits for any more. Any thread.
    void give_back_event(typename D::Event event) {
        const std::lock_guard lock{events_mutex_};
        free_events_.push_back(event);
    }

private:
    struct Slot {
        std::optional<typename D::Flag> flag;
        std::uint32_t generation = 0;                // taken last
        std::optional<typename D::Event> last_copy;  // while free
    };

    D& device_;
    std::byte* memory_ = nullptr;  // pinned; owned
    std::uint64_t stride_bytes_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;  // a ring of slot numbers, free for longest first
    std::size_t first_free_ = 0, free_count_ = 0;

    std::mutex events_mutex_;
    std::vector<typename D::Event> free_events_;  // owned; under events_mutex_
};

}}}  // namespace residency::RESIDENCY_ABI::transport
