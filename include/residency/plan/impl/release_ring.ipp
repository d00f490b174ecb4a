// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/plan/copy.hpp"
#include "residency/plan/release_ring.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE double ReleaseRing::evaluate(const ReleaseCandidate& candidate, double give_up) {
    built_ += tuning::evaluation_work;
    const std::uint64_t streamed = candidate.streamed();
    if (streamed <= problem_.deficit()) { return RingCalls::impossible; }
    const double idle = least_idle(candidate.streamed_per_step, streamed - problem_.deficit());
    auto copied = static_cast<double>(streamed);
    for (std::uint32_t i = 0; problem_.missing_chunks() > 0 && i < problem_.steps(); ++i) {
        copied -= candidate.streamed_per_step[i] != 0 ? problem_.missing()[i] : 0;
    }
    const double least = copied / problem_.chunks_per_second() + idle;
    if (least > give_up) {
        built_ += problem_.steps();
        return least;
    }
    if (!build(candidate, streamed, RingCalls::Keeps::times)) { return RingCalls::impossible; }
    return calls_.seconds(give_up, idle);
}

// Seconds that the link idles beside steps that leave few slots: each of those gets one chunk while the step runs, by a call of its own at
// most.
RESIDENCY_INLINE double ReleaseRing::least_idle(const std::vector<std::uint32_t>& streamed_per_step,
                                                std::uint64_t slots) const {
    const double seconds_per_call = 1 / problem_.chunks_per_second() + problem_.latency();
    double idle = 0;
    for (std::uint32_t i = 0; i < streamed_per_step.size(); ++i) {
        const double others = static_cast<double>(slots) - streamed_per_step[i];
        idle += (std::max)(0.0, problem_.compute()[i] - others * seconds_per_call);
    }
    return idle;
}

RESIDENCY_INLINE bool ReleaseRing::build(const ReleaseCandidate& candidate, std::uint64_t streamed,
                                         RingCalls::Keeps keeps) {
    built_ += problem_.steps();
    if (!problem_.fits(streamed - problem_.deficit())) { return false; }
    slots_ = static_cast<std::uint32_t>(streamed - problem_.deficit());
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    const std::uint32_t wide = wide_step(candidate.wider);
    return wide != none && take_slots(wide, candidate.backward) && close() && make_calls(candidate.joins, keeps);
}

// A step that releases many slots and leaves none to the next one; so many others release more. None where there is no such step.
RESIDENCY_INLINE std::uint32_t ReleaseRing::wide_step(std::size_t wider) {
    released_.clear();
    std::uint32_t ends = 0;  // steps before that have a chunk that the next step reads too
    for (std::size_t k = 0; k < stream_.size();) {
        const std::uint32_t step = stream_[k].first;
        std::uint32_t chunks = 0;
        for (; k < stream_.size() && stream_[k].first == step; ++k) {
            if (stream_[k].last == step) { chunks += stream_[k].chunks; }
            ends = (std::max)(ends, stream_[k].last);
        }
        if (ends <= step && chunks > 0) { released_.push_back({chunks, step}); }
    }
    if (wider >= released_.size()) { return none; }
    const auto at = released_.begin() + static_cast<std::ptrdiff_t>(wider);
    std::nth_element(released_.begin(), at, released_.end(), [](const auto& x, const auto& y) {
        return x.first != y.first ? x.first > y.first : x.second < y.second;
    });
    return at->second;
}

// Gives each run of the stream its slots, from the step after the wide one to that one. False where a step needs more than there are.
RESIDENCY_INLINE bool ReleaseRing::take_slots(std::uint32_t wide, bool backward) {
    const std::uint32_t n = problem_.steps();
    const auto since = [&](std::uint32_t step) {
        return static_cast<std::int32_t>(step > wide ? step - wide - 1 : step + n - wide - 1);
    };
    std::uint64_t streamed = 0;
    std::uint32_t last_released = 0;
    for (const StreamedRun& run : stream_) {
        streamed += run.chunks;
        if (run.last == wide) { last_released += run.chunks; }
    }
    if (last_released > slots_) { return false; }
    const auto further = static_cast<std::uint32_t>(streamed % slots_);
    pieces_.clear();
    queue_.clear();
    head_ = 0;
    reordered_ = -1;
    if (last_released < slots_) {
        queue_.push_back({-2, none, 0, slots_ - last_released, backward ? (slots_ - further) % slots_ : further, true});
    }
    queue_.push_back({-1, none, slots_ - last_released, last_released, 0, false});
    const auto count = static_cast<std::uint32_t>(stream_.size());
    std::uint32_t begin = 0;
    while (begin < count && stream_[begin].first <= wide) { ++begin; }
    for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t run = begin + k < count ? begin + k : begin + k - count;
        if (!take_slots_of_run(run, since(stream_[run].first), since(stream_[run].last), backward)) { return false; }
    }
    return true;
}

RESIDENCY_INLINE bool ReleaseRing::take_slots_of_run(std::uint32_t run, std::int32_t first, std::int32_t last,
                                                     bool backward) {
    const std::uint32_t first_step = stream_[run].first, last_step = stream_[run].last;
    for (std::uint32_t left = stream_[run].chunks; left > 0;) {
        if (head_ == queue_.size() || queue_[head_].released >= first) { return false; }
        if (queue_[head_].released > reordered_) { reorder_released(backward); }
        Slots taken = queue_[head_];
        const std::uint32_t x = (std::min)(left, taken.count);
        if (x == taken.count) {
            ++head_;
        } else {
            queue_[head_].slot += x;
            queue_[head_].count -= x;
        }
        left -= x;
        const bool previous = taken.step == none || taken.step >= first_step;
        pieces_.push_back({run, taken.slot, x, taken.step, previous});
        // What it releases in turn: no step takes it before that.
        taken.released = last;
        taken.step = last_step;
        taken.count = x;
        queue_.push_back(taken);
        for (std::size_t at = queue_.size() - 1; at > head_ && queue_[at - 1].released > last; --at) {
            std::swap(queue_[at - 1], queue_[at]);
        }
    }
    return true;
}

// Among the slots that are released together, those that have to come back move by as many places as they still have to.
RESIDENCY_INLINE void ReleaseRing::reorder_released(bool backward) {
    reordered_ = queue_[head_].released;
    std::size_t end = head_;
    while (end < queue_.size() && queue_[end].released == reordered_) { ++end; }
    const auto split = [&](std::size_t at, std::uint32_t chunks) {  // the first part has so many
        Slots part = queue_[at];
        part.count = chunks;
        queue_[at].slot += chunks;
        queue_[at].count -= chunks;
        queue_.insert(queue_.begin() + static_cast<std::ptrdiff_t>(at), part);
        ++end;
    };
    if (backward) {
        for (std::size_t start = head_; start < end; ++start) {
            for (std::size_t at = start; at > head_ && queue_[at].places > 0 && !queue_[at - 1].returns; --at) {
                if (queue_[at - 1].count > queue_[at].places) {
                    split(at - 1, queue_[at - 1].count - queue_[at].places);
                    ++at;
                    ++start;
                }
                queue_[at].places -= queue_[at - 1].count;
                std::swap(queue_[at - 1], queue_[at]);
            }
        }
        return;
    }
    for (std::size_t start = end; start-- > head_;) {
        for (std::size_t at = start; at + 1 < end && queue_[at].places > 0 && !queue_[at + 1].returns; ++at) {
            if (queue_[at + 1].count > queue_[at].places) { split(at + 1, queue_[at].places); }
            queue_[at].places -= queue_[at + 1].count;
            std::swap(queue_[at], queue_[at + 1]);
        }
    }
}

// What was not known: which steps of the pass before release the slots that are taken first. False where a slot is not taken at all.
RESIDENCY_INLINE bool ReleaseRing::close() {
    last_reader_.resize(slots_);
    for (std::size_t k = head_; k < queue_.size(); ++k) {
        if (queue_[k].step == none) { return false; }
        std::fill_n(last_reader_.begin() + queue_[k].slot, queue_[k].count, queue_[k].step);
    }
    const std::size_t count = pieces_.size();
    for (std::size_t p = 0; p < count; ++p) {
        if (pieces_[p].wait != none) { continue; }
        Piece piece = pieces_[p];
        const std::uint32_t end = piece.slot + piece.count;
        for (bool is_first = true; piece.slot < end; is_first = false) {
            piece.wait = last_reader_[piece.slot];
            piece.previous = piece.wait >= stream_[piece.run].first;
            piece.count = 1;
            while (piece.slot + piece.count < end && last_reader_[piece.slot + piece.count] == piece.wait) {
                ++piece.count;
            }
            if (is_first) {
                pieces_[p] = piece;
            } else {
                pieces_.push_back(piece);
            }
            piece.slot += piece.count;
        }
    }
    return true;
}

// In the order of the copy stream: by step, then by the release that they follow. They nearly are but for where the stream begins.
RESIDENCY_INLINE void ReleaseRing::sort_pieces() {
    order_.resize(pieces_.size());
    std::size_t count = 0;
    const auto add = [&](std::size_t from, std::size_t to) {
        for (std::size_t p = from; p < to; ++p) {
            const Piece& piece = pieces_[p];
            const Order next{std::uint64_t{stream_[piece.run].first} << 33U |
                                 std::uint64_t{piece.previous ? 0U : 1U} << 32U | piece.wait,
                             std::uint64_t{piece.run} << 32U | piece.slot, static_cast<std::uint32_t>(p)};
            std::size_t at = count++;
            for (; at > 0 && next < order_[at - 1]; --at) { order_[at] = order_[at - 1]; }
            order_[at] = next;
        }
    };
    std::size_t begin = 0;
    while (begin < pieces_.size() && pieces_[begin].run >= pieces_[0].run) { ++begin; }
    add(begin, pieces_.size());
    add(0, begin);
}

// Pieces of a step that follow the same release share a call, and those that the candidate joins. False where a piece would wait for a step
// that needs it.
RESIDENCY_INLINE bool ReleaseRing::make_calls(const std::vector<std::uint8_t>& joins, RingCalls::Keeps keeps) {
    sort_pieces();
    calls_.clear(keeps);
    taken_.assign(stream_.size(), 0);
    std::uint32_t step = none, number = 0;  // of the call, in its step
    for (std::size_t k = 0; k < order_.size();) {
        const Piece& piece = pieces_[order_[k].piece];
        const StreamedRun& run = stream_[piece.run];
        RingPiece next{run.chunk_begin + taken_[piece.run],
                       piece.count,
                       piece.slot,
                       run.first,
                       piece.wait,
                       piece.previous,
                       run.missing};
        // What follows the same release in the same run takes the same time as one piece.
        for (++k; keeps == RingCalls::Keeps::times && k < order_.size() && order_[k].key == order_[k - 1].key; ++k) {
            const Piece& more = pieces_[order_[k].piece];
            if (more.run != piece.run) { break; }
            next.chunks += more.count;
            ++built_;
        }
        taken_[piece.run] += next.chunks;
        if (!calls_.follows_same_release(next)) { number = run.first == step ? number + 1 : 0; }
        step = run.first;
        const bool is_joined = number < 8 && (joins[step] >> number & 1U) != 0;
        if (!calls_.add(next, is_joined ? Joins::if_possible : Joins::same_release)) { return false; }
    }
    return true;
}

RESIDENCY_INLINE RingAssignment ReleaseRing::assignment(const ReleaseCandidate& candidate) {
    static_cast<void>(build(candidate, candidate.streamed(), RingCalls::Keeps::pieces));
    return calls_.assignment(slots_);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
