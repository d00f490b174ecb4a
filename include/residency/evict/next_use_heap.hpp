// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/ranked_heap.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Ranks storages by their next use in an order, the furthest first; among equals, such as storages that are never used again, the
/// least recently touched first. Without an order no storage has a next use. A use that the order announced and that did not happen
/// is replaced by the next one. O(log n) per change, and once more for every use in the order that passes.
class NextUseHeap {
public:
    /// `order`: null, or an order of at least `storages` storages that outlives this object.
    void attach(std::size_t storages, const UseOrder* order) {
        order_ = order != nullptr && order->steps() > 0 ? order : nullptr;
        heap_.attach(storages);
        seen_until_ = 0;
        touches_ = 0;
    }
    /// Adds or moves a storage: it ranks by its first use from `step` on.
    void put(StorageId id, StepIndex step) noexcept { heap_.put(id, {use_from(id, step), touches_++}); }
    void remove(StorageId id) noexcept { heap_.remove(id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> furthest(StepIndex now, MayLeave& may_leave) noexcept {
        skip_missed(now);
        return heap_.first(may_leave);
    }

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

}}}  // namespace residency::RESIDENCY_ABI::evict
