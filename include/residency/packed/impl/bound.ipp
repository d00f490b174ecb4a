// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/packed/bound.hpp"
#include "residency/packed/dual_simplex.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

namespace detail {

/// The linear program of exact_bound(). Columns: the packed share of each storage that may be unpacked, what of it each later reading
/// unpacks again, the bytes that come again before each reading, the stall in front of each step, the memory to unpack to, and whether a
/// step unpacks at all. All bytes are shares of the model's, and all times the bytes that the link could move.
///
/// F(t), what the link has delivered, grows by at most the link's rate. Before step i starts it is at least what all readings so far have
/// asked for (need), and until step i ends at most that and what has room (cap). Such an F exists if and only if need and cap keep the
/// order of F over every pair of steps, over the end of the pass too where it repeats: these are the rows, added when they are violated.
class PackedBound {
public:
    PackedBound(const UnpackProblem& problem, std::uint64_t budget_bytes) : problem_{problem} {
        read_storages(budget_bytes);
        read_accesses();
        add_times();
    }
    /// Seconds.
    [[nodiscard]] double solve();

private:
    using Term = DualSimplex::Term;
    using Terms = std::vector<Term>;
    static constexpr std::uint32_t nothing = UINT32_MAX;
    static constexpr double violated_by = 1e-11;
    static constexpr std::size_t rows_at_once = 40;
    static constexpr std::uint32_t drop_rounds = 20, most_drops = 40;
    static constexpr std::uint64_t most_pivots = 20'000;
    static constexpr double rounding = 1e-6;  // above it the program begins again

    /// A reading, and the bytes that come for it: what lies in memory since the reading before does not come again.
    struct Access {
        std::uint32_t storage = 0, column = 0;
        std::uint32_t before = 0;  // the step that read it last; nothing: none in this pass, and it runs once
        std::uint32_t at = 0;
        bool wraps = false;  // the first one of the pass
    };
    /// A step that unpacks of a storage: all that is packed in the first one that reads it, and later what did not stay unpacked till then.
    struct Unpacking {
        std::uint32_t step = 0, column = 0;
    };
    struct Row {
        double by = 0;
        bool is_window = false;
        std::uint32_t first = 0, last = 0;
    };

    [[nodiscard]] std::uint32_t steps() const noexcept { return problem_.travels.steps(); }
    [[nodiscard]] bool is_unpacked(std::uint32_t s) const { return share_[s] != nothing; }
    [[nodiscard]] double share_of(double bytes) const noexcept { return bytes / whole_; }
    [[nodiscard]] double share_of(std::uint64_t bytes) const noexcept { return share_of(static_cast<double>(bytes)); }

    void read_storages(std::uint64_t budget_bytes);
    void read_accesses();
    void add_times();
    void append_need(std::uint32_t step, double factor, Terms& terms) const;
    /// Returns what is constant.
    double append_cap(std::uint32_t step, double factor, Terms& terms) const;
    void append_pass(double fetched, double time, Terms& terms) const;
    void append_work(std::uint32_t step, double factor, Terms& terms) const {
        for (const auto& [column, work] : work_[step]) { terms.emplace_back(column, factor * work); }
    }
    [[nodiscard]] double value(const Terms& terms) const {
        double sum = 0;
        for (const auto& [column, factor] : terms) { sum += factor * program_.value(column); }
        return sum;
    }
    void find_simple_rows(std::vector<std::pair<Terms, double>>& found) const;
    void find_rows(std::vector<Row>& found) const;
    void add_row(const Row& row);
    /// Adds what is violated. False: nothing is.
    bool add_violated();

    const UnpackProblem& problem_;
    double whole_ = 1;  // bytes
    double room_ = 0;   // of what is counted, everything raw
    DualSimplex program_;
    std::vector<std::uint32_t> share_;                // by storage: the column of its packed share
    std::vector<std::vector<Unpacking>> unpackings_;  // by storage: for each step that reads it by itself
    std::vector<std::uint8_t> held_;                  // by storage: never travels, or is not counted
    std::vector<std::uint32_t> gone_;                 // by storage: its last reading, where the pass runs once
    std::vector<Access> accesses_;
    std::vector<std::uint32_t> stall_, launch_;  // by step; launch_: nothing, where at most one storage is unpacked
    std::vector<double> kernels_;                // by step
    std::vector<Terms> work_;                    // by step: of unpacking
    std::uint32_t memory_ = 0;                   // the column
};

inline void PackedBound::read_storages(std::uint64_t budget_bytes) {
    const plan::Problem& travels = problem_.travels;
    const std::uint32_t storages = travels.storages();
    held_.assign(storages, 0);
    share_.assign(storages, nothing);
    unpackings_.assign(storages, {});
    std::vector<std::uint8_t> counts(storages, 0);
    for (const std::uint32_t s : travels.step_storages) { counts[s] = 1; }
    for (const std::uint32_t s : travels.kept) { counts[s] = held_[s] = 1; }
    for (std::uint32_t i = 0; i < problem_.steps(); ++i) {
        for (const std::uint32_t s : problem_.reads(i)) {
            if (unpackings_[s].empty() || unpackings_[s].back().step != i) { unpackings_[s].push_back({i, nothing}); }
        }
    }
    double raw = 0;  // with everything raw that can be
    for (std::uint32_t s = 0; s < storages; ++s) {
        const bool must_stay = problem_.unpacked_bytes[s] > 0 && problem_.must_stay[s];
        if (must_stay) { held_[s] = 1; }
        if (counts[s] == 0 && !must_stay) { continue; }
        const bool is_raw = must_stay || (problem_.unpacked_bytes[s] > 0 && !unpackings_[s].empty());
        raw += static_cast<double>(is_raw ? problem_.unpacked_bytes[s] : travels.storage_bytes[s]);
    }
    whole_ = (std::max)(raw, 1.0);
    room_ = share_of(static_cast<double>(budget_bytes) - raw);
    const double p = travels.link.bytes_per_second;
    // Storages of a step that unpacks several share its launch.
    std::vector<std::uint32_t> unpacks(steps(), 0);
    const auto may_travel = [&](std::uint32_t s) {
        return problem_.unpacked_bytes[s] > 0 && !unpackings_[s].empty() && !problem_.must_stay[s];
    };
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (!may_travel(s)) { continue; }
        for (const Unpacking& each : unpackings_[s]) { ++unpacks[each.step]; }
    }
    work_.resize(steps());
    launch_.assign(steps(), nothing);
    const double launch = share_of(p * problem_.launch_seconds);
    for (std::uint32_t i = 0; i < steps(); ++i) {
        if (unpacks[i] < 2 || launch <= 0) { continue; }
        launch_[i] = program_.add_column(launch, 1);
        work_[i].emplace_back(launch_[i], launch);
    }
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (!may_travel(s)) { continue; }
        const double whole =
            share_of(p * static_cast<double>(problem_.unpacked_bytes[s]) / problem_.unpacked_bytes_per_second);
        for (Unpacking& each : unpackings_[s]) {
            const double work = whole + (launch_[each.step] == nothing ? launch : 0.0);
            each.column = program_.add_column(work, 1);
            work_[each.step].emplace_back(each.column, work);
        }
        share_[s] = unpackings_[s].front().column;
    }
}

inline void PackedBound::read_accesses() {
    const plan::Problem& travels = problem_.travels;
    std::vector<std::uint32_t> opening(travels.storages(), nothing), latest(travels.storages(), nothing);
    for (std::uint32_t i = 0; i < steps(); ++i) {
        for (const std::uint32_t s : travels.reads(i)) {
            if (held_[s] != 0 || travels.storage_bytes[s] == 0 || latest[s] == i) { continue; }
            if (opening[s] == nothing) { opening[s] = static_cast<std::uint32_t>(accesses_.size()); }
            const std::uint32_t column = program_.add_column(0, share_of(travels.storage_bytes[s]));
            accesses_.push_back({s, column, latest[s], i, latest[s] == nothing});
            latest[s] = i;
        }
    }
    for (Access& access : accesses_) {
        if (travels.cyclic && access.wraps) { access.before = latest[access.storage]; }
    }
    gone_ = std::move(latest);
}

inline void PackedBound::add_times() {
    const double p = problem_.travels.link.bytes_per_second;
    double fetched = 0;
    for (const Access& access : accesses_) { fetched += share_of(problem_.travels.storage_bytes[access.storage]); }
    for (std::uint32_t i = 0; i < steps(); ++i) {
        // All bytes that ever come take no longer than this.
        stall_.push_back(program_.add_column(1, 1 + fetched));
        kernels_.push_back(share_of(p * problem_.travels.compute(i)));
    }
    memory_ = program_.add_column(0, 2);  // everything is 1
}

inline void PackedBound::append_need(std::uint32_t step, double factor, Terms& terms) const {
    for (const Access& access : accesses_) {
        if (access.at <= step) { terms.emplace_back(access.column, factor); }
    }
}

inline double PackedBound::append_cap(std::uint32_t step, double factor, Terms& terms) const {
    double constant = room_;
    terms.emplace_back(memory_, -factor);
    const bool is_cyclic = problem_.travels.cyclic;
    for (std::uint32_t s = 0; s < share_.size(); ++s) {
        const bool is_gone = !is_cyclic && held_[s] == 0 && gone_[s] != nothing && gone_[s] < step;
        const double packed = share_of(problem_.travels.storage_bytes[s]);
        if (is_unpacked(s)) {
            const double saved = share_of(problem_.unpacked_bytes[s]) - (is_gone ? 0.0 : packed);
            terms.emplace_back(share_[s], factor * saved);
        } else if (is_gone) {
            constant += packed;
        }
    }
    for (const Access& access : accesses_) {
        const int dropped = (access.wraps ? 1 : 0) + (access.before != nothing && access.before < step ? 1 : 0);
        if (dropped > 0) { terms.emplace_back(access.column, factor * dropped); }
    }
    return factor * constant;
}

inline void PackedBound::append_pass(double fetched, double time, Terms& terms) const {
    for (const Access& access : accesses_) { terms.emplace_back(access.column, fetched); }
    for (std::uint32_t i = 0; i < steps(); ++i) {
        terms.emplace_back(stall_[i], time);
        append_work(i, time, terms);
    }
}

/// Finds violated rows of four kinds: a storage comes packed at most as far as it is packed; it has memory to be unpacked to; unpacking it
/// takes a launch; the link carries everything in the time of a pass.
inline void PackedBound::find_simple_rows(std::vector<std::pair<Terms, double>>& found) const {
    const auto check = [&](Terms terms, double most) {
        if (value(terms) > most + violated_by) { found.emplace_back(std::move(terms), most); }
    };
    for (const Access& access : accesses_) {
        if (!is_unpacked(access.storage)) { continue; }
        check(
            {{access.column, 1.0}, {share_[access.storage], -share_of(problem_.travels.storage_bytes[access.storage])}},
            0);
    }
    const std::uint32_t lanes = (std::max)(1U, problem_.leases_at_once);
    std::vector<Terms> together(steps());
    for (std::uint32_t s = 0; s < share_.size(); ++s) {
        if (!is_unpacked(s)) { continue; }
        const double bytes = share_of(problem_.unpacked_bytes[s]);
        std::uint64_t covered = unpackings_[s].front().step;  // to here it is unpacked
        for (const Unpacking& each : unpackings_[s]) {
            if (launch_[each.step] != nothing) { check({{each.column, 1.0}, {launch_[each.step], -1.0}}, 0); }
            if (each.column != share_[s]) { check({{each.column, 1.0}, {share_[s], -1.0}}, 0); }
            for (; covered < each.step; ++covered) {
                together[covered].emplace_back(share_[s], bytes);
                together[covered].emplace_back(each.column, -bytes);
            }
            const std::uint64_t end = (std::min<std::uint64_t>)(steps(), std::uint64_t{each.step} + lanes);
            for (; covered < end; ++covered) { together[covered].emplace_back(share_[s], bytes); }
        }
    }
    for (Terms& terms : together) {
        if (terms.empty()) { continue; }
        terms.emplace_back(memory_, -1.0);
        check(std::move(terms), 0);
    }
    // The link carries all of it in the time of a pass.
    Terms pass;
    append_pass(1, -1, pass);
    double kernels = 0;
    for (const double each : kernels_) { kernels += each; }
    check(std::move(pass), kernels);
}

inline void PackedBound::find_rows(std::vector<Row>& found) const {
    const std::uint32_t n = steps();
    std::vector<double> need(n), cap(n), start(n), end(n);
    Terms terms;
    double time = 0, fetched = 0;
    for (const Access& access : accesses_) { fetched += program_.value(access.column); }
    for (std::uint32_t i = 0; i < n; ++i) {
        terms.clear();
        append_need(i, 1, terms);
        need[i] = value(terms);
        terms.clear();
        const double constant = append_cap(i, 1, terms);
        cap[i] = constant + value(terms);
        start[i] = time += program_.value(stall_[i]);
        end[i] = time += kernels_[i] + value(work_[i]);
    }
    const bool is_cyclic = problem_.travels.cyclic;
    for (std::uint32_t i = 0; i < n; ++i) {
        Row room{violated_by, false, i, i}, window{violated_by, true, i, i};
        const std::uint32_t most = is_cyclic ? i + n : n - 1;
        for (std::uint32_t k = i; k <= most; ++k) {
            const std::uint32_t j = k < n ? k : k - n;
            const double lap = k < n ? 0 : fetched;
            if (k < i + n) {
                const double by = need[i] - cap[j] - lap;
                if (by > room.by) { room = {by, false, i, k}; }
            }
            if (k > i) {
                const double by = need[j] + lap - cap[i] - (start[j] + (k < n ? 0 : time) - end[i]);
                if (by > window.by) { window = {by, true, i, k}; }
            }
        }
        if (room.by > violated_by) { found.push_back(room); }
        if (window.by > violated_by) { found.push_back(window); }
        if (is_cyclic) { continue; }
        // The link starts with the pass: no bytes before.
        if (need[i] - start[i] > violated_by) { found.push_back({need[i] - start[i], true, nothing, i}); }
        if (-cap[i] > violated_by) { found.push_back({-cap[i], false, nothing, i}); }
    }
}

inline void PackedBound::add_row(const Row& row) {
    const std::uint32_t n = steps();
    const bool wraps = row.last >= n;
    const std::uint32_t last = wraps ? row.last - n : row.last;
    Terms terms;
    double most = 0;
    if (!row.is_window) {  // need of the first is at most the cap of the last
        if (row.first != nothing) { append_need(row.first, 1, terms); }
        most -= append_cap(last, -1, terms);
        if (wraps) { append_pass(-1, 0, terms); }
    } else {  // need of the last is at most the cap of the first and what the link moves from its end
        append_need(last, 1, terms);
        if (wraps) { append_pass(1, 0, terms); }
        std::uint32_t from = 0;
        if (row.first != nothing) {
            most -= append_cap(row.first, -1, terms);
            from = row.first + 1;
        }
        for (std::uint32_t k = from; k <= row.last; ++k) {
            const std::uint32_t i = k < n ? k : k - n;
            terms.emplace_back(stall_[i], -1.0);
            if (k == row.last) { break; }
            append_work(i, -1, terms);
            most += kernels_[i];
        }
    }
    program_.add_row(terms, most);
}

inline bool PackedBound::add_violated() {
    std::vector<std::pair<Terms, double>> simple;
    find_simple_rows(simple);
    for (const auto& [terms, most] : simple) { program_.add_row(terms, most); }
    std::vector<Row> rows;
    find_rows(rows);
    residency::detail::sort(rows, [](const Row& a, const Row& b) {
        if (a.by != b.by) { return a.by > b.by; }
        return a.is_window != b.is_window ? a.is_window : a.first < b.first;
    });
    // Those with nearly the same ends say nearly the same.
    const auto distance = [](std::uint32_t a, std::uint32_t b) { return a < b ? b - a : a - b; };
    std::vector<Row> taken;
    for (const Row& row : rows) {
        const bool is_said = std::any_of(taken.begin(), taken.end(), [&](const Row& other) {
            return other.is_window == row.is_window &&
                   distance(other.first, row.first) + distance(other.last, row.last) < steps() / 16;
        });
        if (is_said) { continue; }
        add_row(row);
        taken.push_back(row);
        if (taken.size() == rows_at_once) { break; }
    }
    return !simple.empty() || !rows.empty();
}

inline double PackedBound::solve() {
    double kernels = 0;
    for (const double each : kernels_) { kernels += each; }
    const double p = problem_.travels.link.bytes_per_second;
    double dropped_at = 0, proven = 0;
    for (std::uint32_t round = 1; add_violated(); ++round) {
        const std::uint64_t pivots = program_.pivots();
        double now = 0;
        const auto solve = [&] {
            const bool is_solved = program_.solve(most_pivots);
            if (!program_.is_impossible()) { proven = (std::max)(proven, program_.proven()); }
            now = program_.objective();
            return is_solved;
        };
        bool is_solved = solve();
        const bool is_idle = program_.pivots() == pivots;  // rounding: no new pivot mends what is violated still
        // Or the dictionary says more than its rows.
        if (!program_.is_impossible() && !is_idle && (!is_solved || now > proven + rounding * (kernels + now))) {
            program_.rebuild();
            is_solved = solve();
        }
        if (program_.is_impossible()) { return (std::numeric_limits<double>::infinity)(); }
        if (!is_solved || is_idle) { break; }
        // Where the objective has not grown, only so often: the same rows could come and go.
        const bool is_due = round % drop_rounds == 0 && round <= drop_rounds * most_drops;
        if (program_.rows() > 4 * rows_at_once && (is_due || now > dropped_at * (1 + 1e-9))) {
            dropped_at = now;
            program_.drop_loose_rows();
        }
    }
    return (kernels + proven) * whole_ / p;
}

/// The least time in which unpacking and the link together make room, any order of steps and windows left out: bytes that no copy brings in a
/// pass are there all the time, packed or raw, the link brings no more than a pass takes, and the memory to unpack to holds what is packed of
/// the largest. What saves most bytes for its time is packed.
inline double room_bound(const UnpackProblem& problem, std::uint64_t budget_bytes) {
    const plan::Problem& travels = problem.travels;
    std::vector<std::uint8_t> counts(travels.storages(), 0), is_read(travels.storages(), 0);
    for (const std::uint32_t s : travels.step_storages) { counts[s] = 1; }
    for (const std::uint32_t s : travels.kept) { counts[s] = 1; }
    for (const std::uint32_t s : problem.step_storages) { is_read[s] = 1; }
    struct Packable {
        double saved = 0, seconds = 0, raw = 0;  // of all its bytes
    };
    std::vector<Packable> all;
    double missing = -static_cast<double>(budget_bytes);  // with everything raw that can be
    for (std::uint32_t s = 0; s < travels.storages(); ++s) {
        const auto raw = static_cast<double>(problem.unpacked_bytes[s]);
        const auto packed = static_cast<double>(travels.storage_bytes[s]);
        if (raw > 0 && problem.must_stay[s]) {
            missing += raw;
        } else if (raw > 0 && is_read[s] != 0) {
            missing += raw;
            if (raw > packed) { all.push_back({raw - packed, raw / problem.unpacked_bytes_per_second, raw}); }
        } else if (counts[s] != 0) {
            missing += packed;
        }
    }
    const double rate = travels.link.bytes_per_second, kernels = plan::total_compute(travels);
    residency::detail::sort(all, [](const Packable& one, const Packable& other) {
        const double a = one.saved * other.seconds, b = other.saved * one.seconds;
        return a != b ? a > b : one.saved > other.saved;
    });
    double most = 0;
    for (const Packable& each : all) { most = (std::max)(most, each.raw); }
    const auto seconds_with = [&](double memory) {
        double seconds = kernels, left = missing + memory - rate * kernels;
        for (const Packable& each : all) {
            if (left <= 0) { return seconds; }
            const double room = each.saved + rate * each.seconds;
            const double part = (std::min)({1.0, left / room, memory / each.raw});
            seconds += part * each.seconds;
            left -= part * room;
        }
        return seconds + (std::max)(0.0, left) / rate;
    };
    // Convex in the memory, as the least value of a linear program is in what it is given.
    double low = 0, high = most;
    for (int turn = 0; turn < 120; ++turn) {
        const double left = low + (high - low) / 3, right = high - (high - low) / 3;
        if (seconds_with(left) <= seconds_with(right)) {
            high = right;
        } else {
            low = left;
        }
    }
    return seconds_with(low + (high - low) / 2) * (1 - 1e-9);
}

/// Bounds of any number of steps: everything packed, where that is less, and nothing to unpack; the time of the kernels and of unpacking
/// what has no room; and room_bound().
inline double loose_bound(const UnpackProblem& problem, std::uint64_t budget_bytes) {
    plan::Problem travels = problem.travels;
    std::vector<std::uint8_t> is_read(problem.unpacked_bytes.size(), 0);
    for (const std::uint32_t s : problem.step_storages) { is_read[s] = 1; }
    double unpack = 0, room = static_cast<double>(budget_bytes);
    for (std::size_t s = 0; s < problem.unpacked_bytes.size(); ++s) {
        const auto bytes = static_cast<double>(problem.unpacked_bytes[s]);
        if (bytes > 0 && problem.must_stay[s]) {
            travels.storage_bytes[s] = 0;
            room -= bytes;
        } else if (is_read[s] != 0) {
            unpack += bytes;
            if (bytes > 0) {  // raw or packed, whichever is less
                travels.storage_bytes[s] = (std::min)(travels.storage_bytes[s], problem.unpacked_bytes[s]);
            }
        }
    }
    if (room < 0) { return (std::numeric_limits<double>::infinity)(); }
    const double busy =
        plan::total_compute(travels) + (std::max)(0.0, unpack - room) / problem.unpacked_bytes_per_second;
    return (std::max)(
        {busy, room_bound(problem, budget_bytes), plan::exact_bound(travels, static_cast<std::uint64_t>(room), 0)});
}

}  // namespace detail

RESIDENCY_INLINE double exact_bound(const UnpackProblem& problem, std::uint64_t budget_bytes,
                                    std::uint32_t most_steps) {
    const double loose = detail::loose_bound(problem, budget_bytes);
    if (problem.travels.steps() > most_steps || !residency::detail::is_finite(loose)) { return loose; }
    return (std::max)(detail::PackedBound{problem, budget_bytes}.solve(), loose);
}

}}}  // namespace residency::RESIDENCY_ABI::packed
