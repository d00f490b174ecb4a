// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/cyclic.hpp"
#include "residency/plan/finalize_times.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/token_ring.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

// Which cells stay, by cell, in every way worth a try: the kept ones alone, and with them those that steps far apart read, most uses
// first, as many as leave a ring that works.
inline std::vector<std::vector<bool>> hold_choices(const Problem& problem, const Image& image, std::uint64_t budget) {
    const std::uint32_t n = problem.steps();
    std::vector<bool> kept(image.cells.size());
    std::vector<std::uint32_t> apart;
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        kept[c] = cell.keep;
        if (!cell.keep && cell.last - cell.first > tuning::held_cell_steps) { apart.push_back(c); }
    }
    if (apart.empty()) { return {kept}; }
    std::vector<std::uint32_t> reads(problem.storages(), 0), uses(image.cells.size(), 0);
    for (const std::uint32_t s : problem.step_storages) { ++reads[s]; }
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (problem.storage_bytes[s] == 0) { continue; }
        const auto begin = static_cast<std::uint32_t>(image.offsets[s] / image.chunk_bytes);
        auto cell = std::upper_bound(image.cells.begin(), image.cells.end(), begin,
                                     [](std::uint32_t x, const Cell& y) { return x < y.chunk_end; });
        for (; cell != image.cells.end() &&
               cell->chunk_begin * image.chunk_bytes < image.offsets[s] + problem.storage_bytes[s];
             ++cell) {
            auto& u = uses[static_cast<std::size_t>(cell - image.cells.begin())];
            u = (std::max)(u, reads[s]);
        }
    }
    residency::detail::sort(apart, [&](std::uint32_t a, std::uint32_t b) {
        if (uses[a] != uses[b]) { return uses[a] > uses[b]; }
        const Cell &x = image.cells[a], &y = image.cells[b];
        return x.last - x.first != y.last - y.first ? x.last - x.first > y.last - y.first : a < b;
    });
    const auto with = [&](std::size_t count) {
        std::vector<bool> hold = kept;
        for (std::size_t k = 0; k < count; ++k) { hold[apart[k]] = true; }
        return hold;
    };
    const auto works = [&](std::size_t count) {
        Image rest = image;
        for (std::size_t k = 0; k < count; ++k) { rest.cells[apart[k]].keep = true; }
        return floor_chunks(rest, n).chunks <= budget;
    };
    std::size_t low = 0, high = apart.size();
    while (low < high) {
        const std::size_t middle = (low + high + 1) / 2;
        if (works(middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    std::vector<std::vector<bool>> choices{with(low)};
    if (0 < low && low < apart.size()) { choices.push_back(kept); }
    return choices;
}

// Whether options.present is of the chunks of this image.
inline bool tells_of(const Options& options, const Image& image) {
    return options.present.size() == image.chunks() && options.present_offsets == image.offsets;
}

// The best ring over the chunks of one image, as fast as `bound_seconds` at best. Precondition: budget >= floor_chunks(image), and less
// than all chunks. Adds to `work` what it looked at: a measure of time that is the same on every machine.
inline PlanData best_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                          double bound_seconds, std::uint64_t& work) {
    PlanData best;
    bool found = false;
    const bool is_present = tells_of(options, image);
    for (const std::vector<bool>& hold : hold_choices(problem, image, budget)) {
        TokenRing ring{problem,
                       image,
                       hold,
                       budget,
                       {options.captured, options.effort, bound_seconds, is_present ? &options.present : nullptr}};
        if (ring.deficit() == 0) { continue; }
        const RingSolution solution = ring.search();
        work += ring.work();
        RingAssignment assignment;
        if (solution.found) {
            assignment = ring.assignment(solution);
        } else {
            std::uint64_t held = 0;
            for (std::uint32_t c = 0; c < image.cells.size(); ++c) { held += hold[c] ? image.cells[c].chunks() : 0; }
            if (!interval_ring(image, hold, static_cast<std::uint32_t>(budget - held), assignment)) { continue; }
        }
        PlanData data = assemble(problem, image, assignment, options.captured);
        finalize_times(data, problem);
        if (!found || is_better(data, best)) { best = std::move(data); }
        found = true;
    }
    return best;
}

// A GPU that is too warm for its highest clock takes 3 to 7 % longer for a step than was measured. Where steps and copies take about as
// long, a plan that just works out for the times measured then waits at many steps and loses several times as much, while a plan for
// slower steps costs little. Takes the plan that is best with steps as measured and slower, together. Preconditions as of best_ring.
inline PlanData lasting_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                             double bound_seconds) {
    const auto with_steps = [&](double share) {
        Problem slower = problem;
        for (double& seconds : slower.compute_seconds) { seconds *= 1 + share; }
        return slower;
    };
    const Problem later = with_steps(tuning::slower_steps);
    std::uint64_t work = 0;
    PlanData plan;
    double least = 1e300;
    const auto consider = [&](const Problem& planned, Effort effort) {
        Options with = options;
        with.effort = effort;
        PlanData made = best_ring(planned, image, budget, with, bound_seconds, work);
        finalize_times(made, problem);
        const double seconds = made.predicted_seconds + simulate(made, later.link, later.compute_seconds);
        if (seconds < least) {
            plan = std::move(made);
            least = seconds;
        }
    };
    consider(with_steps(tuning::planned_slower_steps), Effort::full);
    consider(problem, Effort::quick);
    return plan;
}

// Everything, where it fits; else the ring for these steps and this link. Preconditions as of best_ring.
inline PlanData resident_or_ring(const Problem& problem, const Image& image, std::uint64_t budget,
                                 const Options& options, double bound_seconds) {
    std::uint64_t work = 0;
    if (image.filled_chunks() <= budget) {
        PlanData whole = assemble(problem, image, {}, options.captured);
        whole.predicted_seconds = total_compute(problem);
        return whole;
    }
    // Where the steps cover the copies, a ring that is a little larger costs nothing and bears a link that is slower than was measured,
    // as it is beside kernels that use memory hard: takes a plan for such a link, if that reaches the bound all the same.
    const double bytes = static_cast<double>((image.filled_chunks() - budget) * image.chunk_bytes);
    const double used = bytes / problem.link.bytes_per_second / (std::max)(total_compute(problem), 1e-12);
    const double share = (std::max)(tuning::slower_link_least, tuning::slower_link_margin * used);
    if (share < tuning::slower_link_most) {
        Problem slower = problem;
        slower.link.bytes_per_second *= share;
        Options quick = options;
        quick.effort = Effort::quick;
        const double limit = bound_seconds * (1 + tuning::as_fast);
        if (exact_bound(slower, budget * image.chunk_bytes, tuning::flow_bound_steps(Effort::quick)) <= limit) {
            PlanData plan = best_ring(slower, image, budget, quick, bound_seconds, work);
            if (plan.predicted_seconds <= limit) {
                finalize_times(plan, problem);
                return plan;
            }
        }
    }
    return used > 1 && options.effort == Effort::full ? lasting_ring(problem, image, budget, options, bound_seconds)
                                                      : best_ring(problem, image, budget, options, bound_seconds, work);
}

// Of few wide storages not every number of chunks makes a good ring: with up to two storages of the budget left unused it may be faster.
// Replaces `best` where that is so. Precondition: options.effort is full.
inline void leave_unused(PlanData& best, const Problem& problem, const Image& image, std::uint64_t budget,
                         std::uint64_t floor, const Options& options, double bound_seconds) {
    const std::uint64_t widest = *std::max_element(problem.storage_bytes.begin(), problem.storage_bytes.end());
    const std::uint64_t most = (std::min)(budget - floor, tuning::unused_storages * (widest / image.chunk_bytes + 1));
    const double close = bound_seconds * (1 + tuning::unused_above);
    Options quick = options;
    quick.present.clear();
    quick.effort = Effort::quick;
    double least = best.predicted_seconds;
    std::uint64_t chosen = 0, work = 0;
    for (std::uint64_t unused = 1; unused <= most && least > close && work < tuning::unused_work;
         unused += (std::max<std::uint64_t>)(unused / tuning::unused_step_part, 1)) {
        const PlanData data = best_ring(problem, image, budget - unused, quick, bound_seconds, work);
        if (data.predicted_seconds < least) {
            least = data.predicted_seconds;
            chosen = unused;
        }
    }
    if (chosen == 0) { return; }
    PlanData data = best_ring(problem, image, budget - chosen, options, bound_seconds, work);
    // A plan that is close to what memory holds gives way for more than a little only.
    const double limit = best.predicted_seconds * (tells_of(options, image) ? 1 - tuning::refetch_loss : 1.0);
    if (data.predicted_seconds < limit && is_better(data, best)) { best = std::move(data); }
}

RESIDENCY_INLINE PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                      std::uint64_t floor, const Options& options, double bound_seconds) {
    PlanData best = resident_or_ring(problem, image, budget, options, bound_seconds);
    if (tells_of(options, image)) {
        Options alone = options;
        alone.present.clear();
        PlanData fastest = resident_or_ring(problem, image, budget, alone, bound_seconds);
        if (best.predicted_seconds > fastest.predicted_seconds * (1 + tuning::refetch_loss)) {
            best = std::move(fastest);
        }
    }
    if (problem.steps() <= tuning::unused_steps && options.effort == Effort::full && image.filled_chunks() > budget &&
        best.predicted_seconds > bound_seconds * (1 + tuning::unused_above)) {
        leave_unused(best, problem, image, budget, floor, options, bound_seconds);
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
