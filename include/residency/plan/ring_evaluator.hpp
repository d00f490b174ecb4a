// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Consecutive chunks of the stream that are copied to the first slots of one block of the ring.
struct RingPiece {
    std::uint32_t chunks = 0, block = 0;
};

/// The calls of a candidate and their times.
struct RingTiming {
    double seconds = 0;                      ///< per pass
    std::vector<RingPiece> pieces;           ///< without empty ones
    std::vector<std::uint32_t> call_pieces;  ///< by call: how many pieces it copies
    Timeline line;
    std::size_t cut = 0;  ///< captured: calls that are in the graph of the pass before
};

/// Times candidates of one problem. Each result depends on the candidate alone.
class RingEvaluator {
public:
    /// No candidate takes so long. Seconds.
    static constexpr double impossible = 1e300;

    /// Keeps a reference.
    explicit RingEvaluator(const RingProblem& problem) : problem_{problem} { timing_.line.compute = problem.compute(); }

    /// Seconds per pass; `impossible` where a call would wait for a step that needs it. Above `give_up`: a lower bound, and timing() is
    /// not complete.
    [[nodiscard]] double evaluate(const RingCandidate& candidate, double give_up);
    /// Of the candidate evaluated last.
    [[nodiscard]] const RingTiming& timing() const noexcept { return timing_; }

    /// Chunks that memory lacks when the plan comes into force: of all that stays, and of the first round. Precondition:
    /// problem.knows_presence().
    [[nodiscard]] std::uint64_t loads(const RingCandidate& candidate);

    /// The chunks and slots of a candidate that was evaluated. The ring has slots [0, slots).
    [[nodiscard]] RingAssignment assignment(const RingCandidate& candidate, const RingTiming& timing);

    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return solver_.nodes() + built_; }

private:
    struct StreamedRun {  // consecutive chunks of one part
        std::uint32_t first, last, chunk_begin, chunks;
        double missing;
    };
    struct PieceUse {
        std::uint32_t first, last, runs;  // readers; runs of consecutive chunks
        double missing;
    };

    void choose_chunks(const RingCandidate& candidate);
    void cut_stream(const RingCandidate& candidate);
    [[nodiscard]] bool make_calls(const RingCandidate& candidate);
    [[nodiscard]] double measure(double give_up);

    const RingProblem& problem_;
    std::vector<StreamedRun> stream_;         // of the candidate at hand, as are the next three
    std::vector<PieceUse> uses_;              // by piece
    std::vector<std::uint32_t> block_last_;   // by block: the last reader so far
    std::vector<std::uint8_t> block_is_old_;  // by block: that reader is of the pass before
    RingTiming timing_;
    TimelineSolver solver_;
    std::uint64_t built_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_evaluator.ipp"
#endif
