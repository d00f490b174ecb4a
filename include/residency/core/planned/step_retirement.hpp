// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/engine/copy_scheduler.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which steps have ended. Steps are numbered across passes and end in order: a step ends when a later one is current and no lease that
/// counts to it is open. A lease counts to the last step until whose end the plan leaves its bytes alone (LiveRanges). For the steps of the
/// last two passes, the end is known as a point of each consumer stream.
class StepRetirement {
public:
    StepRetirement() = default;
    /// `steps`: per pass. `consumers`: those that the copy scheduler has now.
    StepRetirement(std::uint32_t steps, std::size_t consumers)
        : window_{2 * std::size_t{steps}},
          leases_(window_, 0),
          points_(consumers, std::vector<EventPoint>(window_, 0)) {}

    /// The number of steps whose ends are told apart: two passes.
    [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
    /// The current step. Steps before it take no more leases.
    [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
    /// Steps before this one have ended, and their ends are recorded.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }

    /// The current step is at least this one.
    void reach(std::uint64_t step) noexcept { current_ = (std::max)(current_, step); }
    /// Precondition: no lease is open.
    void go_to(std::uint64_t current, std::uint64_t ended) noexcept {
        current_ = current;
        ended_ = ended;
    }

    /// Preconditions of both: ended() <= step < ended() + window().
    void open_lease(std::uint64_t step) noexcept { ++leases_[at(step)]; }
    void close_lease(std::uint64_t step) noexcept { --leases_[at(step)]; }
    /// The number of open leases, of all steps.
    [[nodiscard]] std::uint64_t open_leases() const noexcept {
        return std::accumulate(leases_.begin(), leases_.end(), std::uint64_t{0});
    }

    /// Ends every step that can end. Enqueues nothing.
    template <class CopyScheduler>
    void advance(const CopyScheduler& copy_scheduler) {
        if (ended_ >= current_) { return; }
        for (std::size_t slot = at(ended_); ended_ < current_ && leases_[slot] == 0; ++ended_) {
            for (ConsumerId id = 0; id < points_.size(); ++id) { points_[id][slot] = copy_scheduler.last_point(id); }
            for (auto id = static_cast<ConsumerId>(points_.size()); id < copy_scheduler.consumers(); ++id) {
                points_.emplace_back(window_, copy_scheduler.last_point(id));
            }
            slot = slot + 1 == window_ ? 0 : slot + 1;  // a division a step costs more than the rest
        }
    }
    /// Lets the copy stream wait for the end of a step. Precondition: ended() - window() <= step < ended().
    template <class CopyScheduler>
    [[nodiscard]] Status copy_stream_wait_for_end(CopyScheduler& copy_scheduler, std::uint64_t step) const {
        for (ConsumerId id = 0; id < points_.size(); ++id) {
            if (auto waits = copy_scheduler.copy_stream_wait(id, points_[id][at(step)]); !waits) { return waits; }
        }
        return {};
    }
    /// Drops recorded ends: consumer ids are about to be renumbered (capture).
    void forget_consumers() noexcept { points_.clear(); }

private:
    [[nodiscard]] std::size_t at(std::uint64_t step) const noexcept { return static_cast<std::size_t>(step % window_); }

    std::size_t window_ = 0;  // steps
    std::uint64_t current_ = 0;
    std::uint64_t ended_ = 0;
    std::vector<std::uint32_t> leases_;            // by step modulo window_: open leases
    std::vector<std::vector<EventPoint>> points_;  // by consumer, by step modulo window_: the end of the step
};

}}}  // namespace residency::RESIDENCY_ABI::core
