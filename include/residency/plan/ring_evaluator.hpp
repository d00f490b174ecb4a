// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Times rings of rounds of one problem. Each result depends on the candidate alone.
class RingEvaluator {
public:
    /// Keeps a reference.
    explicit RingEvaluator(const RingProblem& problem)
        : problem_{problem},
          calls_{problem.compute(), problem.chunks_per_second(), problem.latency(), problem.is_captured()} {}

    /// Seconds per pass; RingCalls::impossible where a call would wait for a step that needs it. Above `give_up`: a lower bound.
    [[nodiscard]] double evaluate(const RingCandidate& candidate, double give_up);
    /// Of the candidate evaluated last, by piece, empty ones left out: whether a call begins with it.
    [[nodiscard]] const std::vector<std::uint8_t>& call_begins() const noexcept { return call_begins_; }

    /// Chunks that memory lacks when the plan comes into force: of all that stays, and of the first round. Precondition:
    /// problem.knows_presence().
    [[nodiscard]] std::uint64_t loads(const RingCandidate& candidate);

    /// The chunks and slots of a candidate that is possible. The ring has slots [0, slots).
    [[nodiscard]] RingAssignment assignment(const RingCandidate& candidate);

    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return calls_.work() + built_; }

private:
    struct Use {                    // of a piece of the candidate
        std::uint32_t block, last;  // last: its last reader
        std::size_t cuts_end;       // its part of cuts_ ends there
    };

    void cut_stream(const RingCandidate& candidate);
    [[nodiscard]] bool make_calls(const RingCandidate& candidate, RingCalls::Keeps keeps);

    const RingProblem& problem_;
    RingCalls calls_;  // of the candidate at hand, as is all that follows
    std::vector<StreamedRun> stream_;
    std::vector<Use> uses_;                   // by piece, empty ones left out
    std::vector<RingPiece> cuts_;             // consecutive chunks of each piece
    std::vector<std::uint32_t> block_last_;   // by block: the last reader so far
    std::vector<std::uint8_t> block_is_old_;  // by block: that reader is of the pass before
    std::vector<std::uint8_t> call_begins_;
    std::uint64_t built_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_evaluator.ipp"
#endif
