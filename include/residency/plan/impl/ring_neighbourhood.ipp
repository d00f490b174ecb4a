// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_neighbourhood.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE void RingChange::apply(RingCandidate& candidate) const {
    if (chunks == 0) {
        candidate.joins[piece] ^= 1;
        return;
    }
    candidate.streamed_per_step[from] -= chunks;
    candidate.streamed_per_step[to] += chunks;
}

RESIDENCY_INLINE void RingChange::undo(RingCandidate& candidate) const {
    RingChange{to, from, chunks, piece}.apply(candidate);
}

RESIDENCY_INLINE RingNeighbourhood::RingNeighbourhood(const RingProblem& problem, std::size_t pieces,
                                                      std::size_t reach_steps)
    : problem_{problem}, pieces_{problem.is_captured() ? 0 : pieces} {
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.capacity()[i] > 0) { streaming_.push_back(i); }
    }
    reach_ = (std::min)(reach_steps, streaming_.size());
}

RESIDENCY_INLINE void RingNeighbourhood::changes_at(std::size_t position, const RingCandidate& candidate,
                                                    const std::vector<std::uint8_t>& call_begins,
                                                    std::vector<RingChange>& changes) const {
    changes.clear();
    const std::size_t count = streaming_.size();
    if (position >= count) {
        const std::size_t piece = position - count;
        if (piece > 0 && (call_begins[piece] != 0 || candidate.joins[piece] != 0)) {
            changes.push_back({0, 0, 0, piece});
        }
        return;
    }
    const std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    const std::uint32_t a = streaming_[position];
    const std::uint32_t whole_piece = (candidate.shape.slots + candidate.shape.blocks - 1) / candidate.shape.blocks;
    for (std::size_t distance = 1; distance <= reach_; ++distance) {
        for (const std::size_t to : {position + distance, position + count - distance}) {
            const std::uint32_t b = streaming_[to % count];
            // Chunks move far only where that keeps a resident.
            if (distance > tuning::refine_reach_steps &&
                (streamed[a] <= problem_.nonresident()[a] || streamed[b] >= problem_.nonresident()[b])) {
                continue;
            }
            for (std::uint32_t chunks = whole_piece; chunks != 0; chunks = chunks > 1 ? 1 : 0) {
                if (a == b || streamed[a] < chunks || streamed[b] + chunks > problem_.capacity()[b]) { continue; }
                changes.push_back({a, b, chunks, 0});
            }
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::plan
