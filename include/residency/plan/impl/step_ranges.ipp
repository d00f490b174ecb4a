// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/plan/copy.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/step_ranges.hpp"
#include "residency/plan/timeline.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

/// Joins neighbouring steps of a plan into ranges. A boundary between two ranges that cannot go now cannot go later: joining steps
/// makes calls wait longer and steps start later, never earlier.
class RangeSearch {
public:
    RangeSearch(const Plan& plan, const Link& link, std::span<const double> compute)
        : plan_{plan}, by_step_{timeline(plan.data(), link, compute)}, range_of_(plan.steps()) {
        ranges_.calls = by_step_.calls;
        keep_all();
        most_seconds_ = seconds() * (1 + tuning::range_loss);
    }

    /// Every step is a range of its own.
    void keep_all() { begins_range_.assign(plan_.steps(), true); }
    /// Joins the ranges before and from step `at`, if the pass then still runs and is not much longer.
    void try_join(std::uint32_t at) {
        begins_range_[at] = false;
        if (!is_possible(at) || seconds() > most_seconds_) { begins_range_[at] = true; }
    }
    [[nodiscard]] std::vector<StepRange> ranges() const {
        std::vector<StepRange> result;
        for (std::uint32_t i = 0; i < plan_.steps(); ++i) {
            if (begins_range_[i]) { result.push_back({i, i}); }
            result.back().last = i + 1;
        }
        return result;
    }

private:
    /// Whether no call that the range around a step needs waits for a step of that range.
    [[nodiscard]] bool is_possible(std::uint32_t step) const {
        std::uint32_t first = step, last = step + 1;
        while (!begins_range_[first]) { --first; }
        while (last < plan_.steps() && !begins_range_[last]) { ++last; }
        for (std::uint32_t k = first > 0 ? plan_.step_calls(first - 1) : 0; k < plan_.step_calls(last - 1); ++k) {
            const Wait& wait = plan_.calls()[k].wait;
            if (wait.exists() && wait.pass == 0 && wait.step >= first) { return false; }
        }
        return true;
    }
    /// Seconds of a pass in which every range is one step; a number above most_seconds_ where it takes more.
    [[nodiscard]] double seconds() {
        ranges_.compute.clear();
        for (std::uint32_t i = 0; i < plan_.steps(); ++i) {
            if (begins_range_[i]) { ranges_.compute.push_back(0); }
            ranges_.compute.back() += by_step_.compute[i];
            range_of_[i] = static_cast<std::uint32_t>(ranges_.compute.size() - 1);
        }
        for (std::size_t k = 0; k < by_step_.calls.size(); ++k) {
            const Timeline::Call& call = by_step_.calls[k];
            ranges_.calls[k].needed_by = range_of_[call.needed_by];
            ranges_.calls[k].wait_step = call.wait_step == none ? none : range_of_[call.wait_step];
        }
        return seconds_of(solver_, ranges_, plan_.data(), tuning::period_tolerance, most_seconds_);
    }

    const Plan& plan_;
    Timeline by_step_, ranges_;
    TimelineSolver solver_;
    std::vector<bool> begins_range_;       // by step
    std::vector<std::uint32_t> range_of_;  // by step
    double most_seconds_ = 1e300;
};

}  // namespace detail

RESIDENCY_INLINE std::vector<StepRange> step_ranges(const Plan& plan, const Link& link,
                                                    std::span<const double> compute) {
    const std::uint32_t steps = plan.steps();
    if (plan.calls().empty() && steps > 0) { return {{0, steps}}; }
    detail::RangeSearch search{plan, link, compute};
    for (std::uint32_t at = 1; at < steps; ++at) { search.try_join(at); }
    std::vector<StepRange> best = search.ranges();
    // The other order makes ranges of like sizes: pairs of steps first, then pairs of those, and so on.
    search.keep_all();
    for (std::uint64_t distance = 1; distance < steps; distance *= 2) {
        for (std::uint64_t at = distance; at < steps; at += 2 * distance) {
            search.try_join(static_cast<std::uint32_t>(at));
        }
    }
    std::vector<StepRange> even = search.ranges();
    return even.size() < best.size() ? even : best;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
