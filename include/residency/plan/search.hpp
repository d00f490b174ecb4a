// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the searches of the planner share: their limits, their random numbers, and the travel from a plan that was found to better ones.

#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// When a search ends.
struct SearchLimits {
    Effort effort = Effort::full;  ///< how thoroughly it looks
    double bound_seconds = 0;      ///< no plan is faster: the search ends near it
    double work_share = 1;         ///< of the work that a search may take

    /// That share of some work.
    [[nodiscard]] std::uint64_t share_of(std::uint64_t work) const noexcept {
        return static_cast<std::uint64_t>(work_share * static_cast<double>(work));
    }
    /// Whether so many seconds are near enough to the bound.
    [[nodiscard]] bool is_near(double seconds) const noexcept {
        return seconds <= bound_seconds * (1 + tuning::refine_ends_within);
    }
};

/// Random numbers of a search (splitmix64): the same on every machine.
class Random {
public:
    /// A number in [0, below). Precondition: below > 0.
    [[nodiscard]] std::uint64_t operator()(std::uint64_t below) noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27U) * 0x94d049bb133111ebULL;
        return (z ^ z >> 31U) % below;
    }

private:
    std::uint64_t state_ = 0;
};

/// Takes random changes that cost a little, less and less of it, and keeps the best candidate that it meets (record-to-record travel, Dueck
/// 1993). Deterministic. `change(candidate, random)` makes one change; `evaluate(candidate, give_up)` is the seconds of a pass, or some
/// number above `give_up`; `work()` is what was looked at so far. `best` and `seconds`: where it starts from, and what it finds.
template <class Candidate, class Change, class Evaluate, class Work>
void travel(Candidate& best, double& seconds, const SearchLimits& limits, std::uint64_t most_work, const Change& change,
            const Evaluate& evaluate, const Work& work) {
    const std::uint64_t begin = work();
    Random random;
    Candidate now = best, before;
    for (std::uint64_t done = 0; done < most_work && !limits.is_near(seconds); done = work() - begin) {
        const double left = 1 - static_cast<double>(done) / static_cast<double>(most_work);
        const double limit = seconds * (1 + tuning::travel_allowance * left * left);
        before = now;
        change(now, random);
        const double reached = evaluate(now, limit);
        if (reached > limit) {
            now = before;
        } else if (reached < seconds) {
            best = now;
            seconds = reached;
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::plan
