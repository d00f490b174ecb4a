// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/next_use_heap.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the storage whose next use in the declared or recorded schedule is furthest: what a real run can know of Belady's choice.
/// Storages that the schedule does not name are evicted first, the least recently used of them; without a schedule that is all of
/// them. Follows a run that diverges: a use that did not happen is replaced by the next one. O(log n).
class Scheduled {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        if (context.order != nullptr && context.order->steps() > 0 &&
            context.order->storage_count() < context.bytes.size()) {
            return Error{ErrorKind::mismatch, "evict::Scheduled: the order knows " +
                                                  std::to_string(context.order->storage_count()) + " storages of " +
                                                  std::to_string(context.bytes.size())};
        }
        heap_.attach(context.bytes.size(), context.order);
        return {};
    }
    void inserted(StorageId id, StepIndex now) noexcept { heap_.put(id, now); }
    void used(StorageId id, StepIndex now) noexcept { heap_.put(id, now + 1); }
    void removed(StorageId id) noexcept { heap_.remove(id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex now, MayLeave&& may_leave) noexcept {
        return heap_.furthest(now, may_leave);
    }
    /// @}

private:
    NextUseHeap heap_;
};
static_assert(EvictionPolicy<Scheduled>);

}}}  // namespace residency::RESIDENCY_ABI::evict
