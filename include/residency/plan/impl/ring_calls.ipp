// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/plan/ring_calls.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE bool RingCalls::add(const RingPiece& piece, Joins joins) {
    ++added_;
    std::vector<Timeline::Call>& calls = line_.calls;
    const double transfer = (piece.chunks - piece.missing) * seconds_per_chunk_;
    const bool is_first = calls.empty();
    const bool goes_on = !is_first && last_.chunk_begin + last_.chunks == piece.chunk_begin;
    const bool is_joined =
        !is_first && (joins == Joins::always || (joins == Joins::if_possible && (goes_on || !captured_)) ||
                      follows_same_release(piece));
    if (!is_joined) {
        calls.push_back({latency_ + transfer, piece.needed_by, piece.wait_step, piece.wait_previous});
    } else {
        Timeline::Call& call = calls.back();
        const bool is_later = call.wait_previous != piece.wait_previous
                                  ? call.wait_previous
                                  : call.wait_step == none || call.wait_step < piece.wait_step;
        if (is_later) {
            if (!piece.wait_previous && piece.wait_step >= call.needed_by) { return false; }
            call.wait_step = piece.wait_step;
            call.wait_previous = piece.wait_previous;
        }
        call.seconds += transfer + (captured_ && !goes_on ? latency_ : 0);
    }
    last_ = piece;
    if (keeps_ == Keeps::pieces) { pieces_.push_back({piece, static_cast<std::uint32_t>(calls.size() - 1)}); }
    return true;
}

RESIDENCY_INLINE double RingCalls::seconds(double give_up, double idle) {
    const std::vector<Timeline::Call>& calls = line_.calls;
    double least = idle;
    for (const Timeline::Call& call : calls) { least += call.seconds; }
    if (least > give_up) { return least; }
    if (!captured_) { return solver_.period(line_, tuning::period_tolerance, give_up); }
    // How many calls go to the graph of the pass before.
    std::size_t most = 0;
    while (most < calls.size() && (calls[most].wait_step == none || calls[most].wait_previous)) { ++most; }
    double best = impossible;
    for (std::size_t cut = 0; cut <= (std::min)(most, tuning::search_cut_most); ++cut) {
        best = (std::min)(best, solver_.captured(line_, cut));
    }
    return best;
}

RESIDENCY_INLINE RingAssignment RingCalls::assignment(std::uint32_t slots_used) const {
    RingAssignment out;
    out.slots_used = slots_used;
    out.moves.reserve(pieces_.size());
    for (const auto& [piece, call] : pieces_) {
        const Timeline::Call& times = line_.calls[call];
        out.moves.push_back({piece.chunk_begin, piece.chunk_begin + piece.chunks, piece.needed_by,
                             Wait{times.wait_step, times.wait_previous ? -1 : 0}, call, out.slots.size()});
        for (std::uint32_t k = 0; k < piece.chunks; ++k) { out.slots.push_back(piece.slot + k); }
    }
    return out;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
