// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "residency/core/copy_scheduler.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// How far the steps of all passes are, numbered across passes. Steps end in order: those before the current one, once no lease of
/// theirs is open; of the last two passes it is known at which point of every reader.
class StepRetirement {
public:
    StepRetirement() = default;
    StepRetirement(std::uint32_t steps, std::size_t consumers)
        : window_{2 * std::size_t{steps}},
          leases_(window_, 0),
          points_(consumers, std::vector<EventPoint>(window_, 0)) {}

    /// Steps whose ends are told apart.
    [[nodiscard]] std::uint64_t window() const noexcept { return window_; }
    /// The step that runs: those before it take no more leases.
    [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
    /// Steps before this one have ended, and their ends are recorded.
    [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }

    void reach(std::uint64_t step) noexcept { current_ = (std::max)(current_, step); }
    /// Precondition: no lease is open.
    void go_to(std::uint64_t current, std::uint64_t ended) noexcept {
        current_ = current;
        ended_ = ended;
    }

    /// Preconditions: ended() <= step < ended() + window().
    void open_lease(std::uint64_t step) noexcept { ++leases_[at(step)]; }
    void close_lease(std::uint64_t step) noexcept { --leases_[at(step)]; }
    [[nodiscard]] std::uint64_t open_leases() const noexcept {
        return std::accumulate(leases_.begin(), leases_.end(), std::uint64_t{0});
    }

    /// Ends every step that can be.
    template <class CopyScheduler>
    void advance(const CopyScheduler& copy_scheduler) {
        while (ended_ < current_ && leases_[at(ended_)] == 0) {
            for (ConsumerId id = 0; id < points_.size(); ++id) {
                points_[id][at(ended_)] = copy_scheduler.last_point(id);
            }
            for (auto id = static_cast<ConsumerId>(points_.size()); id < copy_scheduler.consumers(); ++id) {
                points_.emplace_back(window_, copy_scheduler.last_point(id));
            }
            ++ended_;
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
    /// Readers are others from now on.
    void forget_consumers() noexcept { points_.clear(); }

private:
    [[nodiscard]] std::size_t at(std::uint64_t step) const noexcept { return static_cast<std::size_t>(step % window_); }

    std::size_t window_ = 0;
    std::uint64_t current_ = 0;
    std::uint64_t ended_ = 0;
    std::vector<std::uint32_t> leases_;            // by step of the window: open ones
    std::vector<std::vector<EventPoint>> points_;  // by reader, by step of the window: its end
};

}}}  // namespace residency::RESIDENCY_ABI::core
