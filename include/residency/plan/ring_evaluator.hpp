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

/// Consecutive chunks of one part that stream.
struct StreamedRun {
    std::uint32_t first, last;  ///< steps
    std::uint32_t chunk_begin, chunks;
    double missing;  ///< as RingPart::missing
};

/// Which chunks stream where steps stream so many: the last ones of each part, or the first ones where those continue the part before.
/// Where memory holds something, the end with fewer residents.
RESIDENCY_INLINE void choose_chunks(const RingProblem& problem, const std::vector<std::uint32_t>& streamed_per_step,
                                    std::vector<StreamedRun>& stream);

/// Seconds per pass of calls through a ring; RingEvaluator::evaluate says what of `give_up`. Captured: `cut` is how many calls go to
/// the graph of the pass before. `idle`: seconds for which the link brings nothing, whatever the calls.
[[nodiscard]] RESIDENCY_INLINE double ring_seconds(bool captured, const Timeline& line, TimelineSolver& solver,
                                                   double give_up, std::size_t& cut, double idle = 0);

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
    struct PieceUse {
        std::uint32_t first, last, runs;  // readers; runs of consecutive chunks
        double missing;
    };

    void cut_stream(const RingCandidate& candidate);
    [[nodiscard]] bool make_calls(const RingCandidate& candidate);

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
