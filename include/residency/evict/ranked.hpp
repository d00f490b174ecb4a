// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Policies that rank storages by a number: Lfu and Gdsf, and the heap under Gdsf.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the storage with the fewest uses since it was inserted; among equals the least recently used. Forgets the count of a
/// removed storage. The use for which a storage was inserted is its first; a prefetched storage ranks as if it had that use
/// already. O(1): one list for each count that occurs (Shah, Mitra & Matani 2010).
class Lfu {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        const std::size_t storages = context.bytes.size();
        const auto lists = static_cast<std::uint32_t>(storages) + 1;
        members_.attach(storages, lists);
        order_.attach(lists, 2);
        for (std::uint32_t list = 0; list < lists; ++list) { order_.push_back(list, spare); }
        uses_.assign(lists, 0);
        list_of_.assign(storages, 0);
        is_unused_.assign(storages, 0);
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        std::uint32_t list = order_.front();
        if (list == order_.end() || uses_[list] != 1) { list = take_list(1, order_.front()); }
        members_.push_back(index(id), list);
        list_of_[index(id)] = list;
        is_unused_[index(id)] = 1;
    }
    void used(StorageId id, StepIndex) noexcept {
        const std::uint32_t list = list_of_[index(id)];
        if (is_unused_[index(id)] != 0) {
            is_unused_[index(id)] = 0;
            members_.move_back(index(id), list);
            return;
        }
        const std::uint64_t uses = uses_[list] + 1;
        std::uint32_t next = order_.next(list);
        if (next == order_.end() || uses_[next] != uses) { next = take_list(uses, next); }
        members_.move_back(index(id), next);
        list_of_[index(id)] = next;
        give_back_if_empty(list);
    }
    void removed(StorageId id) noexcept {
        members_.unlink(index(id));
        give_back_if_empty(list_of_[index(id)]);
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        for (auto list = order_.front(); list != order_.end(); list = order_.next(list)) {
            for (auto item = members_.front(list); item != members_.end(list); item = members_.next(item)) {
                if (may_leave(StorageId{item})) { return StorageId{item}; }
            }
        }
        return std::nullopt;
    }
    /// @}

private:
    static constexpr std::uint32_t spare = 1;

    [[nodiscard]] std::uint32_t take_list(std::uint64_t uses, std::uint32_t before) noexcept {
        const std::uint32_t list = order_.front(spare);
        order_.unlink(list);
        order_.insert_before(before, list);
        uses_[list] = uses;
        return list;
    }
    void give_back_if_empty(std::uint32_t list) noexcept {
        if (members_.is_empty(list)) {
            order_.unlink(list);
            order_.push_front(list, spare);
        }
    }

    LinkedLists members_;                  // storages by list, the least recently used first
    LinkedLists order_;                    // list 0: the lists in use, by ascending count; list 1: the spare ones
    std::vector<std::uint64_t> uses_;      // by list: the count of its storages
    std::vector<std::uint32_t> list_of_;   // by storage: its list
    std::vector<std::uint8_t> is_unused_;  // by storage: 1 until the first use after the insertion
};
static_assert(EvictionPolicy<Lfu>);

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

/// Greedy dual size frequency (Cherkasova 1998): evicts the storage of the lowest priority, clock + uses · cost / bytes, with cost
/// = 1, which aims at few misses. The clock is the priority of the last victim; uses count since the insertion. Among equals the
/// least recently used storage is evicted. O(log n).
class Gdsf {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        bytes_ = context.bytes;
        heap_.attach(bytes_.size());
        uses_.assign(bytes_.size(), 0);
        is_unused_.assign(bytes_.size(), 0);
        clock_ = 0;
        touches_ = 0;
        named_ = no_storage;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        uses_[index(id)] = 1;
        is_unused_[index(id)] = 1;
        rank(id);
    }
    void used(StorageId id, StepIndex) noexcept {
        if (is_unused_[index(id)] != 0) {
            is_unused_[index(id)] = 0;
        } else {
            ++uses_[index(id)];
        }
        rank(id);
    }
    void removed(StorageId id) noexcept {
        if (id == named_) { clock_ = (std::max)(clock_, heap_.key(id).priority); }
        named_ = no_storage;
        heap_.remove(id);
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        const auto found = heap_.first(may_leave);
        named_ = found.value_or(no_storage);
        return found;
    }
    /// @}

private:
    struct Key {
        double priority = 0;
        std::uint64_t touch = 0;  // the number of its last change
    };
    struct LeavesBefore {
        bool operator()(const Key& a, const Key& b) const noexcept {
            return a.priority != b.priority ? a.priority < b.priority : a.touch < b.touch;
        }
    };

    void rank(StorageId id) noexcept {
        const auto bytes = static_cast<double>(std::max<std::uint64_t>(bytes_[index(id)], 1));
        heap_.put(id, {clock_ + static_cast<double>(uses_[index(id)]) / bytes, touches_++});
    }

    std::span<const std::uint64_t> bytes_;
    RankedHeap<Key, LeavesBefore> heap_;
    std::vector<std::uint64_t> uses_;      // by storage, since its insertion
    std::vector<std::uint8_t> is_unused_;  // by storage: 1 until the first use after the insertion
    double clock_ = 0;                     // the priority of the last victim
    std::uint64_t touches_ = 0;            // changes of priorities
    StorageId named_ = no_storage;         // the last answer of victim()
};
static_assert(EvictionPolicy<Gdsf>);

}}}  // namespace residency::RESIDENCY_ABI::evict
