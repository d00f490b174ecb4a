// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Policies that know the order: Belady, Scheduled, and the heap under them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// What policies that know an order have in common: evicts the storage whose next use is furthest; among equals, such as storages that are
/// never used again, the least recently touched. Without an order no storage has a next use. A use that the order announced and that did not happen
/// is replaced by the next one. O(log n) per change, and once more for every use in the order that passes.
class NextUseHeap {
public:
    /// `order`: null, or an order that outlives this object. `policy`: whose name an error has. Error mismatch: the order lacks storages.
    [[nodiscard]] Status attach(const char* policy, std::size_t storages, const UseOrder* order) {
        order_ = order != nullptr && order->steps() > 0 ? order : nullptr;
        if (order_ != nullptr && order_->storage_count() < storages) {
            return Error{ErrorKind::mismatch, std::string{policy} + ": the order knows " +
                                                  std::to_string(order_->storage_count()) + " storages of " +
                                                  std::to_string(storages)};
        }
        heap_.attach(storages);
        seen_until_ = 0;
        touches_ = 0;
        return {};
    }
    /// What EvictionPolicy asks for.
    /// @{
    void inserted(StorageId id, StepIndex now) noexcept { put(id, now); }
    void used(StorageId id, StepIndex now) noexcept { put(id, now + 1); }
    void removed(StorageId id) noexcept { heap_.remove(id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex now, MayLeave&& may_leave) noexcept {
        skip_missed(now);
        return heap_.first(may_leave);
    }
    /// @}

private:
    struct Key {
        std::uint64_t next_use = UseOrder::never;
        std::uint64_t touch = 0;  // the number of the last put()
    };
    struct LeavesBefore {
        bool operator()(const Key& a, const Key& b) const noexcept {
            return a.next_use != b.next_use ? a.next_use > b.next_use : a.touch < b.touch;
        }
    };

    /// Adds or moves a storage: it ranks by its first use from `step` on.
    void put(StorageId id, StepIndex step) noexcept { heap_.put(id, {use_from(id, step), touches_++}); }
    [[nodiscard]] std::uint64_t use_from(StorageId id, StepIndex step) const noexcept {
        return order_ != nullptr ? order_->use_from(id, step) : UseOrder::never;
    }
    /// Moves every storage whose announced use has passed without being used, among the steps before `now`; at most one pass of
    /// them.
    void skip_missed(StepIndex now) noexcept {
        if (order_ == nullptr || now <= seen_until_) { return; }
        const StepIndex steps = order_->steps();
        StepIndex step = now - seen_until_ > steps ? now - steps : seen_until_;
        const StepIndex end = order_->is_cyclic() ? now : (std::min)(now, steps);
        seen_until_ = now;
        for (; step < end; ++step) {
            for (const StorageId id : order_->storages_at(step)) {
                if (heap_.contains(id) && heap_.key(id).next_use < now) {
                    heap_.put(id, {use_from(id, now), heap_.key(id).touch});
                }
            }
        }
    }

    const UseOrder* order_ = nullptr;  // null: none
    RankedHeap<Key, LeavesBefore> heap_;
    StepIndex seen_until_ = 0;   // the steps before this one have been looked at
    std::uint64_t touches_ = 0;  // calls of put()
};

/// Evicts the storage whose next use in the whole run is furthest, whatever its size: the oracle (Belady 1966). With equal sizes no
/// policy has fewer misses; with different sizes it is a yardstick, not a bound. For comparison only: a real run does not know its
/// whole trace. O(log n).
class Belady : NextUseHeap {
public:
    /// The uses that it is told of in advance.
    struct Config {
        UseOrder recorded{};  ///< the whole run from attach() on; without steps: the context's order is taken for it
    };

    Belady() noexcept = default;
    /// Decides by `config`.
    explicit Belady(Config config) noexcept : config_{std::move(config)} {}

    /// Errors: invalid_argument where neither order has steps; mismatch where the order lacks storages.
    [[nodiscard]] Status attach(const Context& context) {
        const UseOrder* order = config_.recorded.steps() > 0 ? &config_.recorded : context.order;
        if (order == nullptr || order->steps() == 0) {
            return Error{ErrorKind::invalid_argument,
                         "evict::Belady needs the recorded order of the whole run; for what a run can "
                         "know by itself use evict::Scheduled"};
        }
        future_ = *order;
        return NextUseHeap::attach("evict::Belady", context.bytes.size(), &future_);
    }
    using NextUseHeap::inserted;
    using NextUseHeap::removed;
    using NextUseHeap::used;
    using NextUseHeap::victim;

private:
    Config config_;
    UseOrder future_;
};
static_assert(EvictionPolicy<Belady>);

/// Evicts the storage whose next use in the declared or recorded schedule is furthest: what a real run can know of Belady's choice.
/// Storages that the schedule does not name are evicted first, the least recently used of them; without a schedule that is all of
/// them. Follows a run that diverges: a use that did not happen is replaced by the next one. O(log n).
class Scheduled : NextUseHeap {
public:
    /// Error mismatch: the order lacks storages.
    [[nodiscard]] Status attach(const Context& context) {
        return NextUseHeap::attach("evict::Scheduled", context.bytes.size(), context.order);
    }
    using NextUseHeap::inserted;
    using NextUseHeap::removed;
    using NextUseHeap::used;
    using NextUseHeap::victim;
};
static_assert(EvictionPolicy<Scheduled>);

}}}  // namespace residency::RESIDENCY_ABI::evict
