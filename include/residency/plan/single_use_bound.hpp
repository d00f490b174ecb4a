// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

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
#include "residency/plan/impl/single_use_bound.ipp"
#endif
