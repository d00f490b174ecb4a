// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// One way to stream through a ring: streamed_per_step and piece_chunks have the same sum, deficit + slots. Whether its calls can be
/// made in time, and how long a pass takes, says a RingEvaluator.
struct RingCandidate {
    RingShape shape;
    std::vector<std::uint32_t> streamed_per_step;  ///< chunks, by first reader
    std::vector<std::uint32_t>
        piece_chunks;  ///< in the order of the stream, some 0; piece p goes to block p mod blocks
    std::vector<std::uint8_t>
        joins;  ///< by piece, empty ones left out: 1: in the call of the piece before. Empty: none
};

/// Sizes of the pieces of a shape that streams `streamed` chunks, as even as whole chunks are.
[[nodiscard]] RESIDENCY_INLINE std::vector<std::uint32_t> even_pieces(const RingShape& shape, std::uint64_t streamed);

/// Makes candidates from what steps should stream. Deterministic; only work() changes.
class RingRounding {
public:
    explicit RingRounding(const RingProblem& problem) : problem_{problem} {}

    /// Rounds `target` (chunks, by step; any scale) to whole pieces by error diffusion. `phase`: the part of a piece, below 1, by which
    /// the first one comes early. False where no scale of the target streams enough.
    [[nodiscard]] bool round(const std::vector<double>& target, const RingShape& shape, double phase,
                             RingCandidate& candidate);

    /// Steps and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

private:
    std::uint64_t diffuse(const std::vector<double>& target, double scale, double phase, RingCandidate& candidate);

    const RingProblem& problem_;
    std::uint64_t work_ = 0;
};

/// Targets of this many kinds: 0 to 2: the fluid relaxation, with a ring that is smaller by as many half pieces; 3: in proportion to
/// what each step may stream.
inline constexpr int target_kinds = 4;

/// How many chunks each step should stream, by step. False where there is no such target.
[[nodiscard]] RESIDENCY_INLINE bool fluid_target(const RingProblem& problem, const RingShape& shape, int kind,
                                                 std::vector<double>& target);

/// The same, near what memory holds: chunks that are no residents stream first, others where the target of that kind asks for more.
/// Kind 4 (target_kinds): in proportion to the chunks that are no residents. Precondition: problem.knows_presence().
[[nodiscard]] RESIDENCY_INLINE bool refetch_target(const RingProblem& problem, const RingShape& shape, int kind,
                                                   std::vector<double>& target);

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
#include "residency/plan/impl/ring_candidate.ipp"
#endif
