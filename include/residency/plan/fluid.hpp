// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The relaxation of a ring without latency and granularity: which share of each step's bytes to stream through a ring of any size.
/// stream() never exceeds what a step may stream.
class Fluid {
public:
    /// `bytes`: what may stream, one for each step; `compute`: seconds, one for each step. Both must outlive this.
    Fluid(std::span<const double> bytes, std::span<const double> compute, double bytes_per_second);

    /// Streams deficit + ring bytes per pass; stream() and seconds() hold the answer. False where a ring of that size cannot, unless
    /// the link idles. O(steps) per lap, a few laps.
    [[nodiscard]] bool solve(double ring, double deficit);

    /// The most bytes that a pass can stream through a ring without a stall; stream() holds how.
    double without_stall(double ring);

    [[nodiscard]] const std::vector<double>& stream() const noexcept { return stream_; }  ///< bytes, one for each step
    [[nodiscard]] double seconds() const noexcept { return seconds_; }                    ///< per pass
    [[nodiscard]] double total_bytes() const noexcept { return total_bytes_; }
    [[nodiscard]] double total_compute() const noexcept { return total_compute_; }

private:
    std::span<const double> bytes_, compute_;
    double rate_ = 0, total_compute_ = 0, total_bytes_ = 0, seconds_ = 0;
    std::vector<double> stream_, slack_, mean_;  // by step
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/fluid.ipp"
#endif
