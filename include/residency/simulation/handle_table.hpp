// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "residency/config.hpp"
#include "residency/simulation/handle.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// The objects behind handles. A handle finds its object exactly as long as that lives: a place is used again under another
/// generation, and another owner's handle finds nothing. Addresses of objects never change.
template <class T, class Tag>
class HandleTable {
public:
    /// `owner`: the device whose handles these are.
    explicit HandleTable(const void* owner) noexcept : owner_{owner} {}

    [[nodiscard]] Handle<Tag> add() {
        if (free_.empty()) {
            places_.emplace_back();
            free_.push_back(static_cast<std::uint32_t>(places_.size()));
        }
        const std::uint32_t index = free_.back();
        free_.pop_back();
        Place& place = places_[index - 1];
        place.alive = true;
        return {index, place.generation, owner_};
    }
    /// Null: the object does not exist, no longer exists, or is another owner's.
    [[nodiscard]] T* find(Handle<Tag> handle) noexcept {
        if (handle.owner != owner_ || handle.index == 0 || handle.index > places_.size()) { return nullptr; }
        Place& place = places_[handle.index - 1];
        return place.alive && place.generation == handle.generation ? &place.value : nullptr;
    }
    void remove(Handle<Tag> handle) {
        Place& place = places_[handle.index - 1];
        place.value = T{};
        place.alive = false;
        ++place.generation;
        free_.push_back(handle.index);
    }
    [[nodiscard]] const T* find(Handle<Tag> handle) const noexcept {
        return const_cast<HandleTable*>(this)->find(handle);
    }
    template <class F>
    void for_each(F&& f) const {
        for (const Place& place : places_) {
            if (place.alive) { f(place.value); }
        }
    }
    template <class F>
    void for_each_handle(F&& f) {
        for (std::uint32_t i = 0; i < places_.size(); ++i) {
            if (places_[i].alive) { f(Handle<Tag>{i + 1, places_[i].generation, owner_}, places_[i].value); }
        }
    }

private:
    struct Place {
        T value{};
        std::uint32_t generation = 1;
        bool alive = false;
    };
    const void* owner_;
    std::deque<Place> places_;
    std::vector<std::uint32_t> free_;  // indices, from 1
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
