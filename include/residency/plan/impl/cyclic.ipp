// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/cyclic.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/release_search.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/slot_search.hpp"
#include "residency/plan/token_ring.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

// Cells that stay: kept ones, and those read at steps apart, most uses first, as many as leave a ring that works.
inline std::vector<std::vector<bool>> hold_choices(const Problem& problem, const Image& image, std::uint64_t budget,
                                                   Effort effort) {
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
    // A storage that is read again soon may be better streamed: of these, the ones that are apart by much of the pass alone stay, or none.
    const auto add_if_less = [&](std::uint32_t least_distance) {
        std::vector<bool> hold = kept;
        std::uint64_t others = 0;  // chunks
        for (std::size_t k = 0; k < low; ++k) {
            const Cell& cell = image.cells[apart[k]];
            hold[apart[k]] = cell.last - cell.first > least_distance;
            others += hold[apart[k]] ? 0 : cell.chunks();
        }
        const bool is_much =
            static_cast<double>(others) >= tuning::held_others_share(effort) * static_cast<double>(budget);
        if (is_much && hold != choices.back()) { choices.push_back(std::move(hold)); }
    };
    add_if_less(static_cast<std::uint32_t>(tuning::held_far_share * n));
    add_if_less(n);
    return choices;
}

// Whether what memory holds is told by the chunks of this image.
inline bool tells_of(const Options& options, const Image& image) {
    return options.present.size() == image.chunks() && options.present_offsets == image.offsets;
}

// The best ring over the chunks of one image; nothing goes below the target. Precondition: budget >= floor_chunks(image), and less
// than all chunks. `work` grows by what it looked at: a measure of time that is the same on every machine. `share`: of what it may look at.
inline PlanData best_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                          double bound_seconds, std::uint64_t& work, double share = 1) {
    PlanData best;
    bool found = false;
    const auto consider = [&](const RingAssignment& assignment) {
        PlanData data = assemble(problem, image, assignment, options.captured);
        finalize_times(data, problem);
        if (!found || is_better(data, best)) { best = std::move(data); }
        found = true;
    };
    const auto choices = hold_choices(problem, image, budget, options.effort);
    const std::vector<Presence>* const present = tells_of(options, image) ? &options.present : nullptr;
    ReleaseSearch::Solution release;             // the best one
    std::optional<RingProblem> release_problem;  // that it solves
    double before_seconds = RingCalls::impossible;
    RingAssignment as_before;  // the best ring in which steps stream as much as in the plan before
    const bool is_short = problem.steps() <= tuning::release_most_steps;
    for (const std::vector<bool>& hold : choices) {
        TokenRing ring{RingProblem{problem, image, hold, budget, options.captured, present},
                       {options.effort, bound_seconds, share}};
        if (ring.deficit() == 0) { continue; }
        const RingSolution solution = ring.search();
        work += ring.work();
        if (solution.found) { consider(ring.assignment(solution)); }
        if (!is_short) { continue; }
        ReleaseSearch other{ring.problem(), {options.effort, bound_seconds, share}};
        if (other.search(solution.ring.streamed_per_step) && other.solution().seconds < release.seconds) {
            release = other.solution();
            release_problem = ring.problem();
        }
        work += other.work();
        if (!ring.problem().knows_presence()) { continue; }
        // Steps that stream as much as in the plan before need nothing that memory lacks.
        const std::vector<double>& before = ring.problem().nonresident();
        ReleaseSearch same{ring.problem(), {options.effort, bound_seconds, share}};
        if (same.search_calls({before.begin(), before.end()}) && same.solution().seconds < before_seconds) {
            before_seconds = same.solution().seconds;
            as_before = same.assignment();
        }
        work += same.work();
    }
    if (release_problem) {
        ReleaseSearch search{*release_problem, {options.effort, bound_seconds, share}};
        search.improve(release);
        if (!found || search.solution().seconds < best.predicted_seconds) { consider(search.assignment()); }
        work += search.work();
    }
    if (before_seconds <= best.predicted_seconds * (1 + tuning::refetch_loss)) {
        found = false;
        consider(as_before);
    }
    if (!found) {  // the first choice leaves what intervals of steps need
        const std::vector<bool>& hold = choices.front();
        std::uint64_t held = 0;
        for (std::uint32_t c = 0; c < image.cells.size(); ++c) { held += hold[c] ? image.cells[c].chunks() : 0; }
        RingAssignment assignment;
        if (interval_ring(image, hold, static_cast<std::uint32_t>(budget - held), assignment)) { consider(assignment); }
    }
    return best;
}

// Steps take longer than was measured on a GPU that is too warm for its highest clock, 3 to 7 % under full load. Where steps and copies
// take about as long, a plan that just works out then waits at many steps and loses several times as much, and one for steps that
// are 7 % longer costs little: the best with steps as measured and 7 % longer, together. Preconditions as of best_ring.
inline PlanData lasting_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                             double bound_seconds) {
    std::uint64_t work = 0;
    Problem later = problem;
    for (double& seconds : later.compute_seconds) { seconds *= tuning::slower_steps; }
    PlanData plan;
    double least = 1e300;  // what a plan takes with steps as measured, and 7 % longer, together
    const auto consider = [&](const Problem& planned, double share) {
        PlanData made = best_ring(planned, image, budget, options, bound_seconds, work, share);
        finalize_times(made, problem);
        const double seconds = made.predicted_seconds + simulate(made, later.link, later.compute_seconds);
        if (seconds < least) { plan = std::move(made); }
        least = (std::min)(least, seconds);
    };
    consider(problem, 1);
    const double unharmed = (std::max)(plan.predicted_seconds, total_compute(later));
    if (least > plan.predicted_seconds + (1 + tuning::slower_steps_harm) * unharmed) {
        consider(later, tuning::slower_steps_share);
    }
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
    // Where the steps cover the copies, a ring that is larger by little costs nothing and lets the link be slower than it was
    // measured, as it is beside kernels that use memory hard: a plan for such a link, if it reaches the bound all the same.
    const double bytes = static_cast<double>((image.filled_chunks() - budget) * image.chunk_bytes);
    const double used = bytes / problem.link.bytes_per_second / (std::max)(total_compute(problem), 1e-12);
    const double share = (std::max)(tuning::slower_link_least, tuning::slower_link_margin * used);
    if (share < tuning::slower_link_most(options.effort)) {
        Problem slower = problem;
        slower.link.bytes_per_second *= share;
        Options quick = options;
        quick.effort = Effort::quick;
        const double limit = bound_seconds * (1 + tuning::slower_link_loss);
        if (exact_bound(slower, budget * image.chunk_bytes, tuning::flow_bound_steps(Effort::quick)) <= limit) {
            PlanData plan = best_ring(slower, image, budget, quick, bound_seconds, work);
            if (plan.predicted_seconds <= limit) {
                finalize_times(plan, problem);
                return plan;
            }
        }
    }
    return used > tuning::slower_steps_from && used < tuning::slower_steps_to
               ? lasting_ring(problem, image, budget, options, bound_seconds)
               : best_ring(problem, image, budget, options, bound_seconds, work);
}

// Of few chunks, what streams through one ring is a coarse choice: looks for slots of each chunk alone, from those of `best`. Replaces `best`
// where that is faster.
inline void choose_slots(PlanData& best, const Problem& problem, const Image& image, std::uint64_t budget,
                         const Options& options, double bound_seconds) {
    SlotSearch search{problem, image, budget, options.captured, {options.effort, bound_seconds}};
    search.start(best.chunk_slot);
    search.search();
    if (search.seconds() >= best.predicted_seconds) { return; }
    PlanData data = assemble(problem, image, search.assignment(), options.captured);
    finalize_times(data, problem);
    if (is_better(data, best)) { best = std::move(data); }
}

RESIDENCY_INLINE PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                      const Options& options, double bound_seconds) {
    PlanData best = resident_or_ring(problem, image, budget, options, bound_seconds);
    if (tells_of(options, image)) {  // which may cost 0.1 %
        Options alone = options;
        alone.present.clear();
        PlanData fastest = resident_or_ring(problem, image, budget, alone, bound_seconds);
        if (best.predicted_seconds > fastest.predicted_seconds * (1 + tuning::refetch_loss)) {
            best = std::move(fastest);
        }
    }
    const std::uint64_t chunks = image.filled_chunks();
    if (chunks <= tuning::slots_most_chunks && chunks <= std::uint64_t{tuning::slots_step_chunks} * problem.steps() &&
        chunks > budget) {
        if (tells_of(options, image)) {
            // A plan that is close to what memory holds gives way for more than a little only.
            Options alone = options;
            alone.present.clear();
            PlanData fastest = cyclic_plan(problem, image, budget, alone, bound_seconds);
            if (best.predicted_seconds > fastest.predicted_seconds * (1 + tuning::refetch_loss)) {
                best = std::move(fastest);
            }
        } else {
            choose_slots(best, problem, image, budget, options, bound_seconds);
        }
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
