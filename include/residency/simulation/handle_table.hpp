// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables of the simulated device: handles, names, objects that are used again.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A name for an object of one simulated device. A default one names nothing. Tag keeps the types apart.
template <class Tag>
struct Handle {
    std::uint32_t index = 0;       ///< of its place in the table, from 1
    std::uint32_t generation = 0;  ///< how many objects had that place before
    const void* owner = nullptr;   ///< the device that made it
    /// Compares all members.
    friend bool operator==(const Handle&, const Handle&) = default;
};

// What the handles of a SimulatedDevice name.
struct EventTag;
struct PoolTag;
struct ChunkTag;
struct GraphTag;
struct FlagTag;

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

/// Gives names dense numbers. Equal names have equal numbers; a number names the same text for the life of the table.
class NameTable {
public:
    /// The number of a name, which is added if it is new.
    std::uint32_t number(std::string_view name) {
        if (const auto found = numbers_.find(name); found != numbers_.end()) { return found->second; }
        const auto number = static_cast<std::uint32_t>(names_.size());
        names_.emplace_back(name);
        numbers_.emplace(names_.back(), number);
        return number;
    }
    [[nodiscard]] const std::string& name(std::uint32_t number) const noexcept { return names_[number]; }

private:
    std::deque<std::string> names_;  // by number
    std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

/// Objects that are used again instead of destroyed, so that their buffers stay. An object is in use or free; its address never
/// changes.
template <class T>
class ObjectPool {
public:
    /// An object that is blank: new, or as give() got it.
    [[nodiscard]] T* take() {
        if (free_.empty()) { return &nodes_.emplace_back(); }
        T* node = free_.back();
        free_.pop_back();
        return node;
    }
    /// Takes back an object that the caller has reset.
    void give(T* node) { free_.push_back(node); }

private:
    std::deque<T> nodes_;
    std::vector<T*> free_;
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
