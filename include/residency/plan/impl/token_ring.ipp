// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "residency/model/sort.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/token_ring.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

inline std::uint32_t blocks_for(std::uint32_t slots, double piece_chunks) {
    return (std::clamp)(static_cast<std::uint32_t>(std::lround(slots / piece_chunks)), (std::min)(2U, slots), slots);
}

}  // namespace detail

RESIDENCY_INLINE TokenRing::TokenRing(RingProblem problem, const SearchLimits& limits)
    : limits_{limits}, problem_{std::move(problem)}, evaluator_{problem_}, rounding_{problem_} {}

RESIDENCY_INLINE bool TokenRing::Choice::operator<(const Choice& other) const noexcept {
    return std::tie(seconds, slots, blocks, target, phase) <
           std::tie(other.seconds, other.slots, other.blocks, other.target, other.phase);
}

RESIDENCY_INLINE RingSolution TokenRing::search(double known_seconds) {
    best_ = {};
    limit_seconds_ = 0;
    tried_.clear();
    done_.clear();
    most_work_ = work() + limits_.share_of((std::max)(tuning::ring_work_least(limits_.effort),
                                                      tuning::ring_work_per_step(limits_.effort) * problem_.steps()));
    const std::vector<Choice> seeds = coarse_grid();
    for (std::size_t k = 0; k < seeds.size() && k < tuning::descents(limits_.effort); ++k) { descend(seeds[k]); }
    if (!best_.found || best_.seconds > known_seconds * (1 + tuning::refine_from)) { return std::move(best_); }
    const Choice chosen = smallest_as_fast();
    best_.found = false;
    tried_.clear();
    std::vector<Choice> found;
    attempt(chosen, found);
    refine(limits_.share_of(tuning::refine_work(limits_.effort)));
    return std::move(best_);
}

// Rings of many sizes with pieces of a few sizes, the fastest ones first.
RESIDENCY_INLINE std::vector<TokenRing::Choice> TokenRing::coarse_grid() {
    const auto deficit = static_cast<double>(problem_.deficit());
    // The piece that balances the latency of the calls with the size of the ring.
    const double piece = (std::max)(1.0, std::sqrt(problem_.latency() * problem_.chunks_per_second() * deficit / 2));
    std::vector<Choice> seeds;
    std::uint32_t last_slots = 0;
    for (double rounds = 2; rounds <= deficit + 1;
         rounds = (std::max)(rounds + 1, std::floor(rounds * tuning::grid_growth(limits_.effort)))) {
        const std::uint32_t slots = problem_.slots_for(static_cast<std::uint32_t>(rounds));
        if (slots == last_slots || !problem_.fits(slots)) { continue; }
        last_slots = slots;
        const std::size_t before = seeds.size();
        for (const double chunks : tuning::grid_piece_chunks) {
            attempt({slots, detail::blocks_for(slots, chunks), 1, 2}, seeds);
        }
        for (const double factor : tuning::grid_piece_factors) {
            attempt({slots, detail::blocks_for(slots, factor * piece), 1, 2}, seeds);
        }
        // Where the relaxation has no such ring, steps stream in proportion to what they may.
        if (seeds.size() == before) { attempt({slots, detail::blocks_for(slots, piece), target_kinds - 1, 2}, seeds); }
    }
    residency::detail::sort(seeds);
    return seeds;
}

// Changes one property at a time for as long as the best change helps.
RESIDENCY_INLINE void TokenRing::descend(Choice from) {
    std::vector<Choice> found;
    for (bool again = true; again;) {
        again = false;
        found.clear();
        const double piece = from.piece_chunks();
        for (int target = 0; target < target_kinds; ++target) {
            attempt({from.slots, from.blocks, target, from.phase}, found);
        }
        for (const std::uint32_t blocks : {from.blocks - 1, from.blocks + 1, from.blocks / 2, from.blocks * 2}) {
            attempt({from.slots, blocks, from.target, from.phase}, found);
        }
        for (const std::uint32_t blocks : tuning::descent_block_counts) {
            attempt({from.slots, blocks, from.target, from.phase}, found);
        }
        for (const double factor : tuning::descent_slot_factors) {
            const auto slots = static_cast<std::uint32_t>((std::max)(1.0, std::round(from.slots * factor)));
            attempt({slots, detail::blocks_for(slots, piece), from.target, from.phase}, found);
            attempt({slots, from.blocks, from.target, from.phase}, found);
        }
        for (const std::uint32_t slots : {from.slots - 1, from.slots + 1}) {
            attempt({slots, from.blocks, from.target, from.phase}, found);
            attempt({slots, detail::blocks_for(slots, piece), from.target, from.phase}, found);
        }
        for (std::uint8_t phase = 0; phase < tuning::phases; ++phase) {
            attempt({from.slots, from.blocks, from.target, phase}, found);
        }
        const auto next = std::min_element(found.begin(), found.end());
        if (next != found.end() && next->seconds < from.seconds * (1 - tuning::descent_gain)) {
            from = *next;
            again = true;
        }
    }
}

// Of the choices that are as fast as the best, the one with the smallest ring, which moves the fewest bytes; then smaller rings for
// as long as they are as fast.
RESIDENCY_INLINE TokenRing::Choice TokenRing::smallest_as_fast() {
    const double limit = best_.seconds * (1 + tuning::as_fast);
    Choice chosen;
    for (const Choice& choice : done_) {
        if (choice.seconds <= limit && (chosen.slots == 0 || choice.slots < chosen.slots ||
                                        (choice.slots == chosen.slots && choice.seconds < chosen.seconds))) {
            chosen = choice;
        }
    }
    std::vector<Choice> found;
    for (double factor = tuning::shrink_first; factor < tuning::shrink_last; factor = (1 + factor) / 2) {
        for (bool again = true; again;) {
            again = false;
            const auto slots = static_cast<std::uint32_t>(chosen.slots * factor);
            found.clear();
            attempt({slots, detail::blocks_for(slots, chosen.piece_chunks()), chosen.target, chosen.phase}, found);
            for (const Choice& choice : found) {
                if (choice.seconds <= limit && choice.slots < chosen.slots) {
                    chosen = choice;
                    again = true;
                }
            }
        }
    }
    return chosen;
}

// Changes the best ring in small ways for as long as one helps.
RESIDENCY_INLINE void TokenRing::refine(std::uint64_t most_work) {
    const bool by_loads = limit_seconds_ > 0;
    const std::size_t pieces = best_.call_begins.size();
    const RingNeighbourhood neighbourhood{problem_, pieces,
                                          by_loads ? tuning::refetch_reach_steps : tuning::refine_reach_steps};
    const std::uint64_t stop = (std::min)(most_work_, work() + most_work);
    const auto ends = [&] {
        return work() >= stop || (by_loads ? best_.seconds <= limit_seconds_ && best_.loads <= few_loads_
                                           : limits_.is_near(best_.seconds));
    };
    RingCandidate ring = best_.ring;
    ring.joins.resize(pieces, 0);
    const auto helps = [&] {
        const double before = best_.seconds;
        const std::uint64_t loads = best_.loads;
        const double now = consider(ring, (std::max)(before, limit_seconds_));
        return now < before * (1 - tuning::refine_gain) || (by_loads && best_.loads < loads);
    };
    std::vector<RingChange> changes;
    std::size_t idle = 0;  // positions since the last one that helped
    for (std::size_t at = 0; !ends() && idle <= neighbourhood.positions(); at = (at + 1) % neighbourhood.positions()) {
        ++idle;
        neighbourhood.changes_at(at, ring, best_.call_begins, changes);
        for (const RingChange& change : changes) {
            change.apply(ring);
            if (helps()) {
                if (change.chunks != 0) { ring.streamed_per_step = best_.ring.streamed_per_step; }
                idle = 0;
                break;
            }
            change.undo(ring);
            if (ends()) { break; }
        }
    }
}

// Evaluates a choice that was not evaluated before.
RESIDENCY_INLINE void TokenRing::attempt(Choice choice, std::vector<Choice>& found) {
    if (choice.blocks == 0 || choice.blocks > choice.slots || !problem_.fits(choice.slots)) { return; }
    const std::uint32_t rounds = problem_.rounds_for(choice.slots);
    choice.slots = problem_.slots_for(rounds);
    if (choice.blocks > choice.slots || !problem_.fits(choice.slots)) { return; }
    const double per_step = tuning::pieces_per_step(limits_.effort) * problem_.steps();
    const double least = tuning::pieces_least(limits_.effort);
    const double most = limits_.effort == Effort::full ? (std::max)(least, per_step) : per_step + least;
    if (static_cast<double>(rounds) * choice.blocks > most) {
        choice.blocks = (std::min)(choice.blocks, (std::max)(2U, static_cast<std::uint32_t>(most / rounds)));
    }
    static_assert(target_kinds * tuning::phases <= 16, "the key has four bits for both");
    const std::uint64_t key = (std::uint64_t{choice.slots} << 34) ^ (std::uint64_t{choice.blocks} << 4) ^
                              static_cast<std::uint64_t>(choice.target * tuning::phases + choice.phase);
    const auto at = std::lower_bound(tried_.begin(), tried_.end(), key);
    if (at != tried_.end() && *at == key) { return; }
    tried_.insert(at, key);
    double give_up = RingCalls::impossible;
    if (best_.found) {
        give_up = best_.seconds * (1 + tuning::as_fast);
        const double least_chunks = static_cast<double>(problem_.deficit() + choice.slots) - problem_.missing_chunks();
        const double busy = least_chunks / problem_.chunks_per_second();
        if (work() > most_work_ || busy > give_up) { return; }
    }
    const RingShape shape{choice.slots, rounds, choice.blocks};
    std::vector<double> target;
    RingCandidate candidate;
    if (!fluid_target(problem_, shape, choice.target, target) ||
        !rounding_.round(target, shape, choice.phase / static_cast<double>(tuning::phases), candidate)) {
        return;
    }
    choice.seconds = consider(candidate, give_up);
    if (choice.seconds < RingCalls::impossible) {
        found.push_back(choice);
        done_.push_back(choice);
    }
}

// Seconds of a candidate, as RingEvaluator::evaluate says; keeps it if it is the best.
RESIDENCY_INLINE double TokenRing::consider(const RingCandidate& candidate, double give_up) {
    const double seconds = evaluator_.evaluate(candidate, give_up);
    if (seconds == RingCalls::impossible || seconds > give_up) { return seconds; }
    RingSolution now;
    now.seconds = seconds;
    if (limit_seconds_ > 0) { now.loads = evaluator_.loads(candidate); }
    if (!best_.found || is_better(now, best_)) {
        best_.found = true;
        best_.ring = candidate;
        best_.seconds = seconds;
        best_.call_begins = evaluator_.call_begins();
        best_.loads = now.loads;
    }
    return seconds;
}

// Faster; where rings are compared by their loads too, cheaper over the passes that a plan may last.
RESIDENCY_INLINE bool TokenRing::is_better(const RingSolution& a, const RingSolution& b) const {
    if (limit_seconds_ == 0) { return a.seconds < b.seconds; }
    double x = a.seconds, y = b.seconds;
    if (x <= limit_seconds_ && y <= limit_seconds_) {
        const double per_load = 1 / (tuning::refetch_passes * problem_.chunks_per_second());
        x += static_cast<double>(a.loads) * per_load;
        y += static_cast<double>(b.loads) * per_load;
    }
    return x < y * (1 - tuning::refine_gain);
}

RESIDENCY_INLINE RingSolution TokenRing::approach(const RingSolution& found) {
    best_ = {};
    limit_seconds_ = found.seconds * (1 + tuning::refetch_loss);
    static_cast<void>(consider(found.ring, RingCalls::impossible));
    if (!best_.found) { return {}; }
    std::uint64_t there = 0, streamed_there = 0;
    for (const RingPart& part : problem_.parts()) {
        const std::uint32_t absent = problem_.absent(part.chunk_begin, part.chunk_end);
        there += part.chunks() - absent;
        streamed_there += problem_.nonresident(part.chunk_begin, part.chunk_end) - absent;
    }
    const RingShape shape = best_.ring.shape;
    few_loads_ =
        (problem_.budget() > there ? problem_.budget() - there : 0) +
        static_cast<std::uint64_t>(static_cast<double>(problem_.deficit() + shape.slots) * tuning::refetch_few_share);
    if (best_.loads <= few_loads_) { return std::move(best_); }
    const std::uint64_t most = (std::max)(tuning::refetch_work_least(limits_.effort),
                                          tuning::refetch_work_per_step(limits_.effort) * problem_.steps());
    most_work_ = work() + 2 * most;
    const double good_seconds = found.seconds * (1 + tuning::refetch_good_loss);
    const auto ends = [&] {
        return work() >= most_work_ || (best_.loads <= few_loads_ && best_.seconds <= good_seconds);
    };
    std::vector<RingSolution> slower;
    std::vector<double> target;
    RingCandidate candidate;
    for (const RingShape& nearby : shapes_near(shape, streamed_there)) {
        for (int kind = 0; kind <= target_kinds; ++kind) {
            if (!refetch_target(problem_, nearby, kind, target)) { continue; }
            for (int phase = 0; phase < tuning::phases && !ends(); ++phase) {
                if (!rounding_.round(target, nearby, phase / static_cast<double>(tuning::phases), candidate)) {
                    continue;
                }
                RingSolution kept = std::exchange(best_, {});
                static_cast<void>(consider(candidate, RingCalls::impossible));
                RingSolution now = std::exchange(best_, std::move(kept));
                if (!now.found) { continue; }
                if (is_better(now, best_)) {
                    best_ = std::move(now);
                } else if (now.seconds > limit_seconds_ && now.loads < best_.loads) {
                    slower.push_back(std::move(now));
                }
            }
        }
    }
    // Small changes make some of the slower ones fast, and the best one better.
    std::sort(slower.begin(), slower.end(),
              [](const RingSolution& a, const RingSolution& b) { return a.seconds < b.seconds; });
    slower.resize((std::min)(slower.size(), tuning::refetch_slower_rings));
    RingSolution nearest = std::move(best_);
    for (RingSolution& start : slower) {
        if (start.loads >= nearest.loads) { continue; }
        best_ = std::move(start);
        most_work_ = work() + most / 2;
        refine(most / 2);
        if (is_better(best_, nearest)) { nearest = std::move(best_); }
    }
    best_ = std::move(nearest);
    most_work_ = work() + most;
    refine(most);
    return std::move(best_);
}

// Shapes like the given one, and with as many slots as chunks are in memory that the plan before streams.
RESIDENCY_INLINE std::vector<RingShape> TokenRing::shapes_near(const RingShape& shape,
                                                               std::uint64_t streamed_there) const {
    std::vector<RingShape> shapes;
    const double most = shape.slots + tuning::refetch_larger_ring * static_cast<double>(problem_.deficit());
    for (const std::uint64_t wanted : {std::uint64_t{shape.slots}, streamed_there}) {
        if (wanted == 0 || static_cast<double>(wanted) > most) { continue; }
        const std::uint32_t rounds = problem_.rounds_for(wanted), slots = problem_.slots_for(rounds);
        if (!problem_.fits(slots)) { continue; }
        for (const std::uint32_t blocks : {shape.blocks, detail::blocks_for(slots, shape.piece_chunks()),
                                           shape.blocks + 1, shape.blocks - 1, shape.blocks * 2, shape.blocks / 2}) {
            bool is_new = blocks != 0 && blocks <= slots;
            for (const RingShape& other : shapes) {
                is_new = is_new && (other.slots != slots || other.blocks != blocks);
            }
            if (is_new) { shapes.push_back({slots, rounds, blocks}); }
        }
    }
    return shapes;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
