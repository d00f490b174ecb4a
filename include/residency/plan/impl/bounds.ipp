// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "residency/model/number.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/network_simplex.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE double total_compute(const Problem& problem) {
    double sum = 0;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) { sum += problem.compute(i); }
    return sum;
}

RESIDENCY_INLINE std::uint64_t deficit_bytes(const Problem& problem, std::uint64_t budget_bytes) {
    std::vector<std::uint8_t> counts(problem.storages(), 0);
    for (const std::uint32_t s : problem.step_storages) { counts[s] = 1; }
    for (const std::uint32_t s : problem.kept) { counts[s] = 1; }
    std::uint64_t sum = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) { sum += counts[s] != 0 ? problem.storage_bytes[s] : 0; }
    return sum > budget_bytes ? sum - budget_bytes : 0;
}

RESIDENCY_INLINE double usual_bound(const Problem& problem, std::uint64_t budget_bytes) {
    return (std::max)(total_compute(problem),
                      static_cast<double>(deficit_bytes(problem, budget_bytes)) / problem.link.bytes_per_second);
}

RESIDENCY_INLINE double latency_floor(const Problem& problem, std::uint64_t budget_bytes, double latency_seconds) {
    const double d = static_cast<double>(deficit_bytes(problem, budget_bytes));
    if (d <= 0) { return total_compute(problem); }
    double shortest = problem.steps() == 0 ? 0 : problem.compute(0);
    for (std::uint32_t i = 1; i < problem.steps(); ++i) { shortest = (std::min)(shortest, problem.compute(i)); }
    const double p = problem.link.bytes_per_second;
    const double a = p * (std::min)(2 * latency_seconds, latency_seconds + shortest);
    return (std::max)(total_compute(problem), (d + 2 * std::sqrt(a * d) + a) / p);
}

namespace detail {

/// A floor of rings of whole chunks, in chunks that the link could copy; `held` of all chunks fit.
///
/// Of a ring of K slots, each slot gets a copy per pass, and the others hold the same chunk for ever. So a pass copies M = D + K chunks of
/// bytes at least, in n calls of λ chunks of latency each, and the link idles: P T >= M + λ n + idle.
/// - While step i runs, p_i chunks of time, the x_i chunks of bytes of it that stream hold ⌈x_i⌉ slots. No step ends before step i does, so
///   that each other slot gets one chunk that is of use at most: the link is busy with (K − ⌈x_i⌉) chunks, in as many calls at most.
///   It idles for p_i − (K − ⌈x_i⌉) (1 + λ) at least.
/// - Of two calls in a row, the slots of the first are in use when the second starts but for those that steps have released that began
///   after the first had ended, beside which the link idled all the time. So two calls have K chunks at most and what these steps
///   release, t_i: as many chunks as the bytes of step i can lie on. The sum over all pairs of calls: 2 M <= n K + Σ t_i over the steps so idle.
/// The least of M + λ n + idle under Σ x_i >= M: for any price μ of a chunk, no less than
///   M (1 + 2 λ / K + μ) + Σ_i min(p_i − λ t_i / K − μ s_i, least of (p_i − (K − ⌈x⌉) (1 + λ))⁺ − μ x over x <= s_i)
/// with s_i the chunks of bytes of step i. All terms but M fall as K grows, and −λ t_i / K grows: rings of a range of sizes have a floor together.
///
/// A second floor, of windows. What the steps a to b stream, less K chunks, comes by calls that start after step a and end before step b,
/// since calls that start before the end of step a write to slots that it does not hold. By the pairs of these calls, X such chunks take
/// X (1 + 2 λ / K) − λ and, for each step that runs while the link idles between two of them, p_i − λ t_i / K more. Let all steps take
/// max(p_i, λ t_i / K): what a to b stream is then at most K' + P' (time from a to b), with P' = 1 / (1 + 2 λ / K), K' = K + λ P'. A
/// chain of windows and of steps that stream min(s_i, K) at most, round the pass once or twice, bounds what all steps stream without
/// stalls; a stall lies in one window of it, so that it lets the link bring P' chunks a chunk of time more. The least chain is the
/// eigenvalue of one lap as a min-plus map of two numbers: chunks streamed so far, and the window that binds.
class ChunkFloor {
public:
    // `deficit`: D, in chunks.
    ChunkFloor(const Problem& problem, double deficit, std::uint64_t held, double latency_seconds)
        : chunk_{static_cast<double>(problem.chunk_bytes)},
          latency_{latency_seconds * problem.link.bytes_per_second / chunk_},
          deficit_{deficit},
          slots_{static_cast<double>(held)} {
        std::vector<bool> counted(problem.storages(), false);
        for (const std::uint32_t s : problem.kept) { counted[s] = true; }
        for (std::uint32_t i = 0; i < problem.steps(); ++i) {
            Step step{problem.compute(i) * problem.link.bytes_per_second / chunk_, 0, 0, 0};
            for (const std::uint32_t s : problem.reads(i)) {
                const double chunks = static_cast<double>(problem.storage_bytes[s]) / chunk_;
                step.releases += std::ceil(chunks) + 1;
                if (!counted[s]) { step.streams += chunks; }
                counted[s] = true;
            }
            step.slots = std::ceil(step.streams);
            steps_.push_back(step);
        }
    }

    [[nodiscard]] double solve() const {
        double best = (std::numeric_limits<double>::max)();
        for (double ring = 1; ring <= slots_; ring *= 2) { best = (std::min)(best, of_rings(ring, ring, best)); }
        for (double low = 1; low <= slots_ && deficit_ + low < best;) {
            const double high = (std::min)(slots_, (std::max)(low, std::floor(low * (1 + tuning::chunk_floor_range))));
            best = (std::min)(best, of_rings(low, high, best));
            low = high + 1;
        }
        return best;
    }

private:
    struct Step {
        double computes, streams, releases, slots;  // chunks
    };
    struct Priced {
        double floor, slope;  // in chunks; by price
    };

    // Of rings of low to high slots; ends where it is `enough`. The floor is concave in the price, which no one pays above 1 + λ.
    [[nodiscard]] double of_rings(double low, double high, double enough) const {
        double from = 0, to = 1 + latency_, best = of_windows(low, high);
        for (int k = 0; k < tuning::chunk_floor_halvings && best < enough; ++k) {
            const double price = (from + to) / 2;
            const Priced priced = at_price(low, high, price);
            best = (std::max)(best, priced.floor);
            (priced.slope > 0 ? from : to) = price;
        }
        return best;
    }

    [[nodiscard]] double of_windows(double low, double high) const {
        const double chunk = 1 + 2 * latency_ / high, ring = high + latency_ / chunk;  // time of one; K'
        constexpr double unbound = 1e290;
        double lap[2][2], computes = 0;
        for (int start = 0; start < 2; ++start) {
            double streamed = start == 0 ? 0 : unbound, window = start == 1 ? 0 : unbound, time = 0;
            computes = 0;
            for (const Step& step : steps_) {
                const double next = (std::min)(streamed + (std::min)(high, step.streams), ring + time + window);
                time += (std::max)(step.computes, latency_ * (std::min)(high, step.releases) / low) / chunk;
                window = (std::min)(window, streamed - time);
                streamed = next;
                computes += step.computes;
            }
            lap[start][0] = streamed;
            lap[start][1] = window + time;
        }
        const double most = (std::min)({lap[0][0], lap[1][1], (lap[0][1] + lap[1][0]) / 2});
        return computes + (std::max)(0.0, deficit_ + low - most) * chunk;
    }

    [[nodiscard]] Priced at_price(double low, double high, double price) const {
        Priced sum{(deficit_ + low) * (1 + 2 * latency_ / high + price), deficit_ + low};
        for (const Step& step : steps_) {
            double streams = (std::min)(high, step.streams);
            double least = step.computes - latency_ * (std::min)(high, step.releases) / low - price * streams;
            const double free = std::floor(high - step.computes / (1 + latency_));  // slots that it holds at no cost
            for (const double held : {free, free + 1}) {
                const double slots = (std::clamp)(held, 0.0, (std::min)(high, step.slots));
                const double idle = (std::max)(0.0, step.computes - (high - slots) * (1 + latency_));
                const double x = (std::min)(slots, step.streams);
                if (idle - price * x < least) {
                    least = idle - price * x;
                    streams = x;
                }
            }
            sum.floor += least;
            sum.slope -= streams;
        }
        return sum;
    }

    double chunk_, latency_, deficit_, slots_;
    std::vector<Step> steps_;
};

}  // namespace detail

RESIDENCY_INLINE double ring_floor(const Problem& problem, std::uint64_t budget_bytes, double latency_seconds,
                                   std::uint32_t most_steps) {
    const std::uint64_t most = budget_bytes / problem.chunk_bytes, held = most * problem.chunk_bytes;
    const double d = static_cast<double>(deficit_bytes(problem, held));
    if (d <= 0 || most == 0) { return total_compute(problem); }
    const double p = problem.link.bytes_per_second, g = static_cast<double>(problem.chunk_bytes);
    double shortest = problem.compute(0);
    for (std::uint32_t i = 1; i < problem.steps(); ++i) { shortest = (std::min)(shortest, problem.compute(i)); }
    const double a = p * (std::min)(2 * latency_seconds, latency_seconds + shortest);
    const auto by_calls = [&](std::uint64_t chunks) {
        const double ring = static_cast<double>(chunks) * g;
        return (d + ring) * (1 + a / ring) / p;
    };
    double least = total_compute(problem);
    if (problem.steps() <= tuning::chunk_floor_steps) {
        const double by_slots = detail::ChunkFloor{problem, d / g, most, latency_seconds}.solve() * g / p;
        if (residency::detail::is_finite(by_slots)) { least = (std::max)(least, by_slots); }
    }
    Problem slower = problem;
    const auto by_windows = [&](std::uint64_t chunks) {
        slower.link.bytes_per_second = p / (1 + p * latency_seconds / (static_cast<double>(chunks) * g));
        return single_use_bound(slower, held);
    };
    // by_calls() falls, then grows; by_windows() falls.
    // In chunks. `a` may be infinite.
    const double least_by_calls = (std::min)(std::sqrt(a * d) / g, static_cast<double>(most));
    auto low = (std::clamp<std::uint64_t>)(static_cast<std::uint64_t>(least_by_calls), 1, most);
    if (low < most && by_calls(low + 1) < by_calls(low)) { ++low; }
    if (problem.steps() > most_steps) { return (std::max)({least, by_calls(low), single_use_bound(problem, held)}); }
    double windows = by_windows(low);  // of the ring `low`
    if (windows <= by_calls(low)) { return (std::max)(least, by_calls(low)); }
    std::uint64_t high = most + 1;
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        const double now = by_windows(middle);
        if (now <= by_calls(middle)) {
            high = middle;
        } else {
            low = middle;
            windows = now;
        }
    }
    return (std::max)(least, high <= most ? (std::min)(windows, by_calls(high)) : windows);
}

namespace detail {

// The fractions a/b <= x < c/d nearest to x >= 0 whose denominators are at most `most` (Stern and Brocot).
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

// The capacity of an arc that bounds nothing.
inline constexpr std::int64_t any = INT64_MAX / 8;
// What the link brings beside a step.
inline std::int64_t bytes_beside(const Problem& problem, std::uint32_t step) {
    const double bytes = std::ceil(problem.link.bytes_per_second * problem.compute(step));
    return bytes < static_cast<double>(any) ? static_cast<std::int64_t>(bytes) : any;
}

}  // namespace detail

RESIDENCY_INLINE double flow_bound(const Problem& problem, std::uint64_t budget_bytes, std::uint32_t most_steps) {
    const std::uint32_t n = problem.steps();
    if (n > most_steps) { return -1; }
    std::vector<std::uint8_t> held(problem.storages(), 0);
    std::vector<std::uint32_t> first(problem.storages(), none), last(problem.storages(), none);
    for (const std::uint32_t s : problem.kept) { held[s] = 1; }
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
        if (held[s] != 0) {
            budget -= static_cast<std::int64_t>(problem.storage_bytes[s]);
        } else if (first[s] != none) {
            total += static_cast<std::int64_t>(problem.storage_bytes[s]);
            gaps.push_back({last[s], first[s], s, true});
        }
    }
    const double compute = total_compute(problem);
    if (total <= budget) { return compute; }

    NetworkSimplex flow{std::move(supplies)};
    std::vector<std::uint32_t> wrapping, stalling;
    using detail::any;
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
        const std::int64_t beside = detail::bytes_beside(problem, i);
        if (beside > 0) { arc(before, n + after, beside, 0, i == 0 || after == 0); }
    }
    // The cost is concave and piecewise linear in the price of memory; its slope is the memory used beyond the budget. Its corners are
    // fractions whose denominators are at most the passes that a cycle of the flow takes. Cutting planes from both sides meet at the
    // greatest value.
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

RESIDENCY_INLINE double single_use_bound(const Problem& problem, std::uint64_t budget_bytes) {
    const std::uint32_t n = problem.steps();
    const double p = problem.link.bytes_per_second;
    std::vector<double> bytes(n, 0.0), work(n);
    double kept = 0;
    std::vector<std::uint8_t> seen(problem.storages(), 0);
    for (const std::uint32_t s : problem.kept) {
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
    return SingleUseBound{std::move(bytes), std::move(work), static_cast<double>(budget_bytes) - kept}.solve() / p;
}

RESIDENCY_INLINE double one_shot_flow_bound(const Problem& problem, std::uint64_t budget_bytes,
                                            std::uint32_t most_steps) {
    const std::uint32_t n = problem.steps();
    if (n > most_steps) { return -1; }
    std::vector<std::uint8_t> held(problem.storages(), 0);
    std::vector<std::uint32_t> last(problem.storages(), none);
    for (const std::uint32_t s : problem.kept) { held[s] = 1; }
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
        if (held[s] != 0) { budget -= static_cast<std::int64_t>(problem.storage_bytes[s]); }
    }
    const double compute = total_compute(problem);
    if (total <= budget) { return compute; }
    supplies[start] = budget;
    supplies[end] = -budget;
    NetworkSimplex flow{std::move(supplies)};
    using detail::any;
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
        const std::int64_t beside = detail::bytes_beside(problem, i);
        if (beside > 0) { flow.add_arc(before, n + i + 1, beside, 0); }
    }
    flow.add_arc(n - 1, end, any, 0);
    if (!flow.solve()) { return -1; }
    std::int64_t stalled = 0;
    for (const std::uint32_t a : stalling) { stalled += flow.flow(a); }
    return compute + static_cast<double>(stalled) / problem.link.bytes_per_second;
}

RESIDENCY_INLINE bool reads_repeatedly(const Problem& problem) {
    std::vector<std::uint32_t> last(problem.storages(), none);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (last[s] != none && last[s] != i && problem.storage_bytes[s] != 0) { return true; }
            last[s] = i;
        }
    }
    return false;
}

RESIDENCY_INLINE double one_shot_bound(const Problem& problem, std::uint64_t budget_bytes) {
    const double p = problem.link.bytes_per_second;
    double room = static_cast<double>(budget_bytes);
    std::vector<std::uint8_t> seen(problem.storages(), 0);
    for (const std::uint32_t s : problem.kept) {
        if (seen[s] == 0) { room -= static_cast<double>(problem.storage_bytes[s]); }
        seen[s] = 1;
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

RESIDENCY_INLINE double exact_bound(const Problem& problem, std::uint64_t budget_bytes, std::uint32_t most_steps) {
    const double single =
        problem.cyclic ? single_use_bound(problem, budget_bytes) : one_shot_bound(problem, budget_bytes);
    if (!reads_repeatedly(problem)) { return single; }
    return (std::max)(single, problem.cyclic ? flow_bound(problem, budget_bytes, most_steps)
                                             : one_shot_flow_bound(problem, budget_bytes, most_steps));
}

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
