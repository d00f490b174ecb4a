// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/plan/copy.hpp"
#include "residency/plan/ring_evaluator.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE double RingEvaluator::evaluate(const RingCandidate& candidate, double give_up) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    cut_stream(candidate);
    return make_calls(candidate, RingCalls::Keeps::times) ? calls_.seconds(give_up) : RingCalls::impossible;
}

// Cuts the stream into the pieces of the candidate, each onto the first slots of its block.
RESIDENCY_INLINE void RingEvaluator::cut_stream(const RingCandidate& candidate) {
    const std::vector<std::uint32_t>& sizes = candidate.piece_chunks;
    const RingShape& shape = candidate.shape;
    built_ += problem_.steps();
    uses_.clear();
    cuts_.clear();
    std::size_t at = 0;
    std::uint32_t in_run = 0;
    for (std::size_t p = 0; p < sizes.size(); ++p) {
        if (sizes[p] == 0) { continue; }
        const auto block = static_cast<std::uint32_t>(p % shape.blocks);
        auto slot = static_cast<std::uint32_t>(std::uint64_t{block} * shape.slots / shape.blocks);
        std::uint32_t last = 0;
        for (std::uint32_t left = sizes[p]; left > 0;) {
            const StreamedRun& run = stream_[at];
            const std::uint32_t x = (std::min)(left, run.chunks - in_run);
            cuts_.push_back({run.chunk_begin + in_run, x, slot, run.first, none, false, run.missing});
            last = (std::max)(last, run.last);
            slot += x;
            left -= x;
            in_run += x;
            if (in_run == run.chunks) {
                ++at;
                in_run = 0;
            }
        }
        uses_.push_back({block, last, cuts_.size()});
    }
}

// A piece waits for the last reader of its block before it. False where that is a step that needs it.
RESIDENCY_INLINE bool RingEvaluator::make_calls(const RingCandidate& candidate, RingCalls::Keeps keeps) {
    block_last_.assign(candidate.shape.blocks, none);
    block_is_old_.assign(candidate.shape.blocks, 1);
    for (const Use& use : uses_) { block_last_[use.block] = use.last; }
    calls_.clear(keeps);
    call_begins_.assign(uses_.size(), 0);
    std::size_t at = 0;
    for (std::size_t p = 0; p < uses_.size(); ++p) {
        const Use& use = uses_[p];
        const std::uint32_t wait = block_last_[use.block], needed_by = cuts_[at].needed_by;
        const bool previous = block_is_old_[use.block] != 0;
        if (!previous && wait >= needed_by) { return false; }
        block_last_[use.block] = use.last;
        block_is_old_[use.block] = 0;
        const std::size_t calls_before = calls_.size();
        Joins joins = p < candidate.joins.size() && candidate.joins[p] != 0 ? Joins::if_possible : Joins::same_release;
        for (; at < use.cuts_end; ++at, joins = Joins::always) {
            RingPiece& cut = cuts_[at];
            cut.wait_step = wait;
            cut.wait_previous = previous;
            if (!calls_.add(cut, joins)) { return false; }
        }
        call_begins_[p] = calls_.size() != calls_before ? 1 : 0;
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

RESIDENCY_INLINE RingAssignment RingEvaluator::assignment(const RingCandidate& candidate) {
    choose_chunks(problem_, candidate.streamed_per_step, stream_);
    cut_stream(candidate);
    static_cast<void>(make_calls(candidate, RingCalls::Keeps::pieces));
    return calls_.assignment(candidate.shape.slots);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
