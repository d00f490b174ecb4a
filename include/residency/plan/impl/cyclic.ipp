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
#include "residency/plan/ring_evaluator.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/slot_search.hpp"
#include "residency/plan/token_ring.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

// Cells that stay: kept ones, and those read at steps apart, most uses first, as many as leave a ring that works.
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
    if (low < apart.size()) {
        for (const double share : tuning::held_shares) {
            const auto count = static_cast<std::size_t>(static_cast<double>(low) * share);
            if (count < low) { choices.push_back(with(count)); }
        }
        return choices;
    }
    // A storage that is read again soon may be better streamed: the ones that are apart by much of the pass, alone.
    std::vector<bool> hold = kept;
    std::uint64_t others = 0;  // chunks
    for (const std::uint32_t c : apart) {
        const Cell& cell = image.cells[c];
        hold[c] = cell.last - cell.first > tuning::held_far_share * n;
        others += hold[c] ? 0 : cell.chunks();
    }
    if (static_cast<double>(others) >= tuning::held_others_share * static_cast<double>(budget)) {
        choices.push_back(std::move(hold));
    }
    return choices;
}

// Whether what memory holds is told by the chunks of this image.
inline bool tells_of(const Options& options, const Image& image) {
    return options.present.size() == image.chunks() && options.present_offsets == image.offsets;
}

// The best ring of rounds with few slots, of problems that hold fewer and fewer cells of one image: what it streams, and the last problem
// with a ring that is about as fast. Where less is held, more rings work.
struct RoundsOfFewSlots {
    double seconds = RingEvaluator::impossible;
    std::vector<std::uint32_t> streamed_per_step;
    std::optional<RingProblem> problem;

    void add(const RingProblem& next, const RingSolution& solution) {
        if (solution.ring.shape.slots > tuning::resize_most_slots) { return; }
        if (!problem || solution.seconds() <= seconds * (1 + tuning::resize_fewer_held)) { problem.emplace(next); }
        if (solution.seconds() >= seconds) { return; }
        seconds = solution.seconds();
        streamed_per_step = solution.ring.streamed_per_step;
    }
};

// A ring without rounds in the place of one of few slots: one slot is much of such a ring, and rounds do not work out with every number of
// them. None where it takes `most_seconds` or more.
inline std::optional<RingAssignment> resized_ring(const RoundsOfFewSlots& rounds, const ReleaseSearch::Config& config,
                                                  double most_seconds, std::uint64_t& work) {
    ReleaseSearch search{*rounds.problem, config};
    if (!search.search(rounds.streamed_per_step)) { return {}; }
    search.resize();
    work += search.work();
    const double seconds = search.solution().seconds;
    if (seconds >= most_seconds) { return {}; }
    if (rounds.problem->knows_presence()) {  // steps that stream as much as before need nothing that memory lacks
        const std::vector<double>& before = rounds.problem->nonresident();
        ReleaseSearch as_before{*rounds.problem, config};
        const bool is_ring = as_before.search_calls({before.begin(), before.end()});
        work += as_before.work();
        if (is_ring && as_before.solution().seconds <= seconds * (1 + tuning::refetch_loss)) {
            return as_before.assignment();
        }
    }
    return search.assignment();
}

// The best ring over the chunks of one image; nothing goes below the target. Precondition: budget >= floor_chunks(image), and less
// than all chunks. `work` grows by what it looked at: a measure of time that is the same on every machine. `share`: of what it may look at.
// `known_seconds`: of a plan that is known.
inline PlanData best_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                          double bound_seconds, std::uint64_t& work, double share = 1,
                          double known_seconds = RingEvaluator::impossible) {
    PlanData best;
    bool found = false;
    const auto consider = [&](const RingAssignment& assignment) {
        PlanData data = assemble(problem, image, assignment, options.captured);
        finalize_times(data, problem);
        if (!found || is_better(data, best)) { best = std::move(data); }
        found = true;
    };
    const auto choices = hold_choices(problem, image, budget);
    const std::vector<Presence>* const present = tells_of(options, image) ? &options.present : nullptr;
    ReleaseSearch::Solution release;             // the best one
    std::optional<RingProblem> release_problem;  // that it solves
    const bool resizes = options.effort == Effort::full && problem.steps() <= tuning::resize_most_steps &&
                         image.filled_chunks() > tuning::slots_most_chunks;  // fewer are searched one by one
    RoundsOfFewSlots rounds;
    for (const std::vector<bool>& hold : choices) {
        RingProblem ring_problem{problem, image, hold, budget, options.captured, present};
        const bool is_wide = is_wide_among_small(ring_problem);  // such steps fill no rounds of one ring
        TokenRing ring{std::move(ring_problem),
                       {is_wide ? Effort::quick : options.effort, bound_seconds,
                        is_wide ? share * tuning::release_rounds_share : share}};
        if (ring.deficit() == 0) { continue; }
        RingSolution solution = ring.search();
        work += ring.work();
        if (solution.found) { consider(ring.assignment(solution)); }
        if (resizes && !is_wide && solution.found) { rounds.add(ring.problem(), solution); }
        if (is_wide && (!solution.found || solution.seconds() > bound_seconds * (1 + tuning::release_above))) {
            ReleaseSearch other{ring.problem(), {options.effort, bound_seconds, share}};
            if (other.search(solution.ring.streamed_per_step) && other.solution().seconds < release.seconds) {
                release = other.solution();
                release_problem = ring.problem();
            }
            work += other.work();
        }
    }
    if (release_problem && release.seconds <= known_seconds * (1 + tuning::release_known_within)) {
        ReleaseSearch search{*release_problem, {options.effort, bound_seconds, share}};
        search.improve(release);
        if (!found || search.solution().seconds < best.predicted_seconds * (1 - tuning::release_least_gain)) {
            consider(search.assignment());
        }
        work += search.work();
    }
    if (rounds.problem && rounds.seconds > bound_seconds * (1 + tuning::resize_above) &&
        rounds.seconds <= known_seconds * (1 + tuning::resize_known_within)) {
        const ReleaseSearch::Config config{options.effort, bound_seconds, share};
        const double most_seconds = best.predicted_seconds * (1 - tuning::resize_least_gain);
        if (const auto assignment = resized_ring(rounds, config, most_seconds, work)) { consider(*assignment); }
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
// are 8 % longer costs little: the best with steps as measured and 5 % longer, together. Preconditions as of best_ring.
inline PlanData lasting_ring(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                             double bound_seconds) {
    std::uint64_t work = 0;
    const auto with_steps = [&](double factor) {
        Problem slower = problem;
        for (double& seconds : slower.compute_seconds) { seconds *= factor; }
        return slower;
    };
    const Problem later = with_steps(tuning::slower_steps);
    PlanData plan;
    double least = 1e300;  // what a plan takes with steps as measured, and 5 % longer, together
    const auto consider = [&](const Problem& planned, Effort effort, double share = 1) {
        Options with = options;
        with.effort = effort;
        PlanData made = best_ring(planned, image, budget, with, bound_seconds, work, share);
        finalize_times(made, problem);
        const double seconds = made.predicted_seconds + simulate(made, later.link, later.compute_seconds);
        if (seconds < least) { plan = std::move(made); }
        least = (std::min)(least, seconds);
    };
    if (options.effort == Effort::quick) {
        consider(problem, Effort::quick);
        const double unharmed = (std::max)(plan.predicted_seconds, total_compute(later));
        if (least > plan.predicted_seconds + (1 + tuning::slower_steps_harm) * unharmed) {
            consider(with_steps(tuning::planned_slower_steps), Effort::quick, tuning::slower_steps_share_quick);
        }
    } else {
        consider(with_steps(tuning::planned_slower_steps), Effort::full, tuning::slower_steps_share_full);
        const double before = least;
        consider(problem, Effort::quick, tuning::measured_steps_share);
        if (plan.predicted_seconds > bound_seconds * (1 + tuning::measured_steps_again_above) ||
            least < before * (1 - tuning::measured_steps_again_gain)) {
            consider(problem, Effort::full, tuning::measured_steps_again_share);
        }
    }
    return plan;
}

// Everything, where it fits; else the ring for these steps and this link. Preconditions as of best_ring.
inline PlanData resident_or_ring(const Problem& problem, const Image& image, std::uint64_t budget,
                                 const Options& options, double bound_seconds, double known_seconds) {
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
               : best_ring(problem, image, budget, options, bound_seconds, work, 1, known_seconds);
}

// The image with the last chunks of a cell kept, all but `free` of them.
inline Image with_part_kept(const Image& image, std::size_t cell, std::uint32_t free) {
    Image result = image;
    Cell kept = result.cells[cell];
    kept.chunk_begin += free;
    kept.keep = true;
    result.cells[cell].chunk_end = kept.chunk_begin;
    result.cells.insert(result.cells.begin() + static_cast<std::ptrdiff_t>(cell) + 1, kept);
    return result;
}

// A step that reads much of what memory holds would stream as large a part of it in a ring for all steps. With more of that kept, the ring
// is smaller, and copies are fewer. Replaces `best` where that is faster. `options` are for a thorough search.
inline void keep_part_of_widest(PlanData& best, const Problem& problem, const Image& image, std::uint64_t budget,
                                const Options& options, double bound_seconds) {
    std::size_t widest = image.cells.size();
    for (std::size_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        if (cell.keep || cell.last - cell.first > tuning::held_cell_steps) { continue; }
        if (widest == image.cells.size() || cell.chunks() > image.cells[widest].chunks()) { widest = c; }
    }
    if (widest == image.cells.size()) { return; }
    const std::uint32_t chunks = image.cells[widest].chunks();
    if (chunks < 2 || chunks < tuning::part_kept_share * static_cast<double>(budget)) { return; }
    Options quick = options;
    quick.effort = Effort::quick;
    PlanData fastest;
    Image chosen;  // the one that it is for
    bool found = false;
    std::uint64_t work = 0;
    for (std::uint32_t free = 1; free < chunks && work < tuning::part_kept_work; free *= 2) {
        Image kept = with_part_kept(image, widest, free);
        if (floor_chunks(kept, problem.steps()).chunks > budget) { continue; }
        PlanData data = best_ring(problem, kept, budget, quick, bound_seconds, work);
        if (found && !is_better(data, fastest)) { continue; }
        fastest = std::move(data);
        chosen = std::move(kept);
        found = true;
    }
    if (!found || fastest.predicted_seconds > best.predicted_seconds) { return; }
    PlanData thorough = best_ring(problem, chosen, budget, options, bound_seconds, work);
    if (is_better(thorough, fastest)) { fastest = std::move(thorough); }
    const double limit = best.predicted_seconds * (tells_of(options, image) ? 1 - tuning::refetch_loss : 1.0);
    if (fastest.predicted_seconds < limit && is_better(fastest, best)) { best = std::move(fastest); }
}

// Of few chunks, what streams through one ring is a coarse choice: looks for slots of each chunk alone, from those of `best`. Replaces `best`
// where that is faster.
inline void choose_slots(PlanData& best, const Problem& problem, const Image& image, std::uint64_t budget,
                         const Options& options, double bound_seconds) {
    SlotSearch search{problem, image, budget, {options.effort, options.captured, bound_seconds}};
    search.start(best.chunk_slot);
    search.search();
    if (search.seconds() >= best.predicted_seconds) { return; }
    PlanData data = assemble(problem, image, search.assignment(), options.captured);
    finalize_times(data, problem);
    if (is_better(data, best)) { best = std::move(data); }
}

RESIDENCY_INLINE PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                      const Options& options, double bound_seconds, double known_seconds) {
    PlanData best = resident_or_ring(problem, image, budget, options, bound_seconds, known_seconds);
    if (tells_of(options, image)) {  // which may cost 0.1 %
        Options alone = options;
        alone.present.clear();
        PlanData fastest = resident_or_ring(problem, image, budget, alone, bound_seconds, known_seconds);
        if (best.predicted_seconds > fastest.predicted_seconds * (1 + tuning::refetch_loss)) {
            best = std::move(fastest);
        }
    }
    if (options.effort == Effort::full && image.filled_chunks() > budget &&
        best.predicted_seconds > bound_seconds * (1 + tuning::part_kept_above)) {
        keep_part_of_widest(best, problem, image, budget, options, bound_seconds);
    }
    const std::uint64_t chunks = image.filled_chunks();
    if (chunks <= tuning::slots_most_chunks && chunks <= std::uint64_t{tuning::slots_step_chunks} * problem.steps() &&
        chunks > budget && best.predicted_seconds > bound_seconds * (1 + tuning::slots_above)) {
        if (tells_of(options, image)) {
            // A plan that is close to what memory holds gives way for more than a little only.
            Options alone = options;
            alone.present.clear();
            PlanData fastest = cyclic_plan(problem, image, budget, alone, bound_seconds, known_seconds);
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
