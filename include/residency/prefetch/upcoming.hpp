// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// Offers the storages that the coming steps read, each once, at the first of these steps. Without an order it offers nothing.
class Upcoming {
public:
    /// `whose`: named in messages. Error mismatch: the order lacks storages.
    [[nodiscard]] Status attach(const Context& context, const char* whose) {
        order_ = context.order != nullptr && context.order->steps() > 0 ? context.order : nullptr;
        if (order_ != nullptr && order_->storage_count() < context.bytes.size()) {
            return Error{ErrorKind::mismatch, std::string{whose} + ": the order knows " +
                                                  std::to_string(order_->storage_count()) + " storages of " +
                                                  std::to_string(context.bytes.size())};
        }
        return {};
    }
    /// The last step that may be offered during `now`: one pass ahead, or the end of a one-shot order.
    [[nodiscard]] StepIndex last(StepIndex now) const noexcept {
        if (order_ == nullptr) { return now; }
        const StepIndex steps = order_->steps();
        return order_->is_cyclic() ? now + steps : (std::max)(now, steps - 1);
    }
    /// Offers steps first … last until the sink returns false. Returns the step at which it did, or last + 1. Preconditions: now <
    /// first; last <= last(now).
    template <class Sink>
    StepIndex offer(StepIndex now, StepIndex first, StepIndex last, Sink& sink) const noexcept {
        for (StepIndex step = first; step <= last; ++step) {
            for (const StorageId id : order_->storages_at(step)) {
                if (order_->next_use(id, now) == step && !sink(id, step)) { return step; }
            }
        }
        return last + 1;
    }

private:
    const UseOrder* order_ = nullptr;  // null: none
};

}}}  // namespace residency::RESIDENCY_ABI::prefetch
