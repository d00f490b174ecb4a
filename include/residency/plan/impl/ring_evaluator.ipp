// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/timeline.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE double RingEvaluator::evaluate(const RingCandidate& candidate, double give_up) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    cut_stream(candidate);
    if (!make_calls(candidate)) { return impossible; }
    return timing_.seconds = ring_seconds(problem_.is_captured(), timing_.line, solver_, give_up, timing_.cut);
}

RESIDENCY_INLINE double ring_seconds(bool captured, const Timeline& line, TimelineSolver& solver, double give_up,
                                     std::size_t& cut, double idle) {
    cut = 0;
    double least = idle;
    for (const Timeline::Call& call : line.calls) { least += call.seconds; }
    if (least > give_up) { return least; }
    if (!captured) { return solver.period(line, tuning::period_tolerance, give_up); }
    std::size_t most = 0;
    while (most < line.calls.size() && (line.calls[most].wait_step == none || line.calls[most].wait_previous)) {
        ++most;
    }
    double best = RingEvaluator::impossible;
    for (std::size_t earlier = 0; earlier <= (std::min)(most, tuning::search_cut_most); ++earlier) {
        const double seconds = solver.captured(line, earlier);
        if (seconds < best) {
            best = seconds;
            cut = earlier;
        }
    }
    return best;
}

RESIDENCY_INLINE void choose_chunks(const RingProblem& problem, const std::vector<std::uint32_t>& streamed_per_step,
                                    std::vector<StreamedRun>& stream) {
    stream.clear();
    for (std::uint32_t i = 0; i < streamed_per_step.size(); ++i) {
        std::uint32_t left = streamed_per_step[i];
        for (std::uint32_t k = problem.first_part(i); left > 0; ++k) {
            const RingPart& part = problem.parts()[k];
            const std::uint32_t x = (std::min)(left, part.chunks());
            const bool continues =
                !stream.empty() && stream.back().chunk_begin + stream.back().chunks == part.chunk_begin;
            bool at_begin = continues;
            if (problem.knows_presence() && x < part.chunks()) {
                const std::uint32_t head = problem.nonresident(part.chunk_begin, part.chunk_begin + x);
                const std::uint32_t tail = problem.nonresident(part.chunk_end - x, part.chunk_end);
                at_begin = head != tail ? head > tail : continues;
            }
            stream.push_back(
                {part.first, part.last, at_begin ? part.chunk_begin : part.chunk_end - x, x, part.missing});
            if (stream.size() > 1) {  // a short chunk comes after those that it continues
                StreamedRun &last = stream.back(), &before = stream[stream.size() - 2];
                if (last.chunk_begin + x == before.chunk_begin && last.first == before.first &&
                    last.last == before.last) {
                    std::swap(last, before);
                }
            }
            left -= x;
        }
    }
}

RESIDENCY_INLINE void RingEvaluator::cut_stream(const RingCandidate& candidate) {
    const std::vector<std::uint32_t>& sizes = candidate.piece_chunks;
    built_ += problem_.steps() + sizes.size();
    timing_.pieces.clear();
    uses_.clear();
    std::size_t run = 0;
    std::uint32_t in_run = 0;
    for (std::size_t p = 0; p < sizes.size(); ++p) {
        if (sizes[p] == 0) { continue; }
        PieceUse use{stream_[run].first, 0, 1, 0};
        for (std::uint32_t left = sizes[p]; left > 0;) {
            const StreamedRun& now = stream_[run];
            const std::uint32_t x = (std::min)(left, now.chunks - in_run);
            use.last = (std::max)(use.last, now.last);
            use.missing += now.missing;
            left -= x;
            in_run += x;
            if (in_run == now.chunks) {
                ++run;
                in_run = 0;
                if (left > 0 && stream_[run].chunk_begin != now.chunk_begin + now.chunks) { ++use.runs; }
            }
        }
        timing_.pieces.push_back({sizes[p], static_cast<std::uint32_t>(p % candidate.shape.blocks)});
        uses_.push_back(use);
    }
}

// Pieces of a step that follow the same release share a call, and those that the candidate joins. False where a piece would wait
// for a step that needs it.
RESIDENCY_INLINE bool RingEvaluator::make_calls(const RingCandidate& candidate) {
    const std::vector<RingPiece>& pieces = timing_.pieces;
    std::vector<Timeline::Call>& calls = timing_.line.calls;
    block_last_.assign(candidate.shape.blocks, none);
    block_is_old_.assign(candidate.shape.blocks, 1);
    for (std::size_t p = 0; p < pieces.size(); ++p) { block_last_[pieces[p].block] = uses_[p].last; }
    calls.clear();
    timing_.call_pieces.clear();
    for (std::size_t p = 0; p < pieces.size(); ++p) {
        const std::uint32_t b = pieces[p].block;
        const PieceUse& use = uses_[p];
        const std::uint32_t wait = block_last_[b];
        const bool previous = block_is_old_[b] != 0;
        if (!previous && wait >= use.first) { return false; }
        block_last_[b] = use.last;
        block_is_old_[b] = 0;
        const double transfer = (pieces[p].chunks - use.missing) / problem_.chunks_per_second();
        if (!calls.empty()) {
            Timeline::Call& back = calls.back();
            const bool joins = p < candidate.joins.size() && candidate.joins[p] != 0;
            if (joins && (back.wait_step == none || (back.wait_previous && !previous) ||
                          (back.wait_previous == previous && back.wait_step < wait))) {
                if (!previous && wait >= back.needed_by) { return false; }
                back.wait_step = wait;
                back.wait_previous = previous;
            }
            if (joins || (back.wait_step == wait && back.wait_previous == previous && back.needed_by == use.first)) {
                back.seconds += transfer;
                ++timing_.call_pieces.back();
                continue;
            }
        }
        const double latency = problem_.latency() * (problem_.is_captured() ? use.runs : 1);
        calls.push_back({latency + transfer, use.first, wait, previous});
        timing_.call_pieces.push_back(1);
    }
    return true;
}

RESIDENCY_INLINE std::uint64_t RingEvaluator::loads(const RingCandidate& candidate) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    std::uint64_t sum = 0;
    for (const RingPart& part : problem_.parts()) { sum += problem_.absent(part.chunk_begin, part.chunk_end); }
    std::uint32_t first_round = 0;
    for (std::uint32_t p = 0; p < candidate.shape.blocks && p < candidate.piece_chunks.size(); ++p) {
        first_round += candidate.piece_chunks[p];
    }
    for (const StreamedRun& run : stream_) {
        const std::uint32_t skip = (std::min)(first_round, run.chunks);
        first_round -= skip;
        sum -= problem_.absent(run.chunk_begin + skip, run.chunk_begin + run.chunks);
    }
    return sum;
}

RESIDENCY_INLINE RingAssignment RingEvaluator::assignment(const RingCandidate& candidate, const RingTiming& timing) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    const RingShape& shape = candidate.shape;
    RingAssignment out;
    out.slots_used = shape.slots;
    std::size_t at = 0, p = 0;
    std::uint32_t in_run = 0;
    for (std::uint32_t call = 0; call < timing.line.calls.size(); ++call) {
        const Timeline::Call& times = timing.line.calls[call];
        const Wait wait{times.wait_step, times.wait_previous ? -1 : 0};
        for (std::uint32_t k = 0; k < timing.call_pieces[call]; ++k, ++p) {
            const RingPiece& piece = timing.pieces[p];
            auto slot = static_cast<std::uint32_t>(std::uint64_t{piece.block} * shape.slots / shape.blocks);
            for (std::uint32_t left = piece.chunks; left > 0;) {
                const StreamedRun& run = stream_[at];
                const std::uint32_t x = (std::min)(left, run.chunks - in_run), begin = run.chunk_begin + in_run;
                out.moves.push_back({begin, begin + x, run.first, wait, call, out.slots.size()});
                for (std::uint32_t c = 0; c < x; ++c) { out.slots.push_back(slot++); }
                left -= x;
                in_run += x;
                if (in_run == run.chunks) {
                    ++at;
                    in_run = 0;
                }
            }
        }
    }
    return out;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
