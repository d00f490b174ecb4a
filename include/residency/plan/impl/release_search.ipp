// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/release_ring.hpp"
#include "residency/plan/release_search.hpp"
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// The least level for which steps that stream up to so many chunks each leave a ring that holds as many.
inline double least_level(const RingProblem& problem, double most) {
    double low = 0, high = most;
    for (int k = 0; k < tuning::release_level_halvings; ++k) {
        const double level = (low + high) / 2;
        double sum = 0;
        for (const double chunks : problem.capacity()) { sum += (std::min)(chunks, level); }
        (sum - static_cast<double>(problem.deficit()) >= level ? high : low) = level;
    }
    return high;
}

// Whole chunks, the error passed on to the next step.
inline std::vector<std::uint32_t> rounded(const RingProblem& problem, const std::vector<double>& target, double most) {
    std::vector<std::uint32_t> streamed(target.size());
    double error = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
        const double wanted = target[i] + error;
        const double chunks =
            (std::clamp)(std::round(wanted), 0.0, std::floor((std::min)(problem.capacity()[i], most)));
        error = (std::clamp)(wanted - chunks, -1.0, 1.0);
        streamed[i] = static_cast<std::uint32_t>(chunks);
    }
    return streamed;
}

}  // namespace detail

RESIDENCY_INLINE bool is_wide_among_small(const RingProblem& problem) {
    const std::uint32_t n = problem.steps();
    if (n == 0 || n > tuning::release_most_steps) { return false; }
    double widest = 0, sum = 0;
    for (const double chunks : problem.capacity()) {
        widest = (std::max)(widest, chunks);
        sum += chunks;
    }
    return widest >= tuning::release_least_chunks && widest * n >= tuning::release_means * sum &&
           static_cast<double>(problem.budget()) <= tuning::release_widest * widest;
}

RESIDENCY_INLINE ReleaseSearch::ReleaseSearch(const RingProblem& problem, const Config& config)
    : problem_{problem}, config_{config}, ring_{problem} {
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.capacity()[i] > 0) { able_.push_back(i); }
        if (problem.capacity()[i] >= tuning::release_several_chunks) { wide_.push_back(i); }
    }
    if (wide_.size() < 2) { wide_ = able_; }
}

RESIDENCY_INLINE std::uint64_t ReleaseSearch::share_of(std::uint64_t work) const noexcept {
    return static_cast<std::uint64_t>(config_.work_share * static_cast<double>(work));
}

RESIDENCY_INLINE bool ReleaseSearch::search(const std::vector<std::uint32_t>& streamed_per_step) {
    best_ = {};
    stop_ = work() + share_of(tuning::release_work(config_.effort));
    start(streamed_per_step);
    if (best_.seconds == RingEvaluator::impossible) { return false; }
    descend(best_);
    return true;
}

RESIDENCY_INLINE void ReleaseSearch::improve(const Solution& found) {
    best_ = found;
    travel(share_of(tuning::release_improve_work(config_.effort)), Changes::all);
    stop_ = work() + share_of(tuning::release_work(config_.effort));
    descend(best_);
}

RESIDENCY_INLINE void ReleaseSearch::resize() {
    const std::uint64_t stop = work() + share_of(tuning::resize_most_work);
    Solution found = best_;
    const auto resize_by = [&](bool less) {
        const double before = found.seconds;
        best_ = found;
        while (work() < stop && best_.seconds > config_.bound_seconds * (1 + tuning::refine_ends_within) &&
               (less ? stream_one_less(best_.candidate) : stream_one_more(best_.candidate))) {
            best_.seconds = ring_.evaluate(best_.candidate, RingEvaluator::impossible);
            travel(share_of(tuning::resize_work), Changes::same_size);
            if (best_.seconds > found.seconds * (1 + tuning::resize_loss)) { break; }
            if (best_.seconds < found.seconds) { found = best_; }
        }
        return found.seconds < before;
    };
    if (!resize_by(true)) { static_cast<void>(resize_by(false)); }
    best_ = std::move(found);
    travel(share_of(tuning::resize_last_work), Changes::same_size);
}

RESIDENCY_INLINE bool ReleaseSearch::search_calls(const std::vector<std::uint32_t>& streamed_per_step) {
    best_ = {};
    consider_start(streamed_per_step);
    if (best_.seconds == RingEvaluator::impossible) { return false; }
    stop_ = work() + share_of(tuning::release_work(config_.effort));
    assign_otherwise(best_);
    travel(share_of(tuning::release_work(config_.effort)), Changes::same_chunks);
    return true;
}

// The step that streams the most chunks streams one less.
RESIDENCY_INLINE bool ReleaseSearch::stream_one_less(ReleaseCandidate& candidate) const {
    std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    const auto most = std::max_element(streamed.begin(), streamed.end());
    if (*most == 0 || candidate.streamed() <= problem_.deficit() + 1) { return false; }
    --*most;
    return true;
}

// Of the steps that have another chunk, the one that streams the fewest streams one more.
RESIDENCY_INLINE bool ReleaseSearch::stream_one_more(ReleaseCandidate& candidate) const {
    std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    std::uint32_t fewest = none;
    for (const std::uint32_t step : wide_) {
        if (streamed[step] + 1 > problem_.capacity()[step]) { continue; }
        if (fewest == none || streamed[step] < streamed[fewest]) { fewest = step; }
    }
    if (fewest == none) { return false; }
    ++streamed[fewest];
    return true;
}

RESIDENCY_INLINE void ReleaseSearch::start(const std::vector<std::uint32_t>& streamed_per_step) {
    if (!streamed_per_step.empty()) { consider_start(streamed_per_step); }
    const double widest = *std::max_element(problem_.capacity().begin(), problem_.capacity().end());
    const double least = std::ceil(detail::least_level(problem_, widest));
    Fluid fluid{problem_.capacity(), problem_.compute(), problem_.chunks_per_second()};
    const int sizes = tuning::release_sizes(config_.effort);
    best_ring_ = 0;
    for (int k = 0; k < sizes && work() < stop_; ++k) {
        const double part = k / static_cast<double>(sizes);
        start_with_ring(fluid, static_cast<double>(problem_.budget()) * std::pow(tuning::release_least_ring, part));
        const double level = std::floor(least + (widest - least) * part * part);
        consider_start(detail::rounded(problem_, problem_.capacity(), level));
    }
    const double about = best_ring_;
    const int around = tuning::release_sizes_near(config_.effort);
    for (int k = -around; k <= around && about > 0 && work() < stop_; ++k) {
        start_with_ring(fluid, about * (1 + tuning::release_near * k));
    }
}

RESIDENCY_INLINE void ReleaseSearch::start_with_ring(Fluid& fluid, double ring) {
    if (ring < 1 || !fluid.solve(ring, static_cast<double>(problem_.deficit()))) { return; }
    const double before = best_.seconds;
    consider_start(detail::rounded(problem_, fluid.stream(), ring));
    if (best_.seconds < before) { best_ring_ = ring; }
}

RESIDENCY_INLINE void ReleaseSearch::consider_start(std::vector<std::uint32_t> streamed_per_step) {
    Solution now;
    now.candidate.streamed_per_step = std::move(streamed_per_step);
    now.candidate.joins.assign(problem_.steps(), 0);
    for (std::uint8_t wider = 0; wider < tuning::release_wide_steps(config_.effort); ++wider) {
        for (const bool backward : {false, true}) {
            now.candidate.wider = wider;
            now.candidate.backward = backward;
            now.seconds = ring_.evaluate(now.candidate, best_.seconds);
            if (now.seconds < best_.seconds) { best_ = now; }
        }
    }
}

// Changes what was found, many chunks first, for as long as something helps.
RESIDENCY_INLINE void ReleaseSearch::descend(Solution& now) {
    for (double before = RingEvaluator::impossible; now.seconds < before * (1 - tuning::release_gain) && !ends(now);) {
        before = now.seconds;
        for (std::uint32_t chunks = tuning::release_most_chunks; chunks > 0; chunks /= 2) {
            for (double last = RingEvaluator::impossible; now.seconds < last && !ends(now);) {
                last = now.seconds;
                stream_otherwise(now, chunks);
            }
        }
        assign_otherwise(now);
    }
}

// Each step streams some chunks less or more, or others do in its place.
RESIDENCY_INLINE void ReleaseSearch::stream_otherwise(Solution& now, std::uint32_t chunks) {
    std::vector<std::uint32_t>& streamed = now.candidate.streamed_per_step;
    const auto has_room = [&](std::uint32_t step) { return streamed[step] + chunks <= problem_.capacity()[step]; };
    const std::size_t count = able_.size(), reach = (std::min)(tuning::release_reach(config_.effort), count);
    for (std::size_t k = 0; k < count; ++k) {
        const std::uint32_t a = able_[k];
        if (ends(now)) { return; }
        if (streamed[a] >= chunks) {
            streamed[a] -= chunks;
            if (!keeps(now)) { streamed[a] += chunks; }
        }
        if (has_room(a)) {
            streamed[a] += chunks;
            if (!keeps(now)) { streamed[a] -= chunks; }
        }
        for (std::size_t distance = 1; distance < reach && streamed[a] >= chunks; ++distance) {
            const std::uint32_t b = able_[(k + distance) % count];
            if (!has_room(b)) { continue; }
            streamed[a] -= chunks;
            streamed[b] += chunks;
            if (!keeps(now)) {
                streamed[a] += chunks;
                streamed[b] -= chunks;
            }
            if (ends(now)) { return; }
        }
    }
}

RESIDENCY_INLINE void ReleaseSearch::assign_otherwise(Solution& now) {
    for (std::uint8_t wider = 0; wider < tuning::release_wide_steps(config_.effort); ++wider) {
        for (const bool backward : {false, true}) {
            const auto before = std::pair{now.candidate.wider, now.candidate.backward};
            now.candidate.wider = wider;
            now.candidate.backward = backward;
            if (!keeps(now)) { std::tie(now.candidate.wider, now.candidate.backward) = before; }
        }
    }
    for (double last = RingEvaluator::impossible; now.seconds < last && !ends(now);) {
        last = now.seconds;
        for (const std::uint32_t step : able_) {
            for (unsigned number = 0; number < tuning::release_joins && !ends(now); ++number) {
                std::uint8_t& joins = now.candidate.joins[step];
                joins = static_cast<std::uint8_t>(joins ^ 1U << number);
                if (!keeps(now)) { joins = static_cast<std::uint8_t>(joins ^ 1U << number); }
            }
        }
    }
}

// Takes random changes that leave a ring within some seconds of the best one, fewer and fewer of them (record-to-record travel, Dueck
// 1993).
RESIDENCY_INLINE void ReleaseSearch::travel(std::uint64_t most_work, Changes changes) {
    const std::uint64_t begin = work();
    const double allowance = tuning::release_allowance / problem_.chunks_per_second();
    random_ = {};
    Solution now = best_;
    stop_ = begin + most_work;
    while (!ends(best_)) {
        const double left = 1 - static_cast<double>(work() - begin) / static_cast<double>(most_work);
        const double limit = best_.seconds + allowance * left;
        const ReleaseCandidate before = now.candidate;
        for (int made = 0; made < tuning::release_changes;) { made += change(now.candidate, changes) ? 1 : 0; }
        now.seconds = ring_.evaluate(now.candidate, limit);
        if (now.seconds > limit) {
            now.candidate = before;
        } else if (now.seconds < best_.seconds) {
            best_ = now;
        }
    }
}

// One random change: of each twenty, eleven stream some chunks at another step, four stream more or less, three join or part calls
// and two bring slots back in another way. False where that changes nothing.
RESIDENCY_INLINE bool ReleaseSearch::change(ReleaseCandidate& candidate, Changes changes) {
    const std::uint64_t kind = changes == Changes::same_chunks ? 15 + random_(5) : random_(20);
    const std::vector<std::uint32_t>& steps = random_(4) == 0 ? able_ : wide_;
    const std::uint32_t a = steps[random_(steps.size())], b = steps[random_(steps.size())];
    const bool keeps_size = changes != Changes::all;
    const auto chunks = static_cast<std::uint32_t>(keeps_size ? 1 : 1 + random_(2) * random_(2) * (1 + random_(3)));
    std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    const auto room = [&](std::uint32_t step) {
        return static_cast<std::uint32_t>(problem_.capacity()[step]) - streamed[step];
    };
    if (kind < (keeps_size ? 15U : 11U)) {
        const std::uint32_t moved = (std::min)({chunks, streamed[a], room(b)});
        streamed[a] -= moved;
        streamed[b] += moved;
        return moved != 0 && a != b;
    }
    if (kind < 13) {
        const std::uint32_t less = (std::min)(chunks, streamed[a]);
        streamed[a] -= less;
        return less != 0;
    }
    if (kind < 15) {
        const std::uint32_t more = (std::min)(chunks, room(a));
        streamed[a] += more;
        return more != 0;
    }
    if (kind < 18) {
        const std::uint32_t step = able_[random_(able_.size())];
        const std::uint64_t number = random_(tuning::release_joins);
        if (streamed[step] <= number) { return false; }  // so many calls it has not
        candidate.joins[step] = static_cast<std::uint8_t>(candidate.joins[step] ^ 1U << number);
        return true;
    }
    const auto before = std::pair{candidate.wider, candidate.backward};
    candidate.wider = static_cast<std::uint8_t>(random_(tuning::release_wide_steps(config_.effort)));
    candidate.backward = random_(2) != 0;
    return before != std::pair{candidate.wider, candidate.backward};
}

// Whether the candidate, changed, is faster than it was.
RESIDENCY_INLINE bool ReleaseSearch::keeps(Solution& now) {
    const double seconds = ring_.evaluate(now.candidate, now.seconds);
    if (seconds >= now.seconds * (1 - tuning::refine_gain)) { return false; }
    now.seconds = seconds;
    return true;
}

RESIDENCY_INLINE bool ReleaseSearch::ends(const Solution& now) const {
    return work() >= stop_ || now.seconds <= config_.bound_seconds * (1 + tuning::refine_ends_within);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
