// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "residency/core/measure/stall_clock.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE auto StallClock::read(const Mark& mark, std::span<const double> planned_seconds)
    -> std::optional<Stall> {
    switch (mark.point) {
        case Point::copies_begin:
            if (copy_end_ && mark.time) {
                (mark.is_for_room ? idle_room_ : idle_late_) +=
                    (std::max)(*mark.time - *copy_end_, std::chrono::nanoseconds{});
            }
            break;
        case Point::copies_end: copy_end_ = mark.time; break;
        case Point::wait_begins: wait_start_ = mark.time; break;
        case Point::wait_ended: return read_wait(mark, planned_seconds);
        case Point::pass_ends:
            ++statistics_.passes;
            statistics_.last_pass = std::exchange(pass_, {});
            current_.swap(last_);
            std::fill(current_.begin(), current_.end(), Stalls{});
            break;
        default: break;
    }
    return std::nullopt;
}

RESIDENCY_INLINE auto StallClock::read_wait(const Mark& wait, std::span<const double> planned_seconds)
    -> std::optional<Stall> {
    if (!wait_start_ || !wait.time) {
        ++statistics_.not_timed;
        return std::nullopt;
    }
    const std::chrono::nanoseconds time = *wait.time - *wait_start_;
    if (time < least_stall) { return std::nullopt; }
    std::chrono::nanoseconds declared{};
    if (const auto planned = planned_since_stall(planned_seconds, wait)) {
        const std::chrono::nanoseconds assumed{static_cast<std::int64_t>(*planned * 1e9)};
        declared = (std::max)(declared, assumed - (*wait_start_ - *stall_->time));
    }
    const Stall stall{wait, time, wait.miss ? *wait.miss : cause_of_stall(time, declared, idle_room_, idle_late_)};
    const StallTime one{1, time};
    statistics_.total[stall.cause] += one;
    pass_[stall.cause] += one;
    if (wait.steps().first < current_.size()) { current_[wait.steps().first][stall.cause] += one; }
    stall_ = wait;
    idle_room_ = idle_late_ = {};
    return stall;
}

RESIDENCY_INLINE std::optional<double> StallClock::planned_since_stall(std::span<const double> planned_seconds,
                                                                       const Mark& wait) const noexcept {
    if (!stall_) { return std::nullopt; }
    const std::size_t from = stall_->steps().first, to = wait.steps().first;
    if (from >= planned_seconds.size() || to >= planned_seconds.size()) { return std::nullopt; }
    const bool is_same_pass = wait.pass == stall_->pass;
    if (!(is_same_pass && from <= to) && wait.pass != stall_->pass + 1) { return std::nullopt; }
    double sum = 0;
    for (std::size_t step = from; step < (is_same_pass ? to : planned_seconds.size()); ++step) {
        sum += planned_seconds[step];
    }
    for (std::size_t step = 0; !is_same_pass && step < to; ++step) { sum += planned_seconds[step]; }
    return sum;
}

}}}  // namespace residency::RESIDENCY_ABI::core
