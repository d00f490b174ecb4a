// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
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

/// Proposes what the schedule reads next, as far ahead as there is room, but at most Config::most_steps. The decider refuses a
/// storage for which another one that is used sooner would have to leave; the next call goes on there. Further ahead is not better:
/// decisions are made before the link gets to them, and a prefetcher that looks a whole pass ahead gives up each storage after its
/// use and copies all of them in every pass. Each call offers the nearest steps again, since a miss may have evicted what had been
/// brought. Without a schedule it proposes nothing.
class Scheduled {
public:
    static constexpr bool interruptible = false;  ///< its copies are not given up
    /// How far it copies ahead.
    struct Config {
        std::uint32_t most_steps = 4;  ///< prefetch distance; more than one pass is of no use
        std::uint32_t near_steps = 2;  ///< of these, offered again in each call
    };

    Scheduled() noexcept : Scheduled{Config{}} {}
    /// Copies ahead as `config` says.
    explicit Scheduled(Config config) noexcept : config_{config} {}

    /// What PrefetchPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        offered_until_ = 0;
        return upcoming_.attach(context, "prefetch::Scheduled");
    }
    template <class Sink>
    void propose(StepIndex now, Sink&& sink) noexcept {
        const StepIndex last = (std::min)(upcoming_.last(now), now + config_.most_steps);
        const StepIndex soon = (std::min)(last, now + config_.near_steps);
        const StepIndex first_refused = upcoming_.offer(now, now + 1, soon, sink);
        if (first_refused <= soon) {
            offered_until_ = first_refused;
            return;
        }
        offered_until_ = upcoming_.offer(now, (std::max)(soon + 1, offered_until_), last, sink);
    }
    /// @}

private:
    Config config_;
    Upcoming upcoming_;
    StepIndex offered_until_ = 0;  // the sink took all that the steps before this one read
};
static_assert(PrefetchPolicy<Scheduled>);

/// Proposes what the next `steps` steps of the schedule read, the nearest first. Without a schedule it proposes nothing.
template <std::uint32_t steps>
    requires(steps > 0)
class Lookahead {
public:
    /// What PrefetchPolicy asks for.
    /// @{
    static constexpr bool interruptible = false;

    [[nodiscard]] Status attach(const Context& context) { return upcoming_.attach(context, "prefetch::Lookahead"); }
    template <class Sink>
    void propose(StepIndex now, Sink&& sink) noexcept {
        upcoming_.offer(now, now + 1, (std::min)(upcoming_.last(now), now + steps), sink);
    }
    /// @}

private:
    Upcoming upcoming_;
};
static_assert(PrefetchPolicy<Lookahead<1>>);

}}}  // namespace residency::RESIDENCY_ABI::prefetch
