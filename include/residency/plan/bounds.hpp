// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"

namespace residency::inline RESIDENCY_ABI::plan {

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
    return std::max(total_compute(problem), static_cast<double>(deficit_bytes(problem, budget_bytes)) / problem.link.bytes_per_second);
}

/// What no ring of one copy stream goes below when each call costs its latency: (D + 2 √(a D) + a) / P, a = P · min(2 L, L + the
/// shortest step); never below C. Seconds.
inline double latency_floor(const Problem& problem, std::uint64_t budget_bytes, double latency_seconds) {
    const double d = static_cast<double>(deficit_bytes(problem, budget_bytes));
    if (d <= 0) { return total_compute(problem); }
    double shortest = problem.steps() == 0 ? 0 : problem.compute(0);
    for (std::uint32_t i = 1; i < problem.steps(); ++i) { shortest = std::min(shortest, problem.compute(i)); }
    const double p = problem.link.bytes_per_second;
    const double a = p * std::min(2 * latency_seconds, latency_seconds + shortest);
    return std::max(total_compute(problem), (d + 2 * std::sqrt(a * d) + a) / p);
}

/// The exact bound by search over ρ, schedules that read each storage in one step only.
inline double single_use_bound(const Problem& problem, std::uint64_t budget_bytes) {
    const std::uint32_t n = problem.steps();
    std::vector<double> bytes(n, 0.0), compute(n);
    for (std::uint32_t i = 0; i < n; ++i) {
        compute[i] = problem.compute(i);
        for (const std::uint32_t s : problem.reads(i)) { bytes[i] += static_cast<double>(problem.storage_bytes[s]); }
    }
    const double d = static_cast<double>(deficit_bytes(problem, budget_bytes));
    if (d <= 0) { return total_compute(problem); }
    Fluid fluid{bytes, compute, problem.link.bytes_per_second};
    const double largest = std::min(static_cast<double>(budget_bytes), fluid.total_bytes() - d);
    // T falls while the link idles and rises with ρ when it does not.
    double low = 0, high = largest, best = 1e300;
    for (int k = 0; k < 60; ++k) {
        const double middle = (low + high) / 2;
        if (fluid.solve(middle, d)) {
            best = std::min(best, fluid.seconds());
            high = middle;
        } else {
            low = middle;
        }
    }
    if (fluid.solve(largest, d)) { best = std::min(best, fluid.seconds()); }
    return best;
}

}  // namespace residency::inline RESIDENCY_ABI::plan
