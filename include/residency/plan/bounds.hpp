// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/network_simplex.hpp"
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

namespace detail {

/// The relaxation at L = 0 and byte granularity for steps whose storages no other step reads.
///
/// With r_i bytes of step i streamed, ρ = B − Σ (s_i − r_i) the ring and δ the bytes that an idle link could have moved,
/// P T = D + ρ + δ. Where the link idles during one step and something of another is resident, a byte of that can stream instead
/// at the same T. So some optimum has δ = 0, or nothing resident but a part of one step: of that whose s_j + P c_j is largest,
/// since any other leaves the window from j to the next j as it is.
/// Given what is resident and everything else streaming, T is the eigenvalue of one lap as a max-plus map of two numbers, convex
/// in the resident part of j. δ = 0: T = (D + ρ) / P for the least ρ that keeps the link busy, a system of difference constraints
/// in ρ, solved by Newton's method on its positive cycles. Exact; O(steps) a sweep, some tens of sweeps.
class SingleUseBound {
public:
    SingleUseBound(std::vector<double> bytes, std::vector<double> work, double budget)
        : bytes_{std::move(bytes)}, work_{std::move(work)}, budget_{budget} {}

    /// P · T, bytes. `bytes` and `work` (P · c) are one a step.
    double solve() {
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

private:
    // P T when `kept` bytes of step j stay and everything else goes through one ring of the rest of the budget.
    double everything_streams(double total, std::size_t j, double kept) const {
        const std::size_t n = bytes_.size();
        double q[2][2];
        constexpr double never = -1e290;
        for (int start = 0; start < 2;
             ++start) {  // y: when the last step ended, in bytes of the link; m: of the window that binds
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

    // The least ring that satisfies a constraint cycle which `ring` violates; `ring` where it violates none, 1e300 where no larger
    // ring helps.
    double violated(double ring) {
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
    double cycle() {
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

    struct From {
        std::size_t from = 0;
        double gain = 0, slope = 0;
        int laps = 0;
        bool set = true;
    };
    std::vector<double> bytes_, work_, before_, level_;
    std::vector<From> from_;
    std::vector<std::uint32_t> mark_;
    double budget_ = 0, deficit_ = 0;
};

}  // namespace detail

namespace detail {

/// The neighbours a/b <= x < c/d of x >= 0 among the fractions whose denominator is at most `most` (Stern and Brocot).
struct Neighbours {
    std::int64_t a, b, c, d;
};
inline Neighbours neighbours(double x, std::int64_t most) {
    Neighbours f{static_cast<std::int64_t>(std::floor(x)), 1, static_cast<std::int64_t>(std::floor(x)) + 1, 1};
    while (f.b + f.d <= most) {
        if (static_cast<double>(f.a + f.c) / static_cast<double>(f.b + f.d) <= x) {
            f.a += f.c;
            f.b += f.d;
        } else {
            f.c += f.a;
            f.d += f.b;
        }
    }
    return f;
}

}  // namespace detail

/// The exact bound of any cyclic schedule at L = 0 and byte granularity, as a flow of memory round the pass: what a step leaves
/// behind is held for its next reader, or becomes free, carries a fetch (P · c_i bytes beside step i, any number beside a stall at
/// one stalled byte each) and waits for its reader. Minimum cost for a flow of B bytes across the end of the pass. Seconds, rounded
/// down to a byte a step; negative where there are more than `most_steps` steps, for which this takes too long.
inline double flow_bound(const Problem& problem, std::uint64_t budget_bytes, std::uint32_t most_steps = 2000) {
    const std::uint32_t n = problem.steps();
    if (n > most_steps) { return -1; }
    std::vector<std::uint8_t> held(problem.storages(), 0);
    std::vector<std::uint32_t> first(problem.storages(), none), last(problem.storages(), none);
    for (const std::uint32_t s : problem.pinned) { held[s] = 1; }
    std::vector<std::int64_t> supplies(std::size_t{2} * n, 0);  // node i: after step i; node n + i: before step i
    struct Gap {
        std::uint32_t from, to, storage;
        bool wraps;
    };
    std::vector<Gap> gaps;
    for (std::uint32_t i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (held[s] != 0 || problem.storage_bytes[s] == 0 || last[s] == i) { continue; }
            const auto bytes = static_cast<std::int64_t>(problem.storage_bytes[s]);
            supplies[i] += bytes;
            supplies[n + i] -= bytes;
            if (first[s] == none) {
                first[s] = i;
            } else {
                gaps.push_back({last[s], i, s, false});
            }
            last[s] = i;
        }
    }
    auto budget = static_cast<std::int64_t>(budget_bytes);
    std::int64_t total = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (held[s] != 0 || first[s] == none) {
            budget -= static_cast<std::int64_t>(problem.storage_bytes[s]);
        } else {
            total += static_cast<std::int64_t>(problem.storage_bytes[s]);
            gaps.push_back({last[s], first[s], s, true});
        }
    }
    const double compute = total_compute(problem);
    if (total <= budget) { return compute; }

    NetworkSimplex flow{std::move(supplies)};
    std::vector<std::uint32_t> wrapping, stalling;
    constexpr std::int64_t any = INT64_MAX / 8;
    const auto arc = [&](std::uint32_t from, std::uint32_t to, std::int64_t capacity, std::int64_t cost, bool wraps) {
        const std::uint32_t a = flow.add_arc(from, to, capacity, cost);
        if (wraps) { wrapping.push_back(a); }
        return a;
    };
    for (const Gap& gap : gaps) {
        arc(gap.from, n + gap.to, static_cast<std::int64_t>(problem.storage_bytes[gap.storage]), 0, gap.wraps);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t before = i == 0 ? n - 1 : i - 1, after = i + 1 == n ? 0 : i + 1;
        arc(i, after, any, 0, after == 0);
        arc(n + i, n + after, any, 0, after == 0);
        stalling.push_back(arc(before, n + i, any, 1, i == 0));
        const auto beside = static_cast<std::int64_t>(std::ceil(problem.link.bytes_per_second * problem.compute(i)));
        if (beside > 0) { arc(before, n + after, beside, 0, i == 0 || after == 0); }
    }
    // Concave and piecewise linear in the price of memory, a fraction with a denominator of at most the passes that a cycle of
    // the flow takes; its slope is the memory used beyond the budget. Cutting planes from both sides meet at the greatest value.
    struct Line {
        double price, value, slope;
    };
    const auto at = [&](std::int64_t numerator, std::int64_t denominator, Line& line) {
        for (const std::uint32_t a : stalling) { flow.set_cost(a, denominator); }
        for (const std::uint32_t a : wrapping) { flow.set_cost(a, numerator); }
        flow.set_cost(stalling[0], numerator + denominator);
        if (!flow.solve()) { return false; }
        std::int64_t stalled = 0, used = -budget;
        for (const std::uint32_t a : stalling) { stalled += flow.flow(a); }
        for (const std::uint32_t a : wrapping) { used += flow.flow(a); }
        line.price = static_cast<double>(numerator) / static_cast<double>(denominator);
        line.slope = static_cast<double>(used);
        line.value = static_cast<double>(stalled) + line.price * line.slope;
        return true;
    };
    Line low{}, high{};
    if (!at(16 * static_cast<std::int64_t>(n) + 16, 1, high) || !at(0, 1, low)) { return -1; }
    double best = (std::max)({0.0, low.value, high.value});
    for (int cuts = 0; cuts < 200 && low.slope > 0 && high.slope < 0; ++cuts) {
        const double price =
            (high.value - low.value + low.slope * low.price - high.slope * high.price) / (low.slope - high.slope);
        const double most = low.value + low.slope * (price - low.price);
        if (most <= best * (1 + 1e-12)) { break; }
        const auto [a, b, c, d] = detail::neighbours(price, static_cast<std::int64_t>(n) + 1);
        const bool below = static_cast<double>(a) / static_cast<double>(b) > low.price;
        if (!below && static_cast<double>(c) / static_cast<double>(d) >= high.price) { break; }
        Line line{};
        if (!(below ? at(a, b, line) : at(c, d, line))) { return -1; }
        best = (std::max)(best, line.value);
        (line.slope > 0 ? low : high) = line;
        if (line.slope == 0) { break; }
    }
    return compute + best / problem.link.bytes_per_second;
}

/// The exact bound of a cyclic schedule that reads each storage in one step only; of any other, a bound: each storage counts at
/// its first reader alone. Seconds. O(steps) times some tens.
inline double single_use_bound(const Problem& problem, std::uint64_t budget_bytes) {
    const std::uint32_t n = problem.steps();
    const double p = problem.link.bytes_per_second;
    std::vector<double> bytes(n, 0.0), work(n);
    double kept = 0;
    std::vector<std::uint8_t> seen(problem.storages(), 0);
    for (const std::uint32_t s : problem.pinned) {
        if (seen[s] == 0) { kept += static_cast<double>(problem.storage_bytes[s]); }
        seen[s] = 1;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
        work[i] = p * problem.compute(i);
        for (const std::uint32_t s : problem.reads(i)) {
            if (seen[s] == 0) { bytes[i] += static_cast<double>(problem.storage_bytes[s]); }
            seen[s] = 1;
        }
    }
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (seen[s] == 0) { kept += static_cast<double>(problem.storage_bytes[s]); }
    }
    return detail::SingleUseBound{std::move(bytes), std::move(work), static_cast<double>(budget_bytes) - kept}.solve() /
           p;
}

/// The exact bound of one pass of any schedule when what is there at the start may be chosen, by a flow of memory from the start
/// to the end (see flow_bound). Seconds, rounded down to a byte a step; negative where there are more than `most_steps` steps.
inline double one_shot_flow_bound(const Problem& problem, std::uint64_t budget_bytes, std::uint32_t most_steps = 2000) {
    const std::uint32_t n = problem.steps();
    if (n > most_steps) { return -1; }
    std::vector<std::uint8_t> held(problem.storages(), 0);
    std::vector<std::uint32_t> last(problem.storages(), none);
    for (const std::uint32_t s : problem.pinned) { held[s] = 1; }
    std::vector<std::int64_t> supplies(2 * static_cast<std::size_t>(n) + 2,
                                       0);  // as in flow_bound, then the start and the end
    const std::uint32_t start = 2 * n, end = 2 * n + 1;
    struct Gap {
        std::uint32_t from, to, storage;
    };
    std::vector<Gap> gaps;
    std::int64_t total = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (held[s] != 0 || problem.storage_bytes[s] == 0 || last[s] == i) { continue; }
            const auto bytes = static_cast<std::int64_t>(problem.storage_bytes[s]);
            if (last[s] == none) { total += bytes; }
            supplies[i] += bytes;
            supplies[n + i] -= bytes;
            gaps.push_back({last[s] == none ? start : last[s], i, s});
            last[s] = i;
        }
    }
    auto budget = static_cast<std::int64_t>(budget_bytes);
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (held[s] != 0 || last[s] == none) { budget -= static_cast<std::int64_t>(problem.storage_bytes[s]); }
    }
    const double compute = total_compute(problem);
    if (total <= budget) { return compute; }
    supplies[start] = budget;
    supplies[end] = -budget;
    NetworkSimplex flow{std::move(supplies)};
    constexpr std::int64_t any = INT64_MAX / 8;
    std::vector<std::uint32_t> stalling;
    for (const Gap& gap : gaps) {
        flow.add_arc(gap.from, n + gap.to, static_cast<std::int64_t>(problem.storage_bytes[gap.storage]), 0);
    }
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t before = i == 0 ? start : i - 1;
        flow.add_arc(before, i, any, 0);
        stalling.push_back(flow.add_arc(before, n + i, any, 1));
        if (i + 1 == n) { continue; }
        flow.add_arc(n + i, n + i + 1, any, 0);
        const auto beside = static_cast<std::int64_t>(std::ceil(problem.link.bytes_per_second * problem.compute(i)));
        if (beside > 0) { flow.add_arc(before, n + i + 1, beside, 0); }
    }
    flow.add_arc(n - 1, end, any, 0);
    if (!flow.solve()) { return -1; }
    std::int64_t stalled = 0;
    for (const std::uint32_t a : stalling) { stalled += flow.flow(a); }
    return compute + static_cast<double>(stalled) / problem.link.bytes_per_second;
}

/// Whether some storage is read by more than one step.
inline bool reads_repeatedly(const Problem& problem) {
    std::vector<std::uint32_t> last(problem.storages(), none);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (last[s] != none && last[s] != i && problem.storage_bytes[s] != 0) { return true; }
            last[s] = i;
        }
    }
    return false;
}

/// The exact bound of one pass of a schedule that reads each storage in one step only, when what is there at the start may be
/// chosen: the bytes that are used first. Of any other schedule, a bound: each storage counts at its first reader alone. Seconds.
inline double one_shot_bound(const Problem& problem, std::uint64_t budget_bytes) {
    const double p = problem.link.bytes_per_second;
    double room = static_cast<double>(budget_bytes);
    std::vector<std::uint8_t> seen(problem.storages(), 0), read(problem.storages(), 0);
    for (const std::uint32_t s : problem.step_storages) { read[s] = 1; }
    for (const std::uint32_t s : problem.pinned) {
        if (read[s] != 0) { room -= static_cast<double>(problem.storage_bytes[s]); }
        seen[s] = 1;
    }
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (read[s] == 0) { room -= static_cast<double>(problem.storage_bytes[s]); }
    }
    // Fetched so far, at most as much as steps that are over have left behind.
    double now = 0, fetched = 0, needed = 0, left = 0;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (seen[s] == 0) { needed += static_cast<double>(problem.storage_bytes[s]); }
            seen[s] = 1;
        }
        const double missing = needed - room - fetched;
        if (missing > 0) {
            now += missing / p;
            fetched += missing;
        }
        const double c = problem.compute(i);
        fetched = (std::max)(fetched, (std::min)(left, fetched + p * c));
        now += c;
        left = needed;
    }
    return now;
}

/// The exact bound: what no plan of copies goes below at L = 0, whatever it keeps and whenever it copies. Where storages are read
/// repeatedly and there are more than `most_steps` steps: a bound, not the exact one. Seconds.
inline double exact_bound(const Problem& problem, std::uint64_t budget_bytes, std::uint32_t most_steps = 2000) {
    const double single =
        problem.cyclic ? single_use_bound(problem, budget_bytes) : one_shot_bound(problem, budget_bytes);
    if (!reads_repeatedly(problem)) { return single; }
    return (std::max)(single, problem.cyclic ? flow_bound(problem, budget_bytes, most_steps)
                                             : one_shot_flow_bound(problem, budget_bytes, most_steps));
}

}  // namespace residency::inline RESIDENCY_ABI::plan
