// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

inline double total_compute(const Problem& problem) {
    double sum = 0;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) { sum += problem.compute(i); }
    return sum;
}

/// Bytes that do not fit.
inline std::uint64_t deficit_bytes(const Problem& problem, std::uint64_t budget_bytes) {
    std::uint64_t sum = 0;
    for (const std::uint64_t b : problem.storage_bytes) { sum += b; }
    return sum > budget_bytes ? sum - budget_bytes : 0;
}

/// max(C, D/P), seconds.
inline double usual_bound(const Problem& problem, std::uint64_t budget_bytes) {
    return (std::max)(total_compute(problem),
                      static_cast<double>(deficit_bytes(problem, budget_bytes)) / problem.link.bytes_per_second);
}

/// What no ring of one copy stream goes below when each call costs its latency: (D + 2 √(a D) + a) / P, a = P · min(2 L, L + the
/// shortest step); never below C. Seconds.
inline double latency_floor(const Problem& problem, std::uint64_t budget_bytes, double latency_seconds) {
    const double d = static_cast<double>(deficit_bytes(problem, budget_bytes));
    if (d <= 0) { return total_compute(problem); }
    double shortest = problem.steps() == 0 ? 0 : problem.compute(0);
    for (std::uint32_t i = 1; i < problem.steps(); ++i) { shortest = (std::min)(shortest, problem.compute(i)); }
    const double p = problem.link.bytes_per_second;
    const double a = p * (std::min)(2 * latency_seconds, latency_seconds + shortest);
    return (std::max)(total_compute(problem), (d + 2 * std::sqrt(a * d) + a) / p);
}

/// The exact bound of any cyclic schedule at L = 0 and byte granularity, as a flow of memory round the pass: what a step leaves
/// behind is held for its next reader, or becomes free, carries a fetch (P · c_i bytes beside step i, any number beside a stall at
/// one stalled byte each) and waits for its reader. Minimum cost for a flow of B bytes across the end of the pass. Seconds, rounded
/// down to a byte a step; negative where there are more than `most_steps` steps, for which this takes too long.
[[nodiscard]] RESIDENCY_INLINE double flow_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                 std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// The exact bound of a cyclic schedule that reads each storage in one step only; of any other, a bound: each storage counts at
/// its first reader alone. Seconds. O(steps) times some tens.
[[nodiscard]] RESIDENCY_INLINE double single_use_bound(const Problem& problem, std::uint64_t budget_bytes);

/// The exact bound of one pass of any schedule when what is there at the start may be chosen, by a flow of memory from the start
/// to the end (see flow_bound). Seconds, rounded down to a byte a step; negative where there are more than `most_steps` steps.
[[nodiscard]] RESIDENCY_INLINE double one_shot_flow_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                          std::uint32_t most_steps = tuning::flow_bound_steps.full);

/// Whether some storage is read by more than one step.
[[nodiscard]] RESIDENCY_INLINE bool reads_repeatedly(const Problem& problem);

/// The exact bound of one pass of a schedule that reads each storage in one step only, when what is there at the start may be
/// chosen: the bytes that are used first. Of any other schedule, a bound: each storage counts at its first reader alone. Seconds.
[[nodiscard]] RESIDENCY_INLINE double one_shot_bound(const Problem& problem, std::uint64_t budget_bytes);

/// The exact bound: what no plan of copies goes below at L = 0, whatever it keeps and whenever it copies. Where storages are read
/// repeatedly and there are more than `most_steps` steps: a bound, not the exact one. Seconds.
[[nodiscard]] RESIDENCY_INLINE double exact_bound(const Problem& problem, std::uint64_t budget_bytes,
                                                  std::uint32_t most_steps = tuning::flow_bound_steps.full);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/bounds.ipp"
#endif
