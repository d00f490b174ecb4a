// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Seconds of the steps alone.
[[nodiscard]] RESIDENCY_INLINE double total_compute(const Problem& problem);

/// Bytes that do not fit.
[[nodiscard]] RESIDENCY_INLINE std::uint64_t deficit_bytes(const Problem& problem, std::uint64_t budget_bytes);

/// The larger of the compute time and deficit / link rate. Seconds.
[[nodiscard]] RESIDENCY_INLINE double usual_bound(const Problem& problem, std::uint64_t budget_bytes);

/// No ring on one copy stream is faster when each call costs its latency L: (D + 2 √(a D) + a) / P, a = P · min(2 L, L + the shortest
/// step), with the deficit D and the link rate P; at least the compute time. Seconds.
[[nodiscard]] RESIDENCY_INLINE double latency_floor(const Problem& problem, std::uint64_t budget_bytes,
                                                    double latency_seconds);

/// No ring of whole chunks on one copy stream is faster when each call costs its latency L. The larger of two floors, each the least
/// over rings of ρ = 1, 2, … chunks. One is the larger of (D + ρ) (1 + a / ρ) / P, with the deficit D of a budget of whole chunks and a as
/// above, and single_use_bound() with a link that takes L longer for every ρ bytes, since no call has more; the latter without L where
/// there are more than `most_steps` steps. The other one, of at most tuning::chunk_floor_steps steps, adds up what the link loses: the
/// latency of (D + ρ) / (ρ / 2) calls, and what it idles beside steps that hold so many whole chunks that too few slots are left, or for
/// want of slots over several steps.
/// Seconds, no fewer than the compute time.
[[nodiscard]] RESIDENCY_INLINE double ring_floor(const Problem& problem, std::uint64_t budget_bytes,
                                                 double latency_seconds,
                                                 std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// The exact bound of any cyclic schedule at latency 0 and byte granularity, as a flow of memory round the pass: what a step leaves
/// behind is held for its next reader, or becomes free, carries a fetch (P · c_i bytes beside step i, any number beside a stall at
/// one stalled byte each) and waits for its reader. The minimum cost of a flow of B bytes across the end of the pass. Seconds, rounded
/// down to a byte per step; negative where there are more than `most_steps` steps, for which this takes too long.
[[nodiscard]] RESIDENCY_INLINE double flow_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                 std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// The exact bound of a cyclic schedule that reads each storage in one step only. Of any other schedule, a bound: each storage counts
/// at its first reader alone. Seconds. O(steps) times some tens.
[[nodiscard]] RESIDENCY_INLINE double single_use_bound(const Problem& problem, std::uint64_t budget_bytes);

/// The exact bound of one pass of any schedule when what is there before it may be chosen, by a flow of memory from the begin to the
/// end (see flow_bound). Seconds, rounded down to a byte per step; negative where there are more than `most_steps` steps.
[[nodiscard]] RESIDENCY_INLINE double one_shot_flow_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                          std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// Whether more than one step reads some storage.
[[nodiscard]] RESIDENCY_INLINE bool reads_repeatedly(const Problem& problem);

/// The exact bound of one pass of a schedule that reads each storage in one step only, when what is there before it may be chosen: the
/// bytes that are used first. Of any other schedule, a bound: each storage counts at its first reader alone. Seconds.
[[nodiscard]] RESIDENCY_INLINE double one_shot_bound(const Problem& problem, std::uint64_t budget_bytes);

/// The exact bound: no plan of copies is faster at latency 0, whatever it keeps and whenever it copies. Where steps read storages
/// repeatedly and there are more than `most_steps` of them: a bound, not the exact one. Seconds.
[[nodiscard]] RESIDENCY_INLINE double exact_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                  std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// The exact bound at latency 0 and byte granularity for steps whose storages no other step reads.
///
/// With r_i bytes of step i streamed, ρ = B − Σ (s_i − r_i) the ring and δ the bytes that an idle link could have moved,
/// P T = D + ρ + δ. Where the link idles during one step and something of another is resident, a byte of that can stream instead
/// at the same T. So some optimum has δ = 0, or nothing resident but a part of one step: of that whose s_j + P c_j is largest,
/// since any other leaves the window from j to the next j as it is.
/// Given what is resident and everything else streaming, T is the eigenvalue of one lap as a max-plus map of two numbers, convex
/// in the resident part of j. δ = 0: T = (D + ρ) / P for the least ρ that keeps the link busy, a system of difference constraints
/// in ρ, solved by Newton's method on its positive cycles. Exact; O(steps) per sweep, some tens of sweeps.
class SingleUseBound {
public:
    /// `bytes` and `work` (P · c) have one entry for each step.
    SingleUseBound(std::vector<double> bytes, std::vector<double> work, double budget)
        : bytes_{std::move(bytes)}, work_{std::move(work)}, budget_{budget} {}

    /// P · T, bytes.
    [[nodiscard]] double solve();

private:
    struct
        From {  // the constraint that determines a level: level >= level of `from` + gain + slope · ρ + laps · (D + ρ)
        std::size_t from = 0;
        double gain = 0, slope = 0;
        int laps = 0;
        bool set = true;
    };

    [[nodiscard]] double everything_streams(double total, std::size_t j, double kept) const;
    [[nodiscard]] double violated(double ring);
    [[nodiscard]] double cycle();

    std::vector<double> bytes_, work_;  // by step
    std::vector<double> before_;        // P · compute before each step of two laps
    std::vector<double> level_;         // by step
    std::vector<From> from_;            // by step
    std::vector<std::uint32_t> mark_;   // by step
    double budget_ = 0, deficit_ = 0;   // bytes
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/bounds.ipp"
#endif
