// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/error.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/upcoming.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

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
