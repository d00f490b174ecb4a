// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "residency/plan/release_search.hpp"
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

RESIDENCY_INLINE ReleaseSearch::ReleaseSearch(const RingProblem& problem, const SearchLimits& limits)
    : problem_{problem}, limits_{limits}, ring_{problem} {
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.capacity()[i] > 0) { able_.push_back(i); }
        if (problem.capacity()[i] >= tuning::release_several_chunks) { wide_.push_back(i); }
    }
    if (wide_.size() < 2) { wide_ = able_; }
}

RESIDENCY_INLINE bool ReleaseSearch::search(const std::vector<std::uint32_t>& streamed_per_step) {
    best_ = {};
    stop_ = work() + limits_.share_of(tuning::release_work(limits_.effort));
    start(streamed_per_step);
    if (best_.seconds == RingCalls::impossible) { return false; }
    descend(best_);
    return true;
}

RESIDENCY_INLINE void ReleaseSearch::improve(const Solution& found) {
    best_ = found;
    change_at_random(tuning::release_improve_work(limits_.effort), Changes::all);
    stop_ = work() + limits_.share_of(tuning::release_work(limits_.effort));
    descend(best_);
}

RESIDENCY_INLINE bool ReleaseSearch::search_calls(const std::vector<std::uint32_t>& streamed_per_step) {
    best_ = {};
    consider_start(streamed_per_step);
    if (best_.seconds == RingCalls::impossible) { return false; }
    const std::uint64_t most_work = tuning::release_work(limits_.effort);
    stop_ = work() + limits_.share_of(most_work);
    assign_otherwise(best_);
    change_at_random(most_work, Changes::of_calls);
    return true;
}

RESIDENCY_INLINE bool ReleaseSearch::approach(const Solution& found) {
    const double most_seconds = found.seconds * (1 + tuning::refetch_loss);
    best_.candidate = found.candidate;
    best_.seconds = ring_.evaluate(best_.candidate, RingCalls::impossible);
    if (best_.seconds > most_seconds) { return false; }
    const double per_load = 1 / (tuning::refetch_passes * problem_.chunks_per_second());
    double cost = best_.seconds + per_load * loads(best_.candidate);
    travel(
        best_.candidate, cost, limits_, limits_.share_of(tuning::release_improve_work(limits_.effort)),
        [&](ReleaseCandidate& candidate, Random& random) {
            if (random(2) == 0 && keep_resident(candidate, random)) { return; }
            while (!change(candidate, Changes::all, random)) {}
        },
        [&](const ReleaseCandidate& candidate, double give_up) {
            const double seconds = ring_.evaluate(candidate, (std::min)(give_up, most_seconds));
            return seconds > most_seconds ? RingCalls::impossible : seconds + per_load * loads(candidate);
        },
        [&] { return work(); });
    best_.seconds = ring_.evaluate(best_.candidate, RingCalls::impossible);
    return true;
}

// Chunks that stay and that memory lacks.
RESIDENCY_INLINE double ReleaseSearch::loads(const ReleaseCandidate& candidate) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    std::uint64_t sum = 0;
    for (const RingPart& part : problem_.parts()) { sum += problem_.absent(part.chunk_begin, part.chunk_end); }
    for (const StreamedRun& run : stream_) { sum -= problem_.absent(run.chunk_begin, run.chunk_begin + run.chunks); }
    return static_cast<double>(sum);
}

// A step that streams what the plan before keeps leaves a chunk to one that keeps what that plan streams. False where there are no two.
RESIDENCY_INLINE bool ReleaseSearch::keep_resident(ReleaseCandidate& candidate, Random& random) const {
    std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    std::vector<std::uint32_t> more, less;  // than the plan before streams
    for (const std::uint32_t i : able_) {
        if (streamed[i] > problem_.nonresident()[i]) { more.push_back(i); }
        if (streamed[i] < problem_.nonresident()[i]) { less.push_back(i); }
    }
    if (more.empty() || less.empty()) { return false; }
    --streamed[more[random(more.size())]];
    ++streamed[less[random(less.size())]];
    return true;
}

RESIDENCY_INLINE void ReleaseSearch::start(const std::vector<std::uint32_t>& streamed_per_step) {
    if (!streamed_per_step.empty()) { consider_start(streamed_per_step); }
    const double widest = *std::max_element(problem_.capacity().begin(), problem_.capacity().end());
    const double least = std::ceil(detail::least_level(problem_, widest));
    Fluid fluid{problem_.capacity(), problem_.compute(), problem_.chunks_per_second()};
    const int sizes = tuning::release_sizes(limits_.effort);
    for (int k = 0; k < sizes && work() < stop_; ++k) {
        const double part = k / static_cast<double>(sizes);
        start_with_ring(fluid, static_cast<double>(problem_.budget()) * std::pow(tuning::release_least_ring, part));
        const double level = std::floor(least + (widest - least) * part * part);
        consider_start(detail::rounded(problem_, problem_.capacity(), level));
    }
}

RESIDENCY_INLINE void ReleaseSearch::start_with_ring(Fluid& fluid, double ring) {
    if (ring < 1 || !fluid.solve(ring, static_cast<double>(problem_.deficit()))) { return; }
    consider_start(detail::rounded(problem_, fluid.stream(), ring));
}

RESIDENCY_INLINE void ReleaseSearch::consider_start(std::vector<std::uint32_t> streamed_per_step) {
    Solution now;
    now.candidate.streamed_per_step = std::move(streamed_per_step);
    now.candidate.joins.assign(problem_.steps(), 0);
    for (std::uint8_t wider = 0; wider < tuning::release_wide_steps(limits_.effort); ++wider) {
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
    for (double before = RingCalls::impossible; now.seconds < before * (1 - tuning::release_gain) && !ends(now);) {
        before = now.seconds;
        for (std::uint32_t chunks = tuning::release_most_chunks; chunks > 0; chunks /= 2) {
            for (double last = RingCalls::impossible; now.seconds < last && !ends(now);) {
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
    const std::size_t count = able_.size(), reach = (std::min)(tuning::release_reach(limits_.effort), count);
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
    for (std::uint8_t wider = 0; wider < tuning::release_wide_steps(limits_.effort); ++wider) {
        for (const bool backward : {false, true}) {
            const auto before = std::pair{now.candidate.wider, now.candidate.backward};
            now.candidate.wider = wider;
            now.candidate.backward = backward;
            if (!keeps(now)) { std::tie(now.candidate.wider, now.candidate.backward) = before; }
        }
    }
    for (double last = RingCalls::impossible; now.seconds < last && !ends(now);) {
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

RESIDENCY_INLINE void ReleaseSearch::change_at_random(std::uint64_t most_work, Changes changes) {
    travel(
        best_.candidate, best_.seconds, limits_, limits_.share_of(most_work),
        [&](ReleaseCandidate& candidate, Random& random) {
            while (!change(candidate, changes, random)) {}
        },
        [&](const ReleaseCandidate& candidate, double give_up) { return ring_.evaluate(candidate, give_up); },
        [&] { return work(); });
}

// One random change: of each twenty, eleven stream some chunks at another step, four stream more or less, three join or part calls
// and two bring slots back in another way. False where that changes nothing.
RESIDENCY_INLINE bool ReleaseSearch::change(ReleaseCandidate& candidate, Changes changes, Random& random) const {
    const std::uint64_t kind = changes == Changes::of_calls ? 15 + random(5) : random(20);
    const std::vector<std::uint32_t>& steps = random(4) == 0 ? able_ : wide_;
    const std::uint32_t a = steps[random(steps.size())], b = steps[random(steps.size())];
    const auto chunks = static_cast<std::uint32_t>(1 + random(2) * random(2) * (1 + random(3)));
    std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    const auto room = [&](std::uint32_t step) {
        return static_cast<std::uint32_t>(problem_.capacity()[step]) - streamed[step];
    };
    if (kind < 11) {
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
        const std::uint32_t step = able_[random(able_.size())];
        const std::uint64_t number = random(tuning::release_joins);
        if (streamed[step] <= number) { return false; }  // so many calls it has not
        candidate.joins[step] = static_cast<std::uint8_t>(candidate.joins[step] ^ 1U << number);
        return true;
    }
    const auto before = std::pair{candidate.wider, candidate.backward};
    candidate.wider = static_cast<std::uint8_t>(random(tuning::release_wide_steps(limits_.effort)));
    candidate.backward = random(2) != 0;
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
    return work() >= stop_ || limits_.is_near(now.seconds);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
