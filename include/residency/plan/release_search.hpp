// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/release_ring.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/slot_search.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Whether few steps are wide among small ones and the budget holds few wide ones. Elsewhere rings of rounds are as fast, unless they have
/// few slots, and hold the first chunks of the next pass sooner.
[[nodiscard]] RESIDENCY_INLINE bool is_wide_among_small(const RingProblem& problem);

/// Searches the fastest release ring: starts from what the fluid relaxation of rings of many sizes streams, or from steps that all stream
/// up to the same number of chunks, then changes what steps stream, how slots come back and which calls are joined for as long as that
/// helps; improve() also takes changes that cost a little. Deterministic; its result never gets slower with more work.
class ReleaseSearch {
public:
    struct Config {
        Effort effort = Effort::full;
        double bound_seconds = 0;  ///< no ring is faster: the search ends near it
        double work_share = 1;     ///< of the work that a search may take
    };
    struct Solution {
        double seconds = RingEvaluator::impossible;  ///< per pass
        ReleaseCandidate candidate;
    };

    /// Keeps a reference. Precondition: problem.deficit() > 0.
    ReleaseSearch(const RingProblem& problem, const Config& config);

    /// Whether there is a ring. `streamed_per_step`: one more start, such as what another ring streams; may be empty.
    [[nodiscard]] bool search(const std::vector<std::uint32_t>& streamed_per_step);
    /// Looks on from a ring of the same problem that was found before.
    void improve(const Solution& found);
    /// Looks on in rings of one slot less each, or of one more each, for as long as that helps. Precondition: search() found a ring.
    void resize();
    /// Whether there is a ring in which steps stream so many chunks each. Searches how its slots come back and which calls are joined.
    [[nodiscard]] bool search_calls(const std::vector<std::uint32_t>& streamed_per_step);
    /// The best ring found.
    [[nodiscard]] const Solution& solution() const noexcept { return best_; }
    [[nodiscard]] RingAssignment assignment() { return ring_.assignment(best_.candidate); }
    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return ring_.work(); }

private:
    void start(const std::vector<std::uint32_t>& streamed_per_step);
    void start_with_ring(Fluid& fluid, double ring);
    void consider_start(std::vector<std::uint32_t> streamed_per_step);
    void descend(Solution& now);
    void stream_otherwise(Solution& now, std::uint32_t chunks);
    void assign_otherwise(Solution& now);
    // What random changes may change.
    enum class Changes : std::uint8_t {
        all,
        same_size,   // not the slots of the ring
        same_chunks  // only how slots come back and which calls are joined
    };
    void travel(std::uint64_t most_work, Changes changes);
    [[nodiscard]] bool change(ReleaseCandidate& candidate, Changes changes);
    [[nodiscard]] bool stream_one_less(ReleaseCandidate& candidate) const;
    [[nodiscard]] bool stream_one_more(ReleaseCandidate& candidate) const;
    [[nodiscard]] std::uint64_t share_of(std::uint64_t work) const noexcept;
    [[nodiscard]] bool keeps(Solution& now);
    [[nodiscard]] bool ends(const Solution& now) const;

    const RingProblem& problem_;
    const Config config_;
    ReleaseRing ring_;
    std::vector<std::uint32_t> able_, wide_;  // steps that may stream; those of several chunks
    Solution best_;
    double best_ring_ = 0;    // the ring of the best start, of those by the fluid relaxation
    std::uint64_t stop_ = 0;  // no new candidate beyond that work
    Random random_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/release_search.ipp"
#endif
