// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/next_use_heap.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the storage whose next use in the whole run is furthest, whatever its size: the oracle (Belady 1966). With equal sizes no
/// policy has fewer misses; with different sizes it is a yardstick, not a bound. For comparison only: a real run does not know its
/// whole trace. O(log n).
class Belady {
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
        if (order->storage_count() < context.bytes.size()) {
            return Error{ErrorKind::mismatch, "evict::Belady: the order knows " +
                                                  std::to_string(order->storage_count()) + " storages of " +
                                                  std::to_string(context.bytes.size())};
        }
        future_ = *order;
        heap_.attach(context.bytes.size(), &future_);
        return {};
    }
    /// What EvictionPolicy asks for.
    /// @{
    void inserted(StorageId id, StepIndex now) noexcept { heap_.put(id, now); }
    void used(StorageId id, StepIndex now) noexcept { heap_.put(id, now + 1); }
    void removed(StorageId id) noexcept { heap_.remove(id); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex now, MayLeave&& may_leave) noexcept {
        return heap_.furthest(now, may_leave);
    }
    /// @}

private:
    Config config_;
    UseOrder future_;
    NextUseHeap heap_;
};
static_assert(EvictionPolicy<Belady>);

}}}  // namespace residency::RESIDENCY_ABI::evict
