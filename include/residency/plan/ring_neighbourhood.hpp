// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// A small change of a candidate: chunks move from one step to another, or a piece joins the call before it or leaves that. Twice
/// the same piece: unchanged.
struct RingChange {
    std::uint32_t from = 0, to = 0, chunks = 0;  ///< steps; 0 chunks: the change is of a piece
    std::size_t piece = 0;

    void apply(RingCandidate& candidate) const;
    void undo(RingCandidate& candidate) const;
};

/// The small changes of candidates of one problem, by position: each step that streams, then each piece. Every change keeps the
/// number of chunks that stream, and no step streams more than it may.
class RingNeighbourhood {
public:
    /// `pieces`: of the candidates, without empty ones. `reach_steps`: how far chunks move, in steps that may stream.
    RingNeighbourhood(const RingProblem& problem, std::size_t pieces, std::size_t reach_steps);

    [[nodiscard]] std::size_t positions() const noexcept { return streaming_.size() + pieces_; }
    /// All changes at a position, the promising ones first. `call_begins`: by piece, whether a call of the candidate begins with it.
    void changes_at(std::size_t position, const RingCandidate& candidate, const std::vector<std::uint8_t>& call_begins,
                    std::vector<RingChange>& changes) const;

private:
    const RingProblem& problem_;
    std::vector<std::uint32_t> streaming_;  // steps that may stream
    std::size_t pieces_;                    // that may join; none where each copy is a call
    std::size_t reach_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_neighbourhood.ipp"
#endif
