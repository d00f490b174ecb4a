// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A name for something of the simulated device; a default one names nothing. Tag keeps the types apart.
template <class Tag>
struct Handle {
    std::uint32_t index = 0;
    std::uint32_t generation = 0;
    friend bool operator==(const Handle&, const Handle&) = default;
};

/// Objects behind handles. A destroyed one's place is used again under another generation, so that an old handle is
/// recognised. Addresses are stable.
template <class T, class Tag>
class Slots {
public:
    [[nodiscard]] Handle<Tag> add() {
        if (free_.empty()) {
            slots_.emplace_back();
            free_.push_back(static_cast<std::uint32_t>(slots_.size()));
        }
        const std::uint32_t index = free_.back();
        free_.pop_back();
        Slot& slot = slots_[index - 1];
        slot.alive = true;
        return {index, slot.generation};
    }
    /// Null for a handle of something that does not exist, or no longer does.
    [[nodiscard]] T* find(Handle<Tag> handle) noexcept {
        if (handle.index == 0 || handle.index > slots_.size()) { return nullptr; }
        Slot& slot = slots_[handle.index - 1];
        return slot.alive && slot.generation == handle.generation ? &slot.value : nullptr;
    }
    void remove(Handle<Tag> handle) {
        Slot& slot = slots_[handle.index - 1];
        slot.value = T{};
        slot.alive = false;
        ++slot.generation;
        free_.push_back(handle.index);
    }
    [[nodiscard]] const T* find(Handle<Tag> handle) const noexcept { return const_cast<Slots*>(this)->find(handle); }
    template <class F>
    void for_each(F&& f) const {
        for (const Slot& slot : slots_) {
            if (slot.alive) { f(slot.value); }
        }
    }
    template <class F>
    void for_each_handle(F&& f) {
        for (std::uint32_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].alive) { f(Handle<Tag>{i + 1, slots_[i].generation}, slots_[i].value); }
        }
    }

private:
    struct Slot {
        T value{};
        std::uint32_t generation = 1;
        bool alive = false;
    };
    std::deque<Slot> slots_;
    std::vector<std::uint32_t> free_;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
