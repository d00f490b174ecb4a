// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "residency/model/sort.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/cyclic.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/release_search.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/search.hpp"
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

// Cyclic plans over the chunks of one image.
struct RingPlans {
    std::vector<PlanData> alone;          // whatever memory holds
    std::vector<PlanData> near_presence;  // looked for near what it holds

    void add(RingPlans more) {
        for (auto member : {&RingPlans::alone, &RingPlans::near_presence}) {
            std::move((more.*member).begin(), (more.*member).end(), std::back_inserter(this->*member));
        }
    }
};

// Rings over the chunks of one image, the best one among them; where it is known what memory holds, also rings that are close to it. No
// search goes on below `limits.bound_seconds`; one near what memory holds has the effort of the options. Preconditions:
// budget >= floor_chunks(image), and less than all chunks.
inline RingPlans rings(const Problem& problem, const Image& image, std::uint64_t budget, const Options& options,
                       const SearchLimits& limits) {
    RingPlans found;
    const auto add = [&](std::vector<PlanData>& plans, const RingAssignment& assignment) {
        plans.push_back(assemble(problem, image, assignment, options.captured));
        finalize_times(plans.back(), problem);
    };
    const auto choices = hold_choices(problem, image, budget, limits.effort);
    const bool knows_presence = tells_of(options, image);
    const SearchLimits near_limits{options.effort, limits.bound_seconds, limits.work_share};
    struct Ring {
        const std::vector<bool>* hold;
        RingSolution solution;
    };
    std::vector<Ring> of_rounds;                   // one for each choice of cells that stay
    double least_seconds = RingCalls::impossible;  // of all rings found
    ReleaseSearch::Solution release;               // the best one
    std::optional<RingProblem> release_problem;    // that it solves
    const std::vector<bool>* release_hold = nullptr;
    const bool is_short = problem.steps() <= tuning::release_most_steps;
    for (const std::vector<bool>& hold : choices) {
        TokenRing ring{RingProblem{problem, image, hold, budget, options.captured, nullptr}, limits};
        if (ring.deficit() == 0) { continue; }
        of_rounds.push_back({&hold, ring.search(least_seconds)});
        const RingSolution& solution = of_rounds.back().solution;
        if (solution.found) {
            add(found.alone, ring.assignment(solution));
            least_seconds = (std::min)(least_seconds, solution.seconds);
        }
        if (!is_short) { continue; }
        ReleaseSearch other{ring.problem(), limits};
        if (other.search(solution.ring.streamed_per_step) && other.solution().seconds < release.seconds) {
            release = other.solution();
            release_problem = ring.problem();
            release_hold = &hold;
            least_seconds = (std::min)(least_seconds, release.seconds);
        }
    }
    if (release_problem) {
        ReleaseSearch search{*release_problem, limits};
        search.improve(release);
        add(found.alone, search.assignment());
        release = search.solution();
        least_seconds = (std::min)(least_seconds, release.seconds);
    }
    // Rings that are slower by much are no starts for a plan that follows another one.
    const double most_seconds = least_seconds * (1 + tuning::refine_from);
    for (const Ring& one : of_rounds) {
        if (!knows_presence) { break; }
        const RingProblem nearby{problem, image, *one.hold, budget, options.captured, &options.present};
        if (one.solution.found && one.solution.seconds <= most_seconds) {
            TokenRing ring{nearby, near_limits};
            const RingSolution solution = ring.approach(one.solution);
            if (solution.found) { add(found.near_presence, ring.assignment(solution)); }
        }
        if (!is_short) { continue; }
        // Steps that stream as much as in the plan before need nothing that memory lacks.
        ReleaseSearch as_before{nearby, near_limits};
        if (as_before.search_calls({nearby.nonresident().begin(), nearby.nonresident().end()})) {
            add(found.near_presence, as_before.assignment());
        }
        if (one.hold == release_hold && release.seconds <= most_seconds) {
            ReleaseSearch search{nearby, near_limits};
            if (search.approach(release)) { add(found.near_presence, search.assignment()); }
        }
    }
    if (found.alone.empty()) {  // the first choice leaves what intervals of steps need
        const std::vector<bool>& hold = choices.front();
        std::uint64_t held = 0;
        for (std::uint32_t c = 0; c < image.cells.size(); ++c) { held += hold[c] ? image.cells[c].chunks() : 0; }
        RingAssignment assignment;
        if (interval_ring(image, hold, static_cast<std::uint32_t>(budget - held), assignment)) {
            add(found.alone, assignment);
        }
    }
    return found;
}

// Steps take longer than was measured on a GPU that is too warm for its highest clock, 3 to 7 % under full load. Where steps and copies
// take about as long, a plan that just works out then waits at many steps and loses several times as much, and one for steps that
// are 7 % longer costs little: plans are compared by what they take with steps as measured and 7 % longer, together.
class Lasting {
public:
    // `used`: what copies take of the time of the steps.
    Lasting(const Problem& problem, double used)
        : later_{problem}, is_wanted_{used > tuning::slower_steps_from && used < tuning::slower_steps_to} {
        for (double& seconds : later_.compute_seconds) { seconds *= tuning::slower_steps; }
    }
    [[nodiscard]] const Problem& later() const noexcept { return later_; }
    [[nodiscard]] bool is_wanted() const noexcept { return is_wanted_; }
    // By which plans are compared. Precondition: the plan's times are those of steps as measured.
    [[nodiscard]] double seconds(const PlanData& plan) const {
        return is_wanted_ ? plan.predicted_seconds + simulate(plan, later_.link, later_.compute_seconds)
                          : plan.predicted_seconds;
    }
    // Whether a plan loses much where steps are longer.
    [[nodiscard]] bool is_harmed(const PlanData& plan) const {
        const double unharmed = (std::max)(plan.predicted_seconds, total_compute(later_));
        return seconds(plan) > plan.predicted_seconds + (1 + tuning::slower_steps_harm) * unharmed;
    }

private:
    Problem later_;
    bool is_wanted_;
};

// The index of the one that takes the least, among equals the one that moves the fewest bytes. Precondition: there is one.
inline std::size_t best_of(const std::vector<PlanData>& plans, const Lasting& lasting) {
    std::size_t best = 0;
    double least = lasting.seconds(plans[0]);
    for (std::size_t k = 1; k < plans.size(); ++k) {
        const double seconds = lasting.seconds(plans[k]);
        const bool is_as_fast = std::abs(seconds - least) <= 1e-9 * least;
        if (is_as_fast ? plans[k].bytes_per_pass >= plans[best].bytes_per_pass : seconds > least) { continue; }
        best = k;
        least = seconds;
    }
    return best;
}

// Rings for this link and for these steps, or also for slower ones. `used`: what copies take of the time of the steps. Preconditions as of
// rings().
inline RingPlans rings_for_link(const Problem& problem, const Image& image, std::uint64_t budget,
                                const Options& options, double bound_seconds, double used, const Lasting& lasting) {
    // Where the steps cover the copies, a ring that is larger by little costs nothing and lets the link be slower than it was
    // measured, as it is beside kernels that use memory hard: plans for such a link, if they reach the bound all the same.
    const double share = (std::max)(tuning::slower_link_least, tuning::slower_link_margin * used);
    if (share < tuning::slower_link_most(options.effort)) {
        Problem slower = problem;
        slower.link.bytes_per_second *= share;
        const double limit = bound_seconds * (1 + tuning::slower_link_loss);
        if (exact_bound(slower, budget * image.chunk_bytes, tuning::flow_bound_steps(Effort::quick)) <= limit) {
            RingPlans found = rings(slower, image, budget, options, {Effort::quick, bound_seconds});
            for (std::vector<PlanData>* plans : {&found.alone, &found.near_presence}) {
                std::erase_if(*plans, [&](const PlanData& plan) { return plan.predicted_seconds > limit; });
                for (PlanData& plan : *plans) { finalize_times(plan, problem); }
            }
            if (!found.alone.empty()) { return found; }
        }
    }
    RingPlans found = rings(problem, image, budget, options, {options.effort, bound_seconds});
    if (lasting.is_wanted() && lasting.is_harmed(found.alone[best_of(found.alone, lasting)])) {
        RingPlans later = rings(lasting.later(), image, budget, options,
                                {options.effort, bound_seconds, tuning::slower_steps_share(options.effort)});
        for (std::vector<PlanData>* plans : {&later.alone, &later.near_presence}) {
            for (PlanData& plan : *plans) { finalize_times(plan, problem); }
        }
        found.add(std::move(later));
    }
    return found;
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

// The chunks that come into force with a plan and that memory lacks: residents, and what a pass brings to each slot first.
inline std::uint64_t loads(const PlanData& plan, const std::vector<Presence>& present) {
    std::vector<bool> is_taken(plan.held_bytes / plan.chunk_bytes, false);
    std::uint64_t sum = 0;
    for (const std::vector<Copy>* copies : {&plan.residents, &plan.copies}) {
        for (const Copy& copy : *copies) {
            for (const std::uint32_t chunk : chunks_of(copy.image_begin, copy.image_end, plan.chunk_bytes)) {
                const std::uint32_t slot = plan.chunk_slot[chunk];
                if (is_taken[slot]) { continue; }
                is_taken[slot] = true;
                sum += present[chunk] == Presence::absent ? 1U : 0U;
            }
        }
    }
    return sum;
}

// Replaces `best`, the best plan, by the one of `plans` that brings the fewest chunks that memory lacks, of those that are not slower by
// more than a little.
inline void choose_near(PlanData& best, std::vector<PlanData>& plans, const std::vector<Presence>& present,
                        const Lasting& lasting) {
    const double most_predicted = best.predicted_seconds * (1 + tuning::refetch_loss);
    const double most_seconds = lasting.seconds(best) * (1 + tuning::refetch_loss);
    const double most_bytes = static_cast<double>(best.bytes_per_pass) * (1 + tuning::refetch_larger_ring);
    std::uint64_t fewest = loads(best, present);
    double least = lasting.seconds(best);
    for (PlanData& plan : plans) {
        const double seconds = lasting.seconds(plan);
        if (plan.predicted_seconds > most_predicted || seconds > most_seconds ||
            static_cast<double>(plan.bytes_per_pass) > most_bytes) {
            continue;
        }
        const std::uint64_t now = loads(plan, present);
        if (now > fewest || (now == fewest && seconds >= least)) { continue; }
        best = std::move(plan);
        fewest = now;
        least = seconds;
    }
}

RESIDENCY_INLINE PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                      const Options& options, double bound_seconds) {
    const std::uint64_t chunks = image.filled_chunks();
    if (chunks <= budget) {
        PlanData whole = assemble(problem, image, {}, options.captured);
        whole.predicted_seconds = total_compute(problem);
        return whole;
    }
    const double bytes = static_cast<double>((chunks - budget) * image.chunk_bytes);
    const double used = bytes / problem.link.bytes_per_second / (std::max)(total_compute(problem), 1e-12);
    const Lasting lasting{problem, used};
    RingPlans plans = rings_for_link(problem, image, budget, options, bound_seconds, used, lasting);
    const auto at = plans.alone.begin() + static_cast<std::ptrdiff_t>(best_of(plans.alone, lasting));
    PlanData best = std::move(*at);
    plans.alone.erase(at);
    if (chunks <= tuning::slots_most_chunks && chunks <= std::uint64_t{tuning::slots_step_chunks} * problem.steps()) {
        choose_slots(best, problem, image, budget, options, bound_seconds);
    }
    if (tells_of(options, image)) {
        std::move(plans.near_presence.begin(), plans.near_presence.end(), std::back_inserter(plans.alone));
        choose_near(best, plans.alone, options.present, lasting);
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
