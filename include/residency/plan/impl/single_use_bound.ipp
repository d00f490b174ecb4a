// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/single_use_bound.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE double SingleUseBound::solve() {
    double total = 0, work = 0;
    for (const double b : bytes_) { total += b; }
    for (const double w : work_) { work += w; }
    if (total <= budget_) { return work; }
    const std::size_t n = bytes_.size();
    double best = everything_streams(total, 0, 0);
    std::size_t j = 0;
    for (std::size_t i = 1; i < n; ++i) { j = bytes_[i] + work_[i] > bytes_[j] + work_[j] ? i : j; }
    if (bytes_[j] + work_[j] > budget_) {
        double low = 0, high = (std::min)(bytes_[j], budget_);
        for (int k = 0; k < 100; ++k) {
            const double a = low + (high - low) / 3, b = high - (high - low) / 3;
            const double at_a = everything_streams(total, j, a), at_b = everything_streams(total, j, b);
            best = (std::min)({best, at_a, at_b});
            (at_a < at_b ? high : low) = at_a < at_b ? b : a;
        }
    }
    deficit_ = total - budget_;
    before_.assign(2 * n + 3, 0.0);
    for (std::size_t t = 0; t + 1 < before_.size(); ++t) { before_[t + 1] = before_[t] + work_[t % n]; }
    double ring = (std::max)(0.0, work - deficit_);
    for (std::size_t i = 0; i < n; ++i) { ring = (std::max)(ring, work_[i] + work_[(i + 1) % n]); }
    while (ring <= budget_ && deficit_ + ring < best) {
        const double next = violated(ring);
        if (!(next > ring)) { return (std::max)(work, deficit_ + ring); }
        ring = next;
    }
    return best;
}

// P T when `kept` bytes of step j stay and everything else goes through one ring of the rest of the budget.
RESIDENCY_INLINE double SingleUseBound::everything_streams(double total, std::size_t j, double kept) const {
    const std::size_t n = bytes_.size();
    double q[2][2];
    constexpr double never = -1e290;
    for (int start = 0; start < 2; ++start) {
        // y: when the last step ended, in bytes of the link; m: of the window that binds.
        double y = start == 0 ? 0 : never, m = start == 1 ? 0 : never, sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const double streams = bytes_[i] - (i == j ? kept : 0.0);
            y = (std::max)(y, sum + streams + m - (budget_ - kept));
            m = (std::max)(m, y + work_[i] - sum);
            y += work_[i];
            sum += streams;
        }
        q[start][0] = y;
        q[start][1] = m + (total - kept);
    }
    return (std::max)({q[0][0], q[1][1], (q[0][1] + q[1][0]) / 2});
}

// The least ring that satisfies one cycle of constraints which `ring` violates; `ring` where it violates none, 1e300 where no larger
// ring helps.
RESIDENCY_INLINE double SingleUseBound::violated(double ring) {
    const std::size_t n = bytes_.size();
    const double lap = deficit_ + ring;
    const double tiny = 1e-12 * lap;
    level_.assign(n, 0.0);
    from_.assign(n, From{0, 0, 0, 0, false});
    for (int sweep = 0;; ++sweep) {
        bool changed = false;
        double best = -1e300;
        std::size_t best_at = 0;
        for (std::size_t t = 0; t < 2 * n; ++t) {
            const std::size_t i = t % n;
            const double shift = t < n ? 0 : lap;
            if (t > 0) {
                const std::size_t j = (t - 1) % n;
                const double x = level_[j] + (t - 1 < n ? 0 : lap);
                if (x > level_[i] + shift + tiny) {
                    level_[i] = x - shift;
                    from_[i] = {j, 0, 0, (t - 1 < n ? 0 : 1) - (t < n ? 0 : 1)};
                    changed = true;
                }
            }
            const double x = best + before_[t + 2] - ring;
            if (t > 0 && x > level_[i] + shift + tiny) {
                level_[i] = x - shift;
                from_[i] = {best_at % n, before_[t + 2] - before_[best_at], -1,
                            (best_at < n ? 0 : 1) - (t < n ? 0 : 1)};
                changed = true;
            }
            if (level_[i] + shift - before_[t] > best) {
                best = level_[i] + shift - before_[t];
                best_at = t;
            }
        }
        for (std::size_t t = 2 * n; t-- > 1;) {
            const std::size_t i = t % n, j = (t - 1) % n;
            const bool whole = bytes_[i] <= ring - work_[i];
            const double most = whole ? bytes_[i] : ring - work_[i];
            const double x = level_[i] + (t < n ? 0 : lap) - most;
            const double shift = t - 1 < n ? 0 : lap;
            if (x > level_[j] + shift + tiny) {
                level_[j] = x - shift;
                from_[j] = {i, whole ? -bytes_[i] : work_[i], whole ? 0.0 : -1.0,
                            (t < n ? 0 : 1) - (t - 1 < n ? 0 : 1)};
                changed = true;
            }
        }
        if (!changed) { return ring; }
        const double next = cycle();
        if (next > 0) { return next; }
        if (sweep > 4 * static_cast<int>(n) + 8) { return ring; }
    }
}

// The ring at which a cycle of the predecessors loses its gain, 0 where there is none.
RESIDENCY_INLINE double SingleUseBound::cycle() {
    const std::size_t n = bytes_.size();
    mark_.assign(n, 0);
    std::uint32_t colour = 0;
    for (std::size_t start = 0; start < n; ++start) {
        if (mark_[start] != 0) { continue; }
        ++colour;
        std::size_t i = start;
        while (mark_[i] == 0 && from_[i].set) {
            mark_[i] = colour;
            i = from_[i].from;
        }
        if (mark_[i] != colour || !from_[i].set) { continue; }
        double gain = 0, slope = 0;
        std::size_t j = i;
        do {  // gain + slope · ρ > 0
            gain += from_[j].gain + from_[j].laps * deficit_;
            slope += from_[j].slope + from_[j].laps;
            j = from_[j].from;
        } while (j != i);
        if (slope < 0) { return gain / -slope; }
        return 1e300;
    }
    return 0;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
