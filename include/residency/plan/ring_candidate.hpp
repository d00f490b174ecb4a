// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
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

/// The fastest ring of one block and about `slots` slots, whose pieces are read by one step each, by dynamic programming over those
/// steps. False where there is none or the search would take too long.
[[nodiscard]] RESIDENCY_INLINE bool single_block_ring(const RingProblem& problem, std::uint32_t slots, Effort effort,
                                                      RingCandidate& candidate);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_candidate.ipp"
#endif
