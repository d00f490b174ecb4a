// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The relaxation without latency or granularity: how many bytes of each step to stream through a ring of ρ bytes.
class Fluid {
public:
    /// `bytes`: what may stream, one a step; `compute`: seconds, one a step. Both must outlive this.
    Fluid(std::span<const double> bytes, std::span<const double> compute, double bytes_per_second)
        : bytes_{bytes}, compute_{compute}, rate_{bytes_per_second}, stream_(bytes.size()), slack_(bytes.size()) {
        for (const double c : compute_) { total_compute_ += c; }
        for (const double b : bytes_) { total_bytes_ += b; }
    }

    /// Streams deficit + ring bytes a pass. False where a ring of that size cannot without an idle link. stream() and seconds()
    /// hold the answer. O(steps) a lap, a few laps.
    bool solve(double ring, double deficit) {
        const std::size_t n = bytes_.size();
        const double most = without_stall(ring);
        const double total = deficit + ring;
        const double need = total - most;
        if (need <= 0) {
            const double scale = most > 0 ? total / most : 0;
            for (double& r : stream_) { r *= scale; }
            seconds_ = total_compute_;
            return true;
        }
        // slack: min over later b of ring + P (start_b − end_i) − (N_b − N_{i−1}), by a backward sweep over two laps.
        // Minimum over b of P start_b − N_b, in the coordinates of position i.
        double low = std::numeric_limits<double>::infinity();
        double start = 0, before = 0;
        std::vector<double>& slack = slack_;
        start = 2 * total_compute_;
        before = 2 * most;
        for (std::size_t at = 2 * n; at-- > 0;) {
            const std::size_t i = at % n;
            before -= stream_[i];
            start -= compute_[i];
            if (at < n) {
                const double end = start + compute_[i];
                slack[i] = (std::min)(ring - stream_[i], ring + low - rate_ * end + before);
            }
            low = (std::min)(low, rate_ * start - (before + stream_[i]));
        }
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            slack[i] = (std::max)(0.0, (std::min)(slack[i], bytes_[i] - stream_[i]));
            sum += slack[i];
        }
        seconds_ = total_compute_ + need / rate_;
        if (sum < need * (1 - 1e-12)) { return false; }
        for (std::size_t i = 0; i < n; ++i) { stream_[i] += need * slack[i] / sum; }
        return true;
    }

    /// Most bytes that a pass can stream through a ring without a stall; fills stream(). Laps repeat until one is like the one
    /// before; where laps go on taking turns, their mean streams as much, the constraints being convex.
    double without_stall(double ring) {
        const std::size_t n = bytes_.size();
        const int laps = tuning::fluid_laps, settled = tuning::fluid_settled_laps;
        mean_.assign(n, 0.0);
        double floor = std::numeric_limits<double>::infinity();
        double streamed = 0, time = 0, change = 1;
        for (int lap = 0; lap < laps && change > 0; ++lap) {
            change = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double next = (std::max)(
                    streamed, (std::min)({streamed + bytes_[i], streamed + ring, ring + rate_ * time + floor}));
                const double step = next - streamed;
                if (lap == 0 || step > stream_[i] + 1e-9 * ring || step < stream_[i] - 1e-9 * ring) { change = 1; }
                stream_[i] = step;
                if (lap >= settled) { mean_[i] += step / (laps - settled); }
                time += compute_[i];
                floor = (std::min)(floor, streamed - rate_ * time);
                streamed = next;
            }
        }
        if (change > 0) { stream_ = mean_; }
        double sum = 0;
        for (const double r : stream_) { sum += r; }
        const double most = rate_ * total_compute_;  // a ring that is nearly everything takes many laps to be full
        if (sum > most) {
            for (double& r : stream_) { r *= most / sum; }
            sum = most;
        }
        return sum;
    }

    [[nodiscard]] const std::vector<double>& stream() const noexcept { return stream_; }
    [[nodiscard]] double seconds() const noexcept { return seconds_; }
    [[nodiscard]] double total_bytes() const noexcept { return total_bytes_; }
    [[nodiscard]] double total_compute() const noexcept { return total_compute_; }

private:
    std::span<const double> bytes_, compute_;
    double rate_ = 0, total_compute_ = 0, total_bytes_ = 0, seconds_ = 0;
    std::vector<double> stream_, slack_, mean_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
