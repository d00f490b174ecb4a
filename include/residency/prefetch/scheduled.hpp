// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/error.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/upcoming.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

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

}}}  // namespace residency::RESIDENCY_ABI::prefetch
