// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

namespace detail {

/// How many steps read each storage; 0: it is not unpacked, or no step reads it.
inline std::vector<std::uint32_t> count_reads(const UnpackProblem& problem) {
    std::vector<std::uint32_t> reads(problem.unpacked_bytes.size(), 0), latest(reads.size(), UINT32_MAX);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (problem.unpacked_bytes[s] > 0 && std::exchange(latest[s], i) != i) { ++reads[s]; }
        }
    }
    return reads;
}

/// Calls `unpack(step, storages)` for each step of a pass that unpacks, with what it unpacks: all that it reads by itself, does not stay, and
/// is not in its place since an earlier step.
template <class Unpack>
void for_each_unpacking(const UnpackProblem& problem, const UnpackLayout& layout, Unpack&& unpack) {
    const auto end = [&](std::uint32_t s) { return layout.offset[s] + problem.unpacked_bytes[s]; };
    const std::vector<std::uint32_t> reads = count_reads(problem);
    std::vector<bool> is_there = layout.stays;
    std::vector<std::uint32_t> there;  // what other steps read too, and is in its place
    std::vector<std::uint32_t> unpacked, wanted;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        unpacked.clear();
        for (const std::uint32_t s : problem.reads(i)) {
            if (problem.unpacked_bytes[s] == 0 || is_there[s]) { continue; }
            is_there[s] = true;
            unpacked.push_back(s);
        }
        if (unpacked.empty()) { continue; }
        if (!there.empty()) {
            wanted = unpacked;
            std::sort(wanted.begin(), wanted.end(),
                      [&](std::uint32_t a, std::uint32_t b) { return layout.offset[a] < layout.offset[b]; });
            std::erase_if(there, [&](std::uint32_t other) {
                const auto found = std::partition_point(
                    wanted.begin(), wanted.end(), [&](std::uint32_t s) { return end(s) <= layout.offset[other]; });
                const bool is_lost = found != wanted.end() && layout.offset[*found] < end(other);
                if (is_lost) { is_there[other] = false; }
                return is_lost;
            });
        }
        for (const std::uint32_t s : unpacked) {
            if (reads[s] > 1) { there.push_back(s); }
        }
        unpack(i, std::span<const std::uint32_t>{unpacked});
    }
}

/// What a pass unpacks, in the order of its steps.
inline std::vector<Unpacking> list_unpackings(const UnpackProblem& problem, const UnpackLayout& layout) {
    std::vector<Unpacking> all;
    for_each_unpacking(problem, layout, [&](std::uint32_t step, std::span<const std::uint32_t> unpacked) {
        for (const std::uint32_t s : unpacked) { all.push_back({s, step, step}); }
    });
    std::vector<std::size_t> latest(problem.unpacked_bytes.size(), all.size());
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (; next < all.size() && all[next].step == i; ++next) { latest[all[next].storage] = next; }
        for (const std::uint32_t s : problem.reads(i)) {
            if (latest[s] < all.size()) { all[latest[s]].live_until = i; }
        }
    }
    return all;
}

/// By storage: it stays unpacked in every layout.
inline std::vector<bool> must_stay_of(const UnpackProblem& problem) {
    std::vector<bool> result = problem.must_stay;
    result.resize(problem.unpacked_bytes.size(), false);
    for (std::size_t s = 0; s < result.size(); ++s) { result[s] = result[s] && problem.unpacked_bytes[s] > 0; }
    return result;
}

/// What may stay, in the order in which it is tried: a few steps with much to unpack, whose weights set how much memory the others share,
/// and then a share of the rest: first of what a pass would unpack most often, and among equals the same share everywhere in the pass.
class StayFamilies {
public:
    explicit StayFamilies(const UnpackProblem& problem) : problem_{problem}, times_(problem.unpacked_bytes.size(), 0) {
        std::vector<std::uint64_t> bytes(problem.steps(), 0);
        for (std::uint32_t i = 0; i < problem.steps(); ++i) {
            for (const std::uint32_t s : problem.reads(i)) { bytes[i] += problem.unpacked_bytes[s]; }
        }
        wide_.resize(problem.steps());
        std::iota(wide_.begin(), wide_.end(), 0U);
        residency::detail::sort(wide_, [&](std::uint32_t a, std::uint32_t b) {
            return bytes[a] != bytes[b] ? bytes[a] > bytes[b] : a < b;
        });
        for_each_unpacking(problem, lay_out(problem, stays(0, 0)),
                           [&](std::uint32_t, std::span<const std::uint32_t> unpacked) {
                               for (const std::uint32_t s : unpacked) {
                                   if (times_[s]++ == 0) { order_.push_back(s); }
                               }
                           });
        std::vector<std::uint32_t> place(times_.size(), 0);
        for (std::uint32_t k = 0; k < order_.size(); ++k) { place[order_[k]] = k; }
        residency::detail::sort(order_, [&](std::uint32_t a, std::uint32_t b) {
            return times_[a] != times_[b] ? times_[a] > times_[b] : place[a] < place[b];
        });
    }
    [[nodiscard]] std::uint32_t steps() const noexcept { return problem_.steps(); }
    /// What may stay: the most often unpacked first, and among equals by first use.
    [[nodiscard]] std::span<const std::uint32_t> order() const noexcept { return order_; }
    /// The storages of the `wide` widest steps, and `share` of the bytes of the others.
    [[nodiscard]] std::vector<bool> stays(std::uint32_t wide, double share) const {
        std::vector<bool> result = must_stay_of(problem_);
        for (std::uint32_t i = 0; i < wide && i < wide_.size(); ++i) {
            for (const std::uint32_t s : problem_.reads(wide_[i])) {
                if (problem_.unpacked_bytes[s] > 0) { result[s] = true; }
            }
        }
        if (share <= 0) { return result; }
        const auto bytes_of = [&](std::size_t k) { return static_cast<double>(problem_.unpacked_bytes[order_[k]]); };
        double left = 0;
        for (std::size_t k = 0; k < order_.size(); ++k) { left += result[order_[k]] ? 0 : share * bytes_of(k); }
        for (std::size_t begin = 0, last = 0; begin < order_.size() && left > 0; begin = last) {
            double whole = 0;
            for (; last < order_.size() && times_[order_[last]] == times_[order_[begin]]; ++last) {
                whole += result[order_[last]] ? 0 : bytes_of(last);
            }
            if (whole <= 0) { continue; }
            const double part = last == order_.size() && begin == 0 ? share : (std::min)(1.0, left / whole);
            double due = 0;
            for (std::size_t k = begin; k < last; ++k) {
                if (result[order_[k]]) { continue; }
                due += part * bytes_of(k);
                if (due >= bytes_of(k) * 0.5) {
                    result[order_[k]] = true;
                    due -= bytes_of(k);
                }
            }
            left -= part * whole;
        }
        return result;
    }

private:
    const UnpackProblem& problem_;
    std::vector<std::uint32_t> times_;  // by storage
    std::vector<std::uint32_t> wide_;   // steps, those with the most bytes first
    std::vector<std::uint32_t> order_;  // storages
};

/// What is left to plan beside a layout, without a budget.
inline plan::Problem rest_of(const UnpackProblem& problem, const UnpackLayout& layout) {
    plan::Problem rest = problem.travels;
    for (std::size_t s = 0; s < layout.stays.size(); ++s) {
        if (layout.stays[s]) { rest.storage_bytes[s] = 0; }
    }
    if (problem.keeps_image && rest.image_offsets.empty()) {
        const plan::Image aligned = plan::lay_out(rest, plan::ImageOrder::aligned);
        const plan::Image grouped = plan::lay_out(rest, plan::ImageOrder::grouped);
        const auto floor = [&](const plan::Image& image) { return plan::floor_chunks(image, rest.steps()).chunks; };
        rest.image_offsets = floor(aligned) < floor(grouped) ? aligned.offsets : grouped.offsets;
    }
    rest.compute_seconds.resize(problem.steps(), 0.0);
    for_each_unpacking(problem, layout, [&](std::uint32_t step, std::span<const std::uint32_t> unpacked) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : unpacked) { bytes += problem.unpacked_bytes[s]; }
        rest.compute_seconds[step] +=
            problem.launch_seconds + static_cast<double>(bytes) / problem.unpacked_bytes_per_second;
    });
    return rest;
}

/// About how long a pass takes: as long as the link or the kernels, whichever is longer.
inline double pass_seconds(double link_seconds, double kernel_seconds) noexcept {
    return (std::max)(link_seconds, kernel_seconds) + 1e-3 * (std::min)(link_seconds, kernel_seconds);
}

/// The layout, what it leaves to plan, and an estimate of the time of a pass, without a plan. Errors: of a malformed problem. None: the
/// budget is too small.
inline Result<std::optional<UnpackChoice>> estimate(const UnpackProblem& problem, std::vector<bool> stays,
                                                    std::uint64_t budget_bytes) {
    UnpackChoice result;
    result.layout = lay_out(problem, std::move(stays));
    result.rest = rest_of(problem, result.layout);
    const auto floor = plan::chunk_floor(result.rest, problem.storages_at_once);
    if (!floor) { return floor.error(); }
    result.floor_bytes = floor->floor_bytes;
    if (result.layout.bytes > budget_bytes || floor->floor_bytes > budget_bytes - result.layout.bytes) {
        return std::optional<UnpackChoice>{};
    }
    plan::Problem& rest = result.rest;
    rest.budget_bytes = budget_bytes - result.layout.bytes;
    // A ring takes about the floor of the budget.
    const std::uint64_t resident =
        rest.budget_bytes >= floor->everything_bytes ? floor->everything_bytes : rest.budget_bytes - floor->floor_bytes;
    const double link = floor->everything_bytes > resident
                            ? static_cast<double>(floor->everything_bytes - resident) / rest.link.bytes_per_second
                            : 0.0;
    result.seconds = pass_seconds(link, plan::total_compute(rest));
    return std::optional{std::move(result)};
}

/// A layout of a family, and its estimated time.
struct Candidate {
    std::uint32_t wide = 0;
    double share = 0;
    UnpackChoice choice;
};

/// Up to this number of storages, each is tried by itself: may it stay too?
inline constexpr std::size_t few_storages = 256;

/// Adds storages to a layout: in this order, each that still fits stays unpacked too.
inline Result<UnpackChoice> fill_up(const UnpackProblem& problem, std::span<const std::uint32_t> order,
                                    UnpackChoice choice, std::uint64_t budget_bytes) {
    std::vector<bool> stays = choice.layout.stays;
    for (const std::uint32_t s : order) {
        if (stays[s]) { continue; }
        stays[s] = true;
        auto one = estimate(problem, stays, budget_bytes);
        if (!one) { return one.error(); }
        if (*one) {
            choice = std::move(**one);
        } else {
            stays[s] = false;
        }
    }
    return choice;
}

/// Consecutive steps whose unpacked weights are there together.
inline std::uint32_t lanes_of(const UnpackProblem& problem) {
    return (std::max)(1U, (std::min)(problem.leases_at_once, problem.steps()));
}

/// Places storages one after the other, from shared_at on, beside the `taken` ones, which may come repeatedly. Returns where they end.
inline std::uint64_t place_beside(const UnpackProblem& problem, UnpackLayout& layout,
                                  std::span<const std::uint32_t> fresh, std::vector<std::uint32_t>& taken) {
    const auto size = [&](std::uint32_t s) { return UnpackLayout::place_bytes(problem.unpacked_bytes[s]); };
    std::vector<std::uint64_t>& offset = layout.offset;
    residency::detail::sort(taken, [&](std::uint32_t a, std::uint32_t b) {
        return offset[a] != offset[b] ? offset[a] < offset[b] : a < b;
    });
    std::uint64_t at = layout.shared_at;
    auto next = taken.begin();
    for (const std::uint32_t s : fresh) {
        for (; next != taken.end() && offset[*next] < at + size(s); ++next) {
            at = (std::max)(at, offset[*next] + size(*next));
        }
        offset[s] = std::exchange(at, at + size(s));
    }
    return at;
}

/// Places what several steps read, and does not stay, beside all that is there together with it, over the rest. What first comes in one step
/// is placed together. Returns where the places end.
inline std::uint64_t place_repeated(const UnpackProblem& problem, std::span<const std::uint32_t> reads,
                                    UnpackLayout& layout) {
    const auto is_repeated = [&](std::uint32_t s) { return reads[s] > 1 && !layout.stays[s]; };
    std::vector<std::vector<std::uint32_t>> readers(reads.size());  // by storage
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (is_repeated(s)) { readers[s].push_back(i); }
        }
    }
    std::uint64_t end = layout.shared_at;
    const std::uint32_t lanes = lanes_of(problem);
    std::vector<std::uint32_t> seen_by(problem.steps(), UINT32_MAX);  // by step: the last that looked at it
    std::vector<std::uint32_t> fresh, taken;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        fresh.clear();
        taken.clear();
        for (const std::uint32_t s : problem.reads(i)) {
            if (is_repeated(s) && layout.offset[s] == UnpackLayout::none) { fresh.push_back(s); }
        }
        for (const std::uint32_t s : fresh) {
            for (const std::uint32_t reader : readers[s]) {
                const std::uint32_t first = reader >= lanes ? reader - lanes + 1 : 0;
                for (std::uint32_t k = first; k < problem.steps() && k < reader + lanes; ++k) {
                    if (std::exchange(seen_by[k], i) == i) { continue; }
                    for (const std::uint32_t other : problem.reads(k)) {
                        if (is_repeated(other) && layout.offset[other] != UnpackLayout::none) {
                            taken.push_back(other);
                        }
                    }
                }
            }
        }
        end = (std::max)(end, place_beside(problem, layout, fresh, taken));
    }
    return end;
}

/// Places what one step reads, and does not stay. Where leases do not overlap, beside what its step reads too and several steps read, of
/// which the places end at `end`; else behind that, where steps that follow one another take turns in leases_at_once lanes. Returns where
/// the places end.
inline std::uint64_t place_once(const UnpackProblem& problem, std::span<const std::uint32_t> reads,
                                UnpackLayout& layout, std::uint64_t end) {
    const auto is_once = [&](std::uint32_t s) { return reads[s] == 1 && !layout.stays[s]; };
    const std::uint32_t lanes = lanes_of(problem);
    if (lanes == 1) {
        std::vector<std::uint32_t> fresh, taken;
        for (std::uint32_t i = 0; i < problem.steps(); ++i) {
            fresh.clear();
            taken.clear();
            for (const std::uint32_t s : problem.reads(i)) {
                if (reads[s] == 0 || layout.stays[s]) { continue; }
                (is_once(s) ? fresh : taken).push_back(s);
            }
            end = (std::max)(end, place_beside(problem, layout, fresh, taken));
        }
        return end;
    }
    const auto size = [&](std::uint32_t s) { return UnpackLayout::place_bytes(problem.unpacked_bytes[s]); };
    std::vector<std::uint64_t> width(lanes, 0);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : problem.reads(i)) { bytes += is_once(s) ? size(s) : 0; }
        width[i % lanes] = (std::max)(width[i % lanes], bytes);
    }
    std::vector<std::uint64_t> begin(lanes, 0);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        begin[lane] = end;
        end += width[lane];
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t at = begin[i % lanes];
        for (const std::uint32_t s : problem.reads(i)) {
            if (is_once(s)) { layout.offset[s] = std::exchange(at, at + size(s)); }
        }
    }
    return end;
}

inline Error no_layout(std::uint64_t budget_bytes) {
    return {ErrorKind::budget, "no layout of packed weights fits into " + residency::detail::in_bytes(budget_bytes) +
                                   ": raise the budget"};
}

inline constexpr std::uint32_t wide_steps[] = {0, 1, 2, 4, 8};

/// How many steps of a kind stay, the kinds in the order of StayKinds.
using StayCounts = std::vector<std::uint32_t>;

/// What may stay, by kinds of steps that are alike: one step of a kind may stay in place of another. What a step unpacks first in a pass
/// stays as a whole, since a launch has a latency however little it unpacks. Where the time of unpacking is what a pass takes, the steps
/// whose bytes cost the most time stay first: the small ones.
class StayKinds {
public:
    explicit StayKinds(const UnpackProblem& problem);
    /// Sizes that differ; more than a few are not counted.
    [[nodiscard]] std::uint32_t sizes() const noexcept { return static_cast<std::uint32_t>(sizes_.size()); }
    /// All steps of the `wide` largest sizes, and no others.
    [[nodiscard]] StayCounts counts_of(std::uint32_t wide) const {
        StayCounts counts(kinds_.size(), 0);
        for (std::size_t k = 0; k < kinds_.size(); ++k) {
            if (wide > 0 && kinds_[k].raw_bytes >= sizes_[wide - 1]) { counts[k] = members(k); }
        }
        return counts;
    }
    /// The storages that stay: of each kind the same share everywhere in the pass.
    [[nodiscard]] std::vector<bool> stays(const StayCounts& counts) const;

    /// A pass as it is where some counts stay, and what another count makes of it.
    struct Pass {
        double kernel_seconds = 0;    // with unpacking
        double link_bytes = 0;        // that have no room; negative: there is room left
        double more_bytes = 0;        // that a ring costs
        double bytes_per_second = 1;  // of the link
        [[nodiscard]] double seconds() const noexcept {
            const double link = link_bytes > 0 ? (link_bytes + more_bytes) / bytes_per_second : 0.0;
            return pass_seconds(link, kernel_seconds);
        }
    };
    /// The pass where `count` more steps of a kind stay, or fewer.
    [[nodiscard]] Pass with(Pass pass, std::size_t kind, int count) const noexcept {
        pass.kernel_seconds -= count * kinds_[kind].seconds;
        pass.link_bytes += count * kinds_[kind].saved_bytes;
        return pass;
    }
    /// Lets more steps stay than `counts`, which the pass is of, so that it takes about as little time as it can. Returns the pass.
    Pass fill(StayCounts& counts, Pass pass) const;

private:
    struct Kind {
        double seconds = 0;      // of a pass, to unpack what one step unpacks first
        double saved_bytes = 0;  // raw bytes less those that travel
        std::uint64_t raw_bytes = 0;
        std::vector<std::uint32_t> units;  // in the order of their steps
    };
    static constexpr std::size_t few_kinds = 64, most_sizes = 8;

    [[nodiscard]] std::uint32_t members(std::size_t kind) const noexcept {
        return static_cast<std::uint32_t>(kinds_[kind].units.size());
    }
    /// Steps of one kind stay in place of those of another, as long as that takes less time.
    Pass exchange(StayCounts& counts, const StayCounts& least, Pass pass) const;

    std::vector<bool> must_stay_;
    std::vector<std::uint32_t> storages_;  // by unit
    std::vector<std::uint32_t> begin_;  // unit u: storages_[begin_[u]] up to, not including, storages_[begin_[u + 1]]
    std::vector<Kind> kinds_;           // the most seconds for a byte first
    std::vector<std::uint64_t> sizes_;  // the largest first
};

inline StayKinds::StayKinds(const UnpackProblem& problem) : must_stay_{must_stay_of(problem)}, begin_{0} {
    std::vector<std::uint32_t> times(problem.unpacked_bytes.size(), 0);  // a pass unpacks it
    for_each_unpacking(problem, lay_out(problem, must_stay_),
                       [&](std::uint32_t, std::span<const std::uint32_t> unpacked) {
                           for (const std::uint32_t s : unpacked) {
                               if (times[s]++ == 0) { storages_.push_back(s); }
                           }
                           const auto end = static_cast<std::uint32_t>(storages_.size());
                           if (end > begin_.back()) { begin_.push_back(end); }
                       });
    struct Unit {
        std::uint64_t raw_bytes = 0, travel_bytes = 0;
        double seconds = 0;
        std::uint32_t number = 0;
    };
    std::vector<Unit> units(begin_.size() - 1);
    for (std::uint32_t u = 0; u < units.size(); ++u) {
        Unit& unit = units[u];
        unit.number = u;
        std::uint64_t unpacked = 0;
        std::uint32_t launches = 0;
        for (std::uint32_t k = begin_[u]; k < begin_[u + 1]; ++k) {
            const std::uint32_t s = storages_[k];
            unit.raw_bytes += problem.unpacked_bytes[s];
            unit.travel_bytes += problem.travels.storage_bytes[s];
            unpacked += problem.unpacked_bytes[s] * times[s];
            launches = (std::max)(launches, times[s]);
        }
        unit.seconds =
            launches * problem.launch_seconds + static_cast<double>(unpacked) / problem.unpacked_bytes_per_second;
    }
    residency::detail::sort(units, [](const Unit& a, const Unit& b) {
        if (a.raw_bytes != b.raw_bytes) { return a.raw_bytes > b.raw_bytes; }
        if (a.travel_bytes != b.travel_bytes) { return a.travel_bytes < b.travel_bytes; }
        return a.seconds != b.seconds ? a.seconds > b.seconds : a.number < b.number;
    });
    for (std::size_t k = 0; k < units.size(); ++k) {
        const Unit& unit = units[k];
        const bool is_alike = k > 0 && units[k - 1].raw_bytes == unit.raw_bytes &&
                              units[k - 1].travel_bytes == unit.travel_bytes && units[k - 1].seconds == unit.seconds;
        if (!is_alike) {
            const auto raw = static_cast<double>(unit.raw_bytes), travel = static_cast<double>(unit.travel_bytes);
            kinds_.push_back({unit.seconds, (std::max)(1.0, raw - travel), unit.raw_bytes, {}});
        }
        kinds_.back().units.push_back(unit.number);
        if (sizes_.size() < most_sizes && (sizes_.empty() || sizes_.back() != unit.raw_bytes)) {
            sizes_.push_back(unit.raw_bytes);
        }
    }
    residency::detail::sort(kinds_, [](const Kind& a, const Kind& b) {
        const double one = a.seconds / a.saved_bytes, other = b.seconds / b.saved_bytes;
        return one != other ? one > other : a.units.front() < b.units.front();
    });
}

inline std::vector<bool> StayKinds::stays(const StayCounts& counts) const {
    std::vector<bool> result = must_stay_;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        const std::uint64_t count = counts[k], all = members(k);
        for (std::uint64_t i = 0; i < all; ++i) {
            if ((i + 1) * count / all == i * count / all) { continue; }
            const std::uint32_t unit = kinds_[k].units[static_cast<std::size_t>(i)];
            for (std::uint32_t at = begin_[unit]; at < begin_[unit + 1]; ++at) { result[storages_[at]] = true; }
        }
    }
    return result;
}

inline StayKinds::Pass StayKinds::fill(StayCounts& counts, Pass pass) const {
    const StayCounts least = counts;
    for (std::size_t k = 0; k < kinds_.size(); ++k) {
        for (; counts[k] < members(k); ++counts[k]) {
            const Pass more = with(pass, k, 1);
            if (more.seconds() >= pass.seconds()) { break; }
            pass = more;
        }
    }
    return kinds_.size() > few_kinds ? pass : exchange(counts, least, pass);
}

inline StayKinds::Pass StayKinds::exchange(StayCounts& counts, const StayCounts& least, Pass pass) const {
    constexpr int most = 4, most_rounds = 50;
    for (int round = 0; round < most_rounds; ++round) {
        Pass best = pass;
        StayCounts better;
        for (std::size_t in = 0; in < kinds_.size(); ++in) {
            const int room = static_cast<int>((std::min<std::uint32_t>)(most, members(in) - counts[in]));
            for (std::size_t out = 0; out < kinds_.size(); ++out) {
                if (in == out) { continue; }
                const int there = static_cast<int>((std::min<std::uint32_t>)(most, counts[out] - least[out]));
                for (int more = 1; more <= room; ++more) {
                    for (int fewer = 1; fewer <= there; ++fewer) {
                        const Pass changed = with(with(pass, in, more), out, -fewer);
                        if (changed.seconds() >= best.seconds() * (1 - 1e-9)) { continue; }
                        best = changed;
                        better = counts;
                        better[in] += static_cast<std::uint32_t>(more);
                        better[out] -= static_cast<std::uint32_t>(fewer);
                    }
                }
            }
        }
        if (better.empty()) { break; }
        pass = best;
        counts = std::move(better);
    }
    return pass;
}

/// Looks among what stays by kinds for what takes less time than `chosen`. What a plan's ring costs is known once there is a plan: each plan
/// tells the next one whether that was too little or too much.
inline Status choose_by_kinds(const UnpackProblem& problem, std::uint64_t budget_bytes, const plan::Options& quick,
                              UnpackChoice& chosen) {
    const int most_plans = problem.steps() > 2000 ? 2 : 6;
    const StayKinds kinds{problem};
    StayKinds::Pass pass;
    pass.bytes_per_second = problem.travels.link.bytes_per_second;
    double known = 1e30;  // bytes that the last ring cost
    for (std::uint32_t wide = 0; wide <= kinds.sizes(); ++wide) {
        const StayCounts least = kinds.counts_of(wide);
        auto from = estimate(problem, kinds.stays(least), budget_bytes);
        if (!from) { return from.error(); }
        if (!*from) { continue; }
        const plan::Problem& rest = (*from)->rest;
        const auto floor = plan::chunk_floor(rest);
        if (!floor) { return floor.error(); }
        pass.kernel_seconds = plan::total_compute(rest);
        pass.link_bytes = static_cast<double>(floor->everything_bytes) - static_cast<double>(rest.budget_bytes);
        pass.more_bytes = (std::min)(known, static_cast<double>(floor->floor_bytes) / 2);
        std::vector<StayCounts> tried;
        double too_few = 0, enough = 1e30;  // bytes that the ring costs
        for (int plans = 0; plans < most_plans; ++plans) {
            StayCounts counts = least;
            const StayKinds::Pass filled = kinds.fill(counts, pass);
            const bool is_tried = std::find(tried.begin(), tried.end(), counts) != tried.end();
            if (is_tried || filled.seconds() >= chosen.seconds) { break; }
            auto one = estimate(problem, kinds.stays(counts), budget_bytes);
            if (!one) { return one.error(); }
            if (!*one) { break; }
            const double kernels = plan::total_compute((*one)->rest);
            const auto made = plan::make_plan((*one)->rest, quick);
            if (!made) { break; }
            const double seconds = made->predicted_seconds();
            if (seconds < chosen.seconds) {
                chosen = std::move(**one);
                chosen.seconds = seconds;
            }
            tried.push_back(std::move(counts));
            const double bytes = seconds > kernels * (1 + 1e-6) ? seconds * pass.bytes_per_second
                                                                : static_cast<double>(made->bytes_per_pass());
            const double more = bytes - filled.link_bytes;
            if (more > pass.more_bytes) {
                too_few = pass.more_bytes;
                pass.more_bytes = more < enough ? more : (too_few + enough) / 2;
            } else {
                enough = pass.more_bytes;
                pass.more_bytes = (too_few + enough) / 2;
            }
            known = (std::min)(pass.more_bytes, enough);
        }
    }
    return {};
}

/// choose_unpacked(), without its list of unpackings.
inline Result<UnpackChoice> choose(const UnpackProblem& problem, std::uint64_t budget_bytes,
                                   const plan::Options& options) {
    const StayFamilies families{problem};
    const int levels = problem.steps() > 2000 ? 8 : 32;
    std::vector<Candidate> candidates;
    for (const std::uint32_t wide : wide_steps) {
        if (wide > families.steps()) { break; }
        for (int level = 0; level <= levels; ++level) {
            const double share = static_cast<double>(level) / levels;
            auto one = estimate(problem, families.stays(wide, share), budget_bytes);
            if (!one) { return one.error(); }
            if (!*one) { continue; }
            candidates.push_back({wide, share, std::move(**one)});
        }
    }
    if (candidates.empty()) { return no_layout(budget_bytes); }
    plan::Options quick = options;
    quick.effort = plan::Effort::quick;
    const auto predict_seconds = [&](UnpackChoice& choice) {
        const auto made = plan::make_plan(choice.rest, quick);
        choice.seconds = made ? made->predicted_seconds() : 1e30;
    };
    // Estimates rank the candidates. Plans are made for the best of them, and for the neighbours of the best one.
    residency::detail::sort(candidates, [](const Candidate& a, const Candidate& b) {
        if (a.choice.seconds != b.choice.seconds) { return a.choice.seconds < b.choice.seconds; }
        return a.wide != b.wide ? a.wide < b.wide : a.share < b.share;
    });
    const std::size_t plans = problem.steps() > 2000 ? 4 : 12;
    const std::size_t stride = (std::max<std::size_t>)(1, candidates.size() / plans);
    for (std::size_t k = 0; k < candidates.size(); ++k) {
        if (k < plans / 2 || k % stride == 0) {
            predict_seconds(candidates[k].choice);
        } else {
            candidates[k].choice.seconds = 1e30;
        }
    }
    auto best = std::min_element(candidates.begin(), candidates.end(),
                                 [](const auto& a, const auto& b) { return a.choice.seconds < b.choice.seconds; });
    Candidate chosen = std::move(*best);
    for (double step = 0.5 / levels; step > 0.1 / levels; step /= 2) {
        for (const double share : {chosen.share - step, chosen.share + step}) {
            if (share < 0 || share > 1) { continue; }
            auto one = estimate(problem, families.stays(chosen.wide, share), budget_bytes);
            if (!one) { return one.error(); }
            if (!*one) { continue; }
            predict_seconds(**one);
            if ((*one)->seconds < chosen.choice.seconds) { chosen = {chosen.wide, share, std::move(**one)}; }
        }
    }
    if (auto done = choose_by_kinds(problem, budget_bytes, quick, chosen.choice); !done) { return done.error(); }
    if (problem.step_storages.size() > few_storages) { return std::move(chosen.choice); }
    // Where a share of the bytes is coarse: as much as fits, beside what was chosen and beside what has to stay.
    for (const bool is_beside : {true, false}) {
        auto from = estimate(problem, is_beside ? chosen.choice.layout.stays : families.stays(0, 0), budget_bytes);
        if (!from) { return from.error(); }
        if (!*from) { continue; }
        auto filled = fill_up(problem, families.order(), std::move(**from), budget_bytes);
        if (!filled) { return filled.error(); }
        if (filled->layout == chosen.choice.layout) { continue; }  // of which the time is known
        predict_seconds(*filled);
        if (filled->seconds < chosen.choice.seconds) { chosen.choice = std::move(*filled); }
    }
    return std::move(chosen.choice);
}

}  // namespace detail

RESIDENCY_INLINE Status check_given(const UnpackRate& rate, const std::string& name) {
    if (Status fits = plan::detail::check_plausible(name + ".bytes_per_second", rate.bytes_per_second, 1e6, 1e15,
                                                    "1e6 to 1e15 bytes per second (H200: 1.3e12)");
        !fits) {
        return fits;
    }
    return plan::detail::check_plausible(name + ".launch_seconds", rate.launch_seconds, 0, 1,
                                         "0 to 1 seconds (H200: 3e-6)");
}

RESIDENCY_INLINE UnpackLayout lay_out(const UnpackProblem& problem, std::vector<bool> stays) {
    const std::size_t storages = problem.unpacked_bytes.size();
    UnpackLayout layout;
    layout.offset.assign(storages, UnpackLayout::none);
    layout.stays = std::move(stays);
    layout.stays.resize(storages, false);
    const std::vector<std::uint32_t> reads = detail::count_reads(problem);
    const auto size = [&](std::uint32_t s) { return UnpackLayout::place_bytes(problem.unpacked_bytes[s]); };
    std::uint64_t end = 0;
    const auto place = [&](std::uint32_t s) {
        layout.offset[s] = end;
        end += size(s);
    };
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (layout.stays[s]) { place(s); }
    }
    layout.shared_at = end;
    end = detail::place_repeated(problem, reads, layout);
    end = detail::place_once(problem, reads, layout, end);
    for (std::uint32_t s = 0; s < storages; ++s) {
        if (layout.stays[s] || reads[s] > 0 || problem.unpacked_bytes[s] == 0) { continue; }
        if (size(s) <= end - layout.shared_at) { layout.offset[s] = layout.shared_at; }
    }
    layout.table_at = end;
    if (end > 0) { layout.bytes = pool::round_up(end + problem.table_bytes, problem.granule_bytes); }
    return layout;
}

RESIDENCY_INLINE Result<std::uint64_t> unpack_floor(const UnpackProblem& problem) {
    const detail::StayFamilies families{problem};
    std::uint64_t least = UINT64_MAX;
    for (const std::uint32_t wide : detail::wide_steps) {
        if (wide > problem.steps()) { break; }
        for (const double share : {0.0, 1.0}) {
            const UnpackLayout layout = lay_out(problem, families.stays(wide, share));
            const auto floor = plan::chunk_floor(detail::rest_of(problem, layout), problem.storages_at_once);
            if (!floor) { return floor.error(); }
            least = (std::min)(least, layout.bytes + floor->floor_bytes);
        }
    }
    return least;
}

RESIDENCY_INLINE Result<std::uint64_t> unpack_everything(const UnpackProblem& problem) {
    const UnpackLayout layout = lay_out(problem, detail::StayFamilies{problem}.stays(0, 1));
    const auto floor = plan::chunk_floor(detail::rest_of(problem, layout), problem.storages_at_once);
    if (!floor) { return floor.error(); }
    return layout.bytes + (std::max)(floor->floor_bytes, floor->everything_bytes);
}

RESIDENCY_INLINE Result<UnpackChoice> choose_unpacked(const UnpackProblem& problem, std::uint64_t budget_bytes,
                                                      const plan::Options& options) {
    auto chosen = detail::choose(problem, budget_bytes, options);
    if (chosen) { chosen->unpackings = detail::list_unpackings(problem, chosen->layout); }
    return chosen;
}

RESIDENCY_INLINE Result<UnpackChoice> keep_unpacked(const UnpackProblem& problem, std::vector<bool> stays,
                                                    std::uint64_t budget_bytes) {
    auto one = detail::estimate(problem, std::move(stays), budget_bytes);
    if (!one) { return one.error(); }
    if (!*one) { return detail::no_layout(budget_bytes); }
    (*one)->unpackings = detail::list_unpackings(problem, (*one)->layout);
    return std::move(**one);
}

}}}  // namespace residency::RESIDENCY_ABI::packed
