// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "residency/core/measure/range_times.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void RangeTimes::add(const StepRange& range, std::chrono::nanoseconds time) {
    const auto place =
        std::lower_bound(ranges_.begin(), ranges_.end(), range, [](const Measured& measured, const StepRange& other) {
            const StepRange& one = measured.range;
            return one.first != other.first ? one.first < other.first : one.last < other.last;
        });
    if (place != ranges_.end() && place->range == range) {
        place->smallest = (std::min)(place->smallest, time);
    } else if (ranges_.size() < most_ranges_per_step * steps_) {
        ranges_.insert(place, {range, time});
    }
}

RESIDENCY_INLINE std::vector<bool> RangeTimes::timed() const {
    std::vector<bool> result(steps_, false);
    for (const Measured& each : ranges_) {
        for (std::uint32_t step = each.range.first; step < each.range.last; ++step) { result[step] = true; }
    }
    return result;
}

RESIDENCY_INLINE std::vector<bool> RangeTimes::timed_alone() const {
    std::vector<bool> result(steps_, false);
    for (const Measured& each : ranges_) {
        if (each.range.last - each.range.first == 1) { result[each.range.first] = true; }
    }
    return result;
}

RESIDENCY_INLINE std::vector<std::optional<std::chrono::nanoseconds>> RangeTimes::by_step(
    std::span<const double> assumed) const {
    std::vector<double> seconds(assumed.begin(), assumed.end());
    seconds.resize(steps_, 0.0);
    const auto share = [&](const Measured& measured) {
        const double time = std::chrono::duration<double>(measured.smallest).count();
        const std::span<double> steps{seconds.data() + measured.range.first, seconds.data() + measured.range.last};
        double sum = 0;
        for (const double step : steps) { sum += step; }
        for (double& step : steps) { step = sum > 0 ? step * (time / sum) : time / static_cast<double>(steps.size()); }
    };
    for (int round = 0; round < rounds; ++round) {
        for (const Measured& each : ranges_) { share(each); }
    }
    // A step that was measured by itself has its own time, whatever ranges around it say.
    for (const Measured& each : ranges_) {
        if (each.range.last - each.range.first == 1) { share(each); }
    }
    const std::vector<bool> is_timed = timed();
    std::vector<std::optional<std::chrono::nanoseconds>> result(steps_);
    for (std::size_t step = 0; step < steps_; ++step) {
        if (is_timed[step]) { result[step] = std::chrono::nanoseconds{std::llround(seconds[step] * 1e9)}; }
    }
    return result;
}

}}}  // namespace residency::RESIDENCY_ABI::core
