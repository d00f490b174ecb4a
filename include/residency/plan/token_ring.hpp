// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/search.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// A ring that was found, with its times.
struct RingSolution {
    bool found = false;
    RingCandidate ring;
    double seconds = 0;                     ///< per pass
    std::vector<std::uint8_t> call_begins;  ///< by piece, empty ones left out: whether a call begins with it
    std::uint64_t loads =
        0;  ///< chunks that memory lacks when the plan comes into force; counted only where memory holds something
};

/// The cyclic planner: searches the fastest ring of chunk slots through which a pass streams what does not fit. Each step streams what
/// the fluid relaxation says, rounded to pieces; a max-plus simulation decides between candidates. The search is deterministic, and
/// its result never gets slower with more work.
class TokenRing {
public:
    TokenRing(RingProblem problem, const SearchLimits& limits);
    TokenRing(const TokenRing&) = delete;
    TokenRing& operator=(const TokenRing&) = delete;

    /// What the ring may stream.
    [[nodiscard]] const RingProblem& problem() const noexcept { return problem_; }
    /// Chunks that every pass must bring at least.
    [[nodiscard]] std::uint64_t deficit() const noexcept { return problem_.deficit(); }
    /// The best ring found. Goes into detail only where that may be faster than `known_seconds`, a pass through another ring that was found.
    /// Precondition: deficit() > 0.
    [[nodiscard]] RingSolution search(double known_seconds = RingCalls::impossible);
    /// Of the rings about as large as one that a search over the same chunks found, whatever memory holds, and that are nearly as fast, the
    /// one found that costs least, its loads included. Precondition: problem().knows_presence().
    [[nodiscard]] RingSolution approach(const RingSolution& found);
    /// The chunks and slots of a ring that was found. The ring has slots [0, shape.slots).
    [[nodiscard]] RingAssignment assignment(const RingSolution& solution) {
        return evaluator_.assignment(solution.ring);
    }
    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return evaluator_.work() + rounding_.work(); }

private:
    struct Choice {  // what a candidate is made from
        std::uint32_t slots = 0, blocks = 0;
        int target = 0;          // kind of the target
        std::uint8_t phase = 0;  // of tuning::phases
        double seconds = 0;

        [[nodiscard]] double piece_chunks() const noexcept { return static_cast<double>(slots) / blocks; }
        [[nodiscard]] bool operator<(const Choice& other) const noexcept;  // faster
    };

    void attempt(Choice choice, std::vector<Choice>& found);
    double consider(const RingCandidate& candidate, double give_up);
    [[nodiscard]] bool is_better(const RingSolution& a, const RingSolution& b) const;

    [[nodiscard]] std::vector<Choice> coarse_grid();
    void descend(Choice from);
    [[nodiscard]] Choice smallest_as_fast();
    void refine(std::uint64_t most_work);

    [[nodiscard]] std::vector<RingShape> shapes_near(const RingShape& shape, std::uint64_t streamed_there) const;

    const SearchLimits limits_;
    const RingProblem problem_;
    RingEvaluator evaluator_;
    RingRounding rounding_;
    RingSolution best_;
    std::uint64_t most_work_ = 0;       // no new candidate beyond that
    double limit_seconds_ = 0;          // above 0: rings below are compared by their loads too
    std::uint64_t few_loads_ = 0;       // so many are good enough
    std::vector<std::uint64_t> tried_;  // keys of choices, ascending
    std::vector<Choice> done_;          // choices that gave a candidate
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/token_ring.ipp"
#endif
