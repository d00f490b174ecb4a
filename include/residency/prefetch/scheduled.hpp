// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/error.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/upcoming.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// What the schedule reads next, as far ahead as there is room, but not further than some steps: the core refuses what would need
/// something to leave that is used sooner, and the next call goes on there. Further ahead is not better: decisions are made
/// before the link gets to them, and a run that looks a whole pass ahead gives up each storage after its use and moves all of them
/// in every pass. The nearest steps are offered again each time, since a miss may have thrown out what had been brought. Without
/// a schedule it proposes nothing.
class Scheduled {
public:
    static constexpr bool interruptible = false;
    struct Config {
        std::uint32_t most_steps = 4;  ///< ahead, at most; a pass is the most that is of use
        std::uint32_t near_steps = 2;  ///< offered again in each call
    };

    Scheduled() noexcept : Scheduled{Config{}} {}
    explicit Scheduled(Config config) noexcept : config_{config} {}

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

private:
    Config config_;
    Upcoming upcoming_;
    StepIndex offered_until_ = 0;  // steps before this one were taken
};
static_assert(PrefetchPolicy<Scheduled>);

}}}  // namespace residency::RESIDENCY_ABI::prefetch
