// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Policies that keep lists: Fifo, Lru, Sieve and S3Fifo, and the lists under them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Doubly linked lists over the items 0 … items − 1, each item in one list or in none. Two 32-bit links per item; every operation
/// is O(1); nothing is allocated after attach(). The end of a list stands before its front and after its back.
class LinkedLists {
public:
    using Item = std::uint32_t;

    void attach(std::size_t items, std::uint32_t lists = 1) {
        RESIDENCY_ASSERT(items < none - std::size_t{lists}, "use fewer storages");
        items_ = static_cast<std::uint32_t>(items);
        nodes_.assign(items + lists, Node{none, none});
        for (std::uint32_t list = 0; list < lists; ++list) { nodes_[end(list)] = {end(list), end(list)}; }
    }

    [[nodiscard]] Item end(std::uint32_t list = 0) const noexcept { return items_ + list; }
    [[nodiscard]] Item front(std::uint32_t list = 0) const noexcept { return nodes_[end(list)].next; }
    [[nodiscard]] Item back(std::uint32_t list = 0) const noexcept { return nodes_[end(list)].previous; }
    [[nodiscard]] Item next(Item item) const noexcept { return nodes_[item].next; }
    [[nodiscard]] Item previous(Item item) const noexcept { return nodes_[item].previous; }
    [[nodiscard]] bool is_empty(std::uint32_t list = 0) const noexcept { return front(list) == end(list); }
    [[nodiscard]] bool is_linked(Item item) const noexcept { return nodes_[item].next != none; }
    /// The storage that is nearest to the back of a list and may leave.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> last_that(MayLeave& may_leave, std::uint32_t list = 0) const noexcept {
        for (Item item = back(list); item != end(list); item = previous(item)) {
            if (may_leave(StorageId{item})) { return StorageId{item}; }
        }
        return std::nullopt;
    }

    /// Inserts an item before another one or before an end. Precondition: it is in no list.
    void insert_before(Item at, Item item) noexcept {
        RESIDENCY_ASSERT(!is_linked(item), "insert a storage only once");
        const Item previous = nodes_[at].previous;
        nodes_[item] = {at, previous};
        nodes_[previous].next = item;
        nodes_[at].previous = item;
    }
    void push_front(Item item, std::uint32_t list = 0) noexcept { insert_before(front(list), item); }
    void push_back(Item item, std::uint32_t list = 0) noexcept { insert_before(end(list), item); }
    void unlink(Item item) noexcept {
        RESIDENCY_ASSERT(is_linked(item), "remove only a storage that was inserted");
        const Node node = nodes_[item];
        nodes_[node.previous].next = node.next;
        nodes_[node.next].previous = node.previous;
        nodes_[item] = {none, none};
    }
    void move_front(Item item, std::uint32_t list = 0) noexcept {
        unlink(item);
        push_front(item, list);
    }
    void move_back(Item item, std::uint32_t list = 0) noexcept {
        unlink(item);
        push_back(item, list);
    }

private:
    static constexpr Item none = UINT32_MAX;
    struct Node {
        Item next, previous;
    };

    std::uint32_t items_ = 0;
    std::vector<Node> nodes_;  // the items, then the ends
};

/// Evicts the storage that has been on the device longest.
class Fifo {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { list_.push_front(index(id)); }
    void used(StorageId, StepIndex) noexcept {}
    void removed(StorageId id) noexcept { list_.unlink(index(id)); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        return list_.last_that(may_leave);
    }
    /// @}

private:
    LinkedLists list_;  // storages on the device, the last inserted first
};
static_assert(EvictionPolicy<Fifo>);

/// Evicts the least recently used storage. A cyclic order that does not fit has no hits.
class Lru {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { list_.push_front(index(id)); }
    void used(StorageId id, StepIndex) noexcept {
        if (list_.front() != index(id)) { list_.move_front(index(id)); }
    }
    void removed(StorageId id) noexcept { list_.unlink(index(id)); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        return list_.last_that(may_leave);
    }
    /// @}

private:
    LinkedLists list_;  // storages on the device, the most recently used first
};
static_assert(EvictionPolicy<Lru>);

/// SIEVE (Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024), with sizes: a hand goes from the oldest to the newest storage. It
/// spares a storage once that was used again since its insertion or since the hand was there, and evicts the first other one. A hit
/// moves nothing. The hand skips what may not leave; that keeps its mark.
class Sieve {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        marks_.assign(context.bytes.size(), unused);
        hand_ = list_.end();
        count_ = 0;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        list_.push_front(index(id));
        marks_[index(id)] = unused;
        ++count_;
    }
    void used(StorageId id, StepIndex) noexcept {
        std::uint8_t& mark = marks_[index(id)];
        mark = mark == unused ? unmarked : visited;
    }
    void removed(StorageId id) noexcept {
        if (hand_ == index(id)) { hand_ = list_.previous(hand_); }
        list_.unlink(index(id));
        --count_;
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        auto item = hand_;
        for (std::uint64_t looked_at = 0; looked_at < 2 * count_; ++looked_at) {
            if (item == list_.end()) { item = list_.back(); }
            if (may_leave(StorageId{item})) {
                if (marks_[item] != visited) {
                    hand_ = item;
                    return StorageId{item};
                }
                marks_[item] = unmarked;
            }
            item = list_.previous(item);
        }
        return std::nullopt;
    }
    /// @}

private:
    static constexpr std::uint8_t unused = 0;  // until the first use after the insertion
    static constexpr std::uint8_t unmarked = 1;
    static constexpr std::uint8_t visited = 2;

    LinkedLists list_;                 // storages on the device, the last inserted first
    std::vector<std::uint8_t> marks_;  // by storage
    LinkedLists::Item hand_ = 0;       // the storage to look at next; the end: the oldest
    std::uint64_t count_ = 0;          // storages on the device
};
static_assert(EvictionPolicy<Sieve>);

/// S3-FIFO (Yang, Zhang, Qiu, Yue & Rashmi, SOSP 2023), with sizes: a small and a main queue of storages on the device, and a ghost
/// queue of storages that were evicted from the small one lately. A new storage enters the small queue, a storage of the ghost
/// queue the main one. At the end of the small queue a storage moves to the main queue if it was used often enough there, and is
/// evicted otherwise. At the end of the main queue each counted use, up to 3, buys it another round.
class S3Fifo {
public:
    /// The shares of its queues.
    struct Config {
        /// Share of the budget from which on the small queue is evicted from, not the main one.
        std::uint8_t small_percent = 10;
        /// Share of the budget that the storages of the ghost queue take at most, in bytes.
        std::uint8_t ghost_percent = 90;
        /// Uses after the first that move a storage from the small to the main queue. At most 3.
        std::uint8_t promotion_uses = 2;
    };

    S3Fifo() noexcept : S3Fifo{Config{}} {}
    /// Decides by `config`.
    explicit S3Fifo(Config config) noexcept : config_{config} {}

    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        if (config_.small_percent > 100 || config_.ghost_percent > 100 || config_.promotion_uses > 3) {
            return Error{ErrorKind::invalid_argument,
                         "evict::S3Fifo: small_percent and ghost_percent are at most 100, promotion_uses at most 3"};
        }
        bytes_ = context.bytes;
        const std::uint64_t hundredth = context.capacity_bytes / 100;
        const std::uint64_t rest = context.capacity_bytes % 100;
        small_from_bytes_ = hundredth * config_.small_percent + (rest * config_.small_percent + 99) / 100;
        ghost_most_bytes_ = hundredth * config_.ghost_percent + rest * config_.ghost_percent / 100;
        queues_.attach(bytes_.size(), 3);
        states_.assign(bytes_.size(), State{});
        small_bytes_ = ghost_bytes_ = 0;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        const auto item = index(id);
        const bool is_known = queues_.is_linked(item);
        if (is_known) { forget(item); }
        enter(item, is_known ? main_queue : small_queue);
        states_[item].is_unused = true;
    }
    void used(StorageId id, StepIndex) noexcept {
        State& state = states_[index(id)];
        if (state.is_unused) {
            state.is_unused = false;
        } else if (state.uses < most_uses) {
            ++state.uses;
        }
    }
    void removed(StorageId id) noexcept {
        const auto item = index(id);
        queues_.unlink(item);
        if (states_[item].queue == main_queue) { return; }
        small_bytes_ -= bytes_[item];
        enter(item, ghost);
        while (ghost_bytes_ > ghost_most_bytes_) { forget(queues_.back(ghost)); }
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        std::optional<StorageId> found;
        if (small_bytes_ >= small_from_bytes_) { found = small_victim(may_leave); }
        if (!found) { found = main_victim(may_leave); }
        if (!found) { found = small_victim(may_leave); }
        if (!found) { found = main_victim(may_leave); }  // all that may leave has just moved from the small queue
        return found;
    }
    /// @}

private:
    static constexpr std::uint8_t small_queue = 0;
    static constexpr std::uint8_t main_queue = 1;
    static constexpr std::uint8_t ghost = 2;
    static constexpr std::uint8_t most_uses = 3;
    struct State {
        std::uint8_t queue : 2 = small_queue;
        std::uint8_t uses : 2 = 0;       // after the first, since it entered its queue
        std::uint8_t is_unused : 1 = 0;  // until the first use after the insertion
    };

    void enter(LinkedLists::Item item, std::uint8_t queue) noexcept {
        queues_.push_front(item, queue);
        states_[item] = {};
        states_[item].queue = queue & 3U;
        if (queue == small_queue) { small_bytes_ += bytes_[item]; }
        if (queue == ghost) { ghost_bytes_ += bytes_[item]; }
    }
    void forget(LinkedLists::Item item) noexcept {
        queues_.unlink(item);
        ghost_bytes_ -= bytes_[item];
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> small_victim(MayLeave& may_leave) noexcept {
        for (auto item = queues_.back(small_queue); item != queues_.end(small_queue);) {
            const auto newer = queues_.previous(item);
            if (may_leave(StorageId{item})) {
                if (states_[item].uses < config_.promotion_uses) { return StorageId{item}; }
                queues_.unlink(item);
                small_bytes_ -= bytes_[item];
                enter(item, main_queue);
            }
            item = newer;
        }
        return std::nullopt;
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> main_victim(MayLeave& may_leave) noexcept {
        for (bool again = true; again;) {
            again = false;
            for (auto item = queues_.back(main_queue); item != queues_.end(main_queue);) {
                const auto newer = queues_.previous(item);
                if (may_leave(StorageId{item})) {
                    if (states_[item].uses == 0) { return StorageId{item}; }
                    --states_[item].uses;
                    queues_.move_front(item, main_queue);
                    again = true;
                }
                item = newer;
            }
        }
        return std::nullopt;
    }

    Config config_;
    std::span<const std::uint64_t> bytes_;
    std::uint64_t small_from_bytes_ = 0;  // Config::small_percent of the budget
    std::uint64_t ghost_most_bytes_ = 0;  // Config::ghost_percent of the budget
    std::uint64_t small_bytes_ = 0;       // in the small queue
    std::uint64_t ghost_bytes_ = 0;       // in the ghost queue
    LinkedLists queues_;                  // of each queue, the last to enter first
    std::vector<State> states_;           // by storage, those of the ghost queue included
};
static_assert(EvictionPolicy<S3Fifo>);

}}}  // namespace residency::RESIDENCY_ABI::evict
