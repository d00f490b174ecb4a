// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/linked_lists.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

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
