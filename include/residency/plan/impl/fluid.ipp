// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "residency/plan/fluid.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE Fluid::Fluid(std::span<const double> bytes, std::span<const double> compute, double bytes_per_second)
    : bytes_{bytes}, compute_{compute}, rate_{bytes_per_second}, stream_(bytes.size()), slack_(bytes.size()) {
    for (const double c : compute_) { total_compute_ += c; }
    for (const double b : bytes_) { total_bytes_ += b; }
}

RESIDENCY_INLINE bool Fluid::solve(double ring, double deficit) {
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
    // The slack of step i is the least, over later steps b, of ring + P (start_b − end_i) − (N_b − N_{i−1}), where N counts the bytes
    // streamed before a step. A backward sweep over two laps finds it; `low` is the least P start_b − N_b so far.
    double low = (std::numeric_limits<double>::max)();
    double start = 2 * total_compute_, before = 2 * most;
    for (std::size_t at = 2 * n; at-- > 0;) {
        const std::size_t i = at % n;
        before -= stream_[i];
        start -= compute_[i];
        if (at < n) {
            const double end = start + compute_[i];
            slack_[i] = (std::min)(ring - stream_[i], ring + low - rate_ * end + before);
        }
        low = (std::min)(low, rate_ * start - (before + stream_[i]));
    }
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        slack_[i] = (std::max)(0.0, (std::min)(slack_[i], bytes_[i] - stream_[i]));
        sum += slack_[i];
    }
    seconds_ = total_compute_ + need / rate_;
    if (sum < need * (1 - 1e-12)) { return false; }
    for (std::size_t i = 0; i < n; ++i) { stream_[i] += need * slack_[i] / sum; }
    return true;
}

// Laps repeat until one is like the one before. Where laps go on taking turns, their mean streams as much, since the constraints
// are convex.
RESIDENCY_INLINE double Fluid::without_stall(double ring) {
    const std::size_t n = bytes_.size();
    const int laps = tuning::fluid_laps, settled = tuning::fluid_settled_laps;
    mean_.assign(n, 0.0);
    double floor = (std::numeric_limits<double>::max)();
    double streamed = 0, time = 0, change = 1;
    for (int lap = 0; lap < laps && change > 0; ++lap) {
        change = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double next =
                (std::max)(streamed, (std::min)({streamed + bytes_[i], streamed + ring, ring + rate_ * time + floor}));
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
    const double most = rate_ * total_compute_;  // a ring of nearly everything takes many laps to fill
    if (sum > most) {
        for (double& r : stream_) { r *= most / sum; }
        sum = most;
    }
    return sum;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
