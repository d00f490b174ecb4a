// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/release_ring.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Searches the fastest release ring: starts from what the fluid relaxation of rings of many sizes streams, or from steps that all stream
/// up to the same number of chunks, then changes what steps stream, how slots come back and which calls are joined for as long as that
/// helps. Deterministic; its result never gets slower with more work.
class ReleaseSearch {
public:
    struct Config {
        Effort effort = Effort::full;
        double bound_seconds = 0;  ///< no ring is faster: the search ends near it
        double work_share = 1;     ///< of the work that a search may take
    };

    /// Keeps a reference. Precondition: problem.deficit() > 0.
    ReleaseSearch(const RingProblem& problem, const Config& config)
        : problem_{problem}, config_{config}, ring_{problem} {}

    /// Whether there is a ring. `streamed_per_step`: one more start, such as what another ring streams; may be empty.
    [[nodiscard]] bool search(const std::vector<std::uint32_t>& streamed_per_step);
    /// Of the best ring found. Seconds per pass.
    [[nodiscard]] double seconds() const noexcept { return best_.seconds; }
    [[nodiscard]] RingAssignment assignment() { return ring_.assignment(best_.candidate); }
    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return ring_.work(); }

private:
    struct Solution {
        double seconds = RingEvaluator::impossible;
        ReleaseCandidate candidate;
    };

    [[nodiscard]] Solution start(const std::vector<std::uint32_t>& streamed_per_step);
    void consider_start(std::vector<std::uint32_t> streamed_per_step, Solution& best);
    void descend(Solution& now);
    void stream_otherwise(Solution& now, std::uint32_t chunks);
    void assign_otherwise(Solution& now);
    [[nodiscard]] bool keeps(Solution& now);
    [[nodiscard]] bool ends(const Solution& now) const;

    const RingProblem& problem_;
    const Config config_;
    ReleaseRing ring_;
    std::vector<std::uint32_t> able_;  // steps that may stream
    Solution best_;
    std::uint64_t stop_ = 0;  // no new candidate beyond that work
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/release_search.ipp"
#endif
