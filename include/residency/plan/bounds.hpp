// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/bounds.ipp"
#endif
