// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// A heap of storages, the one to evict first at the root, with the place of each. `LeavesBefore(a, b)` is a strict total order of
/// keys. Every change is O(log n); nothing is allocated after attach().
template <class Key, class LeavesBefore>
class RankedHeap {
public:
    void attach(std::size_t storages) {
        entries_.clear();
        entries_.reserve(storages);
        position_.assign(storages, none);
    }

    [[nodiscard]] bool contains(StorageId id) const noexcept { return position_[index(id)] != none; }
    /// Precondition: contains(id).
    [[nodiscard]] const Key& key(StorageId id) const noexcept { return entries_[position_[index(id)]].key; }

    /// Adds a storage, or changes its key.
    void put(StorageId id, const Key& key) noexcept {
        std::uint32_t& at = position_[index(id)];
        if (at == none) {
            at = static_cast<std::uint32_t>(entries_.size());
            entries_.push_back({key, id});
            rise(at);
        } else {
            const bool rises = LeavesBefore{}(key, entries_[at].key);
            entries_[at].key = key;
            rises ? rise(at) : sink(at);
        }
    }
    void remove(StorageId id) noexcept {
        const std::uint32_t at = position_[index(id)];
        RESIDENCY_ASSERT(at != none, "remove only a storage that was inserted");
        position_[index(id)] = none;
        const Entry last = entries_.back();
        entries_.pop_back();
        if (at == entries_.size()) { return; }
        const bool rises = LeavesBefore{}(last.key, entries_[at].key);
        place(at, last);
        rises ? rise(at) : sink(at);
    }

    /// The storage to evict first among those that may leave. Looks at no more than `arity` storages for each one that it skips.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> first(MayLeave& may_leave) const noexcept {
        std::optional<StorageId> found;
        const Key* found_key = nullptr;
        traverse([&](StorageId id, const Key& key) {
            if (found && !LeavesBefore{}(key, *found_key)) { return false; }
            if (!may_leave(id)) { return true; }
            found = id;
            found_key = &key;
            return false;
        });
        return found;
    }
    /// Visits the root and, below every storage for which visit(id, key) returns true, its children. Children are evicted after
    /// their parent.
    template <class Visit>
    void traverse(Visit visit) const noexcept {
        const std::size_t count = entries_.size();
        for (std::size_t at = 0; at < count;) {
            if (visit(entries_[at].id, entries_[at].key) && at * arity + 1 < count) {
                at = at * arity + 1;
                continue;
            }
            while (at != 0 && (at % arity == 0 || at + 1 == count)) { at = (at - 1) / arity; }
            if (at == 0) { break; }
            ++at;
        }
    }

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    static constexpr std::size_t arity = 4;
    struct Entry {
        Key key;
        StorageId id;
    };

    void place(std::size_t at, const Entry& entry) noexcept {
        entries_[at] = entry;
        position_[index(entry.id)] = static_cast<std::uint32_t>(at);
    }
    void rise(std::size_t at) noexcept {
        const Entry entry = entries_[at];
        for (; at != 0; at = (at - 1) / arity) {
            const std::size_t parent = (at - 1) / arity;
            if (!LeavesBefore{}(entry.key, entries_[parent].key)) { break; }
            place(at, entries_[parent]);
        }
        place(at, entry);
    }
    void sink(std::size_t at) noexcept {
        const Entry entry = entries_[at];
        for (;;) {
            const std::size_t first = at * arity + 1;
            if (first >= entries_.size()) { break; }
            std::size_t best = first;
            for (std::size_t child = first + 1; child < first + arity && child < entries_.size(); ++child) {
                if (LeavesBefore{}(entries_[child].key, entries_[best].key)) { best = child; }
            }
            if (!LeavesBefore{}(entries_[best].key, entry.key)) { break; }
            place(at, entries_[best]);
            at = best;
        }
        place(at, entry);
    }

    std::vector<Entry> entries_;           // the heap
    std::vector<std::uint32_t> position_;  // by storage: its place in entries_, or none
};

}}}  // namespace residency::RESIDENCY_ABI::evict
