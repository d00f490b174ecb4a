// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/release_ring.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/search.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Searches the fastest release ring: starts from what the fluid relaxation of rings of many sizes streams, or from steps that all stream
/// up to the same number of chunks, then changes what steps stream, how slots come back and which calls are joined for as long as that
/// helps; improve() also takes changes that cost a little. Deterministic; its result never gets slower with more work.
class ReleaseSearch {
public:
    struct Solution {
        double seconds = RingCalls::impossible;  ///< per pass
        ReleaseCandidate candidate;
    };

    /// Keeps a reference. Precondition: problem.deficit() > 0.
    ReleaseSearch(const RingProblem& problem, const SearchLimits& limits);

    /// Whether there is a ring. `streamed_per_step`: one more start, such as what another ring streams; may be empty.
    [[nodiscard]] bool search(const std::vector<std::uint32_t>& streamed_per_step);
    /// Looks on from a ring of the same problem that was found before.
    void improve(const Solution& found);
    /// Looks on from a ring over the same chunks, found whatever memory holds, for one that is slower by tuning::refetch_loss at most and
    /// keeps few chunks that memory lacks, as a chunk brought once costs as much as in the passes that a plan may last
    /// (tuning::refetch_passes). Whether there is one. Precondition: problem.knows_presence().
    [[nodiscard]] bool approach(const Solution& found);
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
    enum class Changes : std::uint8_t { all, of_calls };  // of_calls: how slots come back and which calls are joined
    void change_at_random(std::uint64_t most_work, Changes changes);
    [[nodiscard]] bool change(ReleaseCandidate& candidate, Changes changes, Random& random) const;
    [[nodiscard]] double loads(const ReleaseCandidate& candidate);
    [[nodiscard]] bool keep_resident(ReleaseCandidate& candidate, Random& random) const;
    [[nodiscard]] bool keeps(Solution& now);
    [[nodiscard]] bool ends(const Solution& now) const;

    const RingProblem& problem_;
    const SearchLimits limits_;
    ReleaseRing ring_;
    std::vector<std::uint32_t> able_, wide_;  // steps that may stream; those of several chunks
    Solution best_;
    std::vector<StreamedRun> stream_;
    std::uint64_t stop_ = 0;  // no new candidate beyond that work
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/release_search.ipp"
#endif
