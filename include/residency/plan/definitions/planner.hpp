// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/aggressive.hpp"
#include "residency/plan/arena.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/draft.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/timeline.hpp"
#include "residency/plan/token_ring.hpp"

namespace residency::inline RESIDENCY_ABI::plan {

RESIDENCY_DETAIL_INLINE Status validate(const Problem& problem) {
    const auto bad = [](std::string what) { return Status{Error{ErrorKind::invalid_argument, std::move(what)}}; };
    const auto number = [](auto x) { return std::to_string(x); };
    if (!(problem.link.bytes_per_second > 0) || !std::isfinite(problem.link.bytes_per_second)) {
        return bad("link: bytes_per_second must be positive");
    }
    for (const auto& [name, latency] : {std::pair{"latency_seconds", problem.link.latency_seconds},
                                        {"node_latency_seconds", problem.link.node_latency_seconds}}) {
        if (!(latency >= 0) || !std::isfinite(latency)) {
            return bad(std::string{"link: "} + name + " must not be negative");
        }
    }
    if (problem.chunk_bytes == 0 || (problem.chunk_bytes & (problem.chunk_bytes - 1)) != 0) {
        return bad("chunk_bytes is " + number(problem.chunk_bytes) + ", it must be a power of two");
    }
    if (problem.alignment_bytes == 0 || (problem.alignment_bytes & (problem.alignment_bytes - 1)) != 0) {
        return bad("alignment_bytes is " + number(problem.alignment_bytes) + ", it must be a power of two");
    }
    if (problem.storage_bytes.size() >= none) { return bad("too many storages"); }
    if (problem.steps() == 0) { return bad("the schedule has no steps"); }
    std::uint64_t total = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        const std::uint64_t b = problem.storage_bytes[s];
        if (b > (1ULL << 56) || total > (1ULL << 56)) {
            return bad("storage " + number(s) + ": more than 2^56 bytes in all");
        }
        total += b + problem.alignment_bytes + problem.chunk_bytes;
    }
    if (total / problem.chunk_bytes >= (1ULL << 31)) { return bad("more than 2^31 chunks"); }
    if (problem.step_offsets.front() != 0 || problem.step_offsets.back() != problem.step_storages.size()) {
        return bad("step_offsets do not cover step_storages");
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.step_offsets[i] > problem.step_offsets[i + 1]) {
            return bad("step " + number(i) + ": step_offsets decrease");
        }
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (s >= problem.storages()) {
                return bad("step " + number(i) + " reads storage " + number(s) + " of " + number(problem.storages()));
            }
        }
    }
    if (!problem.compute_seconds.empty() && problem.compute_seconds.size() != problem.steps()) {
        return bad(number(problem.compute_seconds.size()) + " step times for " + number(problem.steps()) + " steps");
    }
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (!(problem.compute(i) >= 0) || !std::isfinite(problem.compute(i))) {
            return bad("step " + number(i) + ": compute_seconds must not be negative");
        }
    }
    for (const std::uint32_t s : problem.pinned) {
        if (s >= problem.storages()) { return bad("pinned storage " + number(s) + " does not exist"); }
    }
    if (!problem.image_offsets.empty()) {
        if (problem.image_offsets.size() != problem.storages()) { return bad("image_offsets: one a storage"); }
        std::vector<std::uint32_t> order;
        for (std::uint32_t s = 0; s < problem.storages(); ++s) {
            if (problem.image_offsets[s] > (1ULL << 56) ||
                (problem.image_offsets[s] + problem.storage_bytes[s]) / problem.chunk_bytes >= (1ULL << 31)) {
                return bad("storage " + number(s) + ": image offset too large");
            }
            if (problem.storage_bytes[s] != 0) { order.push_back(s); }
        }
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
            return problem.image_offsets[a] < problem.image_offsets[b];
        });
        for (std::size_t k = 1; k < order.size(); ++k) {
            if (problem.image_offsets[order[k - 1]] + problem.storage_bytes[order[k - 1]] >
                problem.image_offsets[order[k]]) {
                return bad("storages " + number(order[k - 1]) + " and " + number(order[k]) + " overlap in the image");
            }
        }
    }
    return {};
}

namespace detail {

// Cells that stay: kept ones, and those read at steps apart, most uses first, as many as leave a ring that works.
inline std::vector<std::vector<bool>> hold_choices(const Problem& problem, const Image& image, std::uint64_t budget) {
    const std::uint32_t n = problem.steps();
    std::vector<bool> kept(image.cells.size());
    std::vector<std::uint32_t> apart;
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        kept[c] = cell.keep;
        if (!cell.keep && cell.last - cell.first > 2) { apart.push_back(c); }
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
    std::sort(apart.begin(), apart.end(), [&](std::uint32_t a, std::uint32_t b) {
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
        for (const std::size_t count : {low * 3 / 4, low / 2, std::size_t{0}}) {
            if (count < low) { choices.push_back(with(count)); }
        }
    }
    return choices;
}

// The cut of a captured plan, and what the plan takes.
inline void settle(PlanData& data, const Problem& problem) {
    if (data.captured && data.cyclic) {
        const Timeline line = timeline(data, problem.link, problem.compute_seconds);
        TimelineSolver solver;
        double least = 0;
        for (std::uint32_t cut = 0; cut <= data.calls.size() && cut <= 16; ++cut) {
            if (cut > 0 && data.calls[cut - 1].wait.exists() && data.calls[cut - 1].wait.pass == 0) { break; }
            const double seconds = solver.captured(line, cut);
            if (cut == 0 || seconds < least) {
                least = seconds;
                data.cut = cut;
            }
        }
    }
    data.predicted_seconds = simulate(data, problem.link, problem.compute_seconds);
}

// Faster, or as fast with fewer bytes.
inline bool is_better(const PlanData& a, const PlanData& b) {
    if (std::abs(a.predicted_seconds - b.predicted_seconds) > 1e-9 * b.predicted_seconds) {
        return a.predicted_seconds < b.predicted_seconds;
    }
    return a.bytes_per_pass < b.bytes_per_pass;
}

// Whether what memory holds is told by the chunks of this image.
inline bool tells_of(const Options& options, const Image& image) {
    return options.present.size() == image.chunks() && options.present_offsets == image.offsets;
}

// The best ring over the chunks of one image; nothing goes below the target. Precondition: budget >= floor_chunks(image), and less
// than all chunks. `work` grows by what it looked at: a measure of time that is the same on every machine. `share`: of what it may look at.
inline PlanData best_ring(const Problem& problem, const Image& image, std::uint64_t budget, std::uint64_t floor,
                          const Options& options, double target_seconds, std::uint64_t& work, double share = 1) {
    PlanData best;
    bool found = false;
    const auto consider = [&](const Draft& draft) {
        PlanData data = assemble(problem, image, draft, options.captured);
        settle(data, problem);
        work += std::uint64_t{20} * image.chunks();  // assembling a plan takes time too
        if (!found || is_better(data, best)) { best = std::move(data); }
        found = true;
    };
    const auto choices = hold_choices(problem, image, budget);
    const bool is_same = tells_of(options, image);
    for (const std::vector<bool>& hold : choices) {
        TokenRing ring{problem,
                       image,
                       hold,
                       budget,
                       {options.captured, options.effort == Effort::full, target_seconds, share,
                        is_same ? &options.present : nullptr}};
        if (ring.deficit() == 0) { continue; }
        RingSolution solution = ring.search();
        work += ring.work();
        if (solution.found) { consider(ring.draft(solution)); }
        if (!solution.found || budget <= 2 * floor) {
            std::uint64_t held = 0;
            for (std::uint32_t c = 0; c < image.cells.size(); ++c) { held += hold[c] ? image.cells[c].chunks() : 0; }
            Draft draft;
            if (interval_ring(image, hold, static_cast<std::uint32_t>(budget - held), draft)) { consider(draft); }
        }
    }
    return best;
}

// Steps take longer than was measured on a GPU that is too warm for its highest clock, 3 to 7 % under full load. Where steps and copies
// take about as long, a plan that just works out then waits at many steps and loses several times as much, and one for steps that
// are 8 % longer costs little: the best with steps as measured and 5 % longer, together. Preconditions as of best_ring.
inline PlanData lasting_ring(const Problem& problem, const Image& image, std::uint64_t budget, std::uint64_t floor,
                             const Options& options, double target_seconds) {
    std::uint64_t work = 0;
    const auto with_steps = [&](double factor) {
        Problem slower = problem;
        for (double& seconds : slower.compute_seconds) { seconds *= factor; }
        return slower;
    };
    const Problem later = with_steps(1.05);
    PlanData plan;
    double least = 1e300;  // what a plan takes with steps as measured, and 5 % longer, together
    const auto consider = [&](const Problem& planned, Effort effort, double share = 1) {
        Options with = options;
        with.effort = effort;
        PlanData made = best_ring(planned, image, budget, floor, with, target_seconds, work, share);
        settle(made, problem);
        const double seconds = made.predicted_seconds + simulate(made, later.link, later.compute_seconds);
        if (seconds < least) { plan = std::move(made); }
        least = (std::min)(least, seconds);
    };
    if (options.effort == Effort::quick) {
        consider(problem, Effort::quick);
        const double unharmed = (std::max)(plan.predicted_seconds, total_compute(later));
        if (least > plan.predicted_seconds + 1.003 * unharmed) { consider(with_steps(1.08), Effort::quick, 0.5); }
    } else {
        consider(with_steps(1.08), Effort::full, 0.95);
        const double before = least;
        consider(problem, Effort::quick, 0.5);
        if (plan.predicted_seconds > target_seconds * 1.015 || least < before * (1 - 5e-4)) {
            consider(problem, Effort::full, 0.25);
        }
    }
    return plan;
}

// The best cyclic plan over the chunks of one image; nothing goes below the target. Precondition: budget >= floor_chunks(image).
inline PlanData cyclic_plan(const Problem& problem, const Image& image, std::uint64_t budget, std::uint64_t floor,
                            const Options& options, double target_seconds) {
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
    const double most_share = options.effort == Effort::full ? 0.97 : 0.9;
    if (const double share = (std::max)(0.75, 1.1 * used); share < most_share) {
        Problem slower = problem;
        slower.link.bytes_per_second *= share;
        Options quick = options;
        quick.effort = Effort::quick;
        const double limit = target_seconds * (1 + 3e-4);
        if (exact_bound(slower, budget * image.chunk_bytes, 200) <= limit) {
            PlanData plan = best_ring(slower, image, budget, floor, quick, target_seconds, work);
            if (plan.predicted_seconds <= limit) {
                settle(plan, problem);
                return plan;
            }
        }
    }
    return used > 1 && used < 2.5 ? lasting_ring(problem, image, budget, floor, options, target_seconds)
                                  : best_ring(problem, image, budget, floor, options, target_seconds, work);
}

// Of few wide storages not every number of chunks makes a good ring: with some of the budget left unused, up to two storages of it,
// it may be faster. Replaces `best` where that is so. `options` are for a thorough search.
inline void leave_unused(PlanData& best, const Problem& problem, const Image& image, std::uint64_t budget,
                         std::uint64_t floor, const Options& options, double target_seconds) {
    const std::uint64_t widest = *std::max_element(problem.storage_bytes.begin(), problem.storage_bytes.end());
    const std::uint64_t most = (std::min)(budget - floor, 2 * (widest / image.chunk_bytes + 1));
    const bool is_small = problem.steps() <= 6 && budget < 1024;
    Options search = options;
    search.present.clear();
    if (!is_small) { search.effort = Effort::quick; }
    const auto is_close = [&](const PlanData& data) { return data.predicted_seconds <= target_seconds * 1.005; };
    std::vector<std::pair<double, std::uint64_t>> choices;
    std::uint64_t work = 0;
    for (std::uint64_t unused = (std::max<std::uint64_t>)(most / 128, 1); unused <= most && work < 4000000;
         unused += (std::max<std::uint64_t>)(unused / (is_small ? 16 : 4), 1)) {
        const PlanData data = best_ring(problem, image, budget - unused, floor, search, target_seconds, work);
        choices.emplace_back(data.predicted_seconds, unused);
        if (is_close(data)) { break; }
    }
    std::sort(choices.begin(), choices.end());
    // A plan that is close to what memory holds gives way for more than a little only.
    const double limit = best.predicted_seconds * (tells_of(options, image) ? 0.999 : 1.0);
    for (std::size_t c = 0; c < choices.size() && c < 2 && !is_close(best); ++c) {
        if (choices[c].first > best.predicted_seconds * (is_small ? 1.02 : 0.995)) { break; }
        PlanData data = best_ring(problem, image, budget - choices[c].second, floor, options, target_seconds, work);
        if (data.predicted_seconds < limit && is_better(data, best)) { best = std::move(data); }
    }
}

// One pass in the order that is known, from what is there at the start.
inline Result<PlanData> one_shot_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                      const Options& options) {
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    Aggressive planner{problem, image, budget};
    Aggressive::Config config;
    config.latency_seconds = latency;
    config.fixed_slots = options.fixed_slots;
    const std::uint64_t total = image.filled_chunks();
    const double missing = total > budget ? static_cast<double>(total - budget) : 1.0;
    const double piece =
        std::sqrt(latency * problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes) * missing / 2);
    std::vector<std::uint32_t> pieces{1, 4};
    const bool full = options.effort == Effort::full && image.cells.size() + problem.step_storages.size() < 20000;
    for (const double factor : {0.5, 1.0, 2.0}) {
        pieces.push_back(static_cast<std::uint32_t>(std::clamp(piece * factor, 1.0, 1e6)));
    }
    if (!full) { pieces = {pieces[3]}; }
    std::sort(pieces.begin(), pieces.end());
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
    PlanData best;
    bool found = false;
    Draft draft;
    const auto attempt = [&] {
        PlanData data;
        if (!planner.run(config, options.start, draft)) { return data; }
        data = assemble(problem, image, draft, options.captured);
        data.predicted_seconds = simulate(data, problem.link, problem.compute_seconds);
        return data;
    };
    std::uint32_t best_piece = 1;
    for (const std::uint32_t p : pieces) {
        config.piece_chunks = p;
        PlanData data = attempt();
        if (data.steps == 0) { continue; }
        if (!found || data.predicted_seconds < best.predicted_seconds) {
            best = std::move(data);
            best_piece = p;
        }
        found = true;
    }
    if (!found) {
        return Error{ErrorKind::budget, "the budget does not hold what is needed from first to last use",
                     BudgetNumbers{}};
    }
    // The smallest look-ahead that is as fast: the fewest bytes.
    config.piece_chunks = best_piece;
    const double limit = best.predicted_seconds * 1.002;
    for (std::uint32_t cap = 1; cap < problem.steps(); cap *= full ? 2 : 8) {
        config.look_ahead = cap;
        PlanData data = attempt();
        if (data.steps != 0 && data.predicted_seconds <= limit) {
            if (data.bytes_per_pass < best.bytes_per_pass || data.predicted_seconds < best.predicted_seconds) {
                best = std::move(data);
            }
            break;
        }
    }
    return best;
}

// What is below the floor is refused.
inline Error below_floor(std::uint64_t budget_bytes, std::uint64_t floor_bytes, std::uint32_t step) {
    return Error{ErrorKind::budget,
                 "budget of " + std::to_string(budget_bytes) + " bytes is below the floor of " +
                     std::to_string(floor_bytes) + " bytes" +
                     (step == none ? std::string{} : ", which step " + std::to_string(step) + " sets"),
                 BudgetNumbers{floor_bytes, budget_bytes, 0, floor_bytes, step}};
}

// What a plan says of its budget, without a plan.
inline PlanData bounds_at(const Problem& problem, std::uint64_t budget_bytes, const Options& options) {
    PlanData data;
    data.budget_bytes = budget_bytes;
    data.usual_bound_seconds = usual_bound(problem, budget_bytes);
    data.bound_seconds = (std::max)(data.usual_bound_seconds,
                                    exact_bound(problem, budget_bytes, options.effort == Effort::full ? 2000 : 200));
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    data.latency_floor_seconds = problem.cyclic ? latency_floor(problem, budget_bytes, latency) : data.bound_seconds;
    return data;
}
inline void keep_bounds(PlanData& data, const PlanData& bounds) {
    data.budget_bytes = bounds.budget_bytes;
    data.usual_bound_seconds = bounds.usual_bound_seconds;
    data.bound_seconds = bounds.bound_seconds;
    data.latency_floor_seconds = bounds.latency_floor_seconds;
}

inline Result<PlanData> chunks_plan(const Problem& problem, const Options& options) {
    const std::uint64_t g = problem.chunk_bytes;
    const std::vector<Image> images = candidate_images(problem);
    std::vector<FloorChunks> floors;
    for (const Image& image : images) {
        const bool anywhere = !problem.cyclic && !options.fixed_slots;
        floors.push_back(anywhere ? Aggressive{problem, image, 0}.floor() : floor_chunks(image, problem.steps()));
    }
    const FloorChunks floor =
        *std::min_element(floors.begin(), floors.end(), [](auto a, auto b) { return a.chunks < b.chunks; });
    const std::uint64_t budget_bytes = problem.budget_bytes == 0 ? floor.chunks * g : problem.budget_bytes;
    const std::uint64_t budget = (std::min<std::uint64_t>)(budget_bytes / g, none - 1);
    if (budget < floor.chunks) { return below_floor(budget_bytes, floor.chunks * g, floor.step); }
    if (!options.start.empty() &&
        (problem.cyclic || problem.image_offsets.empty() || options.start.size() != images[0].chunks())) {
        return Error{ErrorKind::invalid_argument,
                     "a start needs a one-shot schedule, a given image and one entry a chunk"};
    }
    const auto deficit = [&](std::size_t k) {
        return (std::max<std::int64_t>)(0, static_cast<std::int64_t>(images[k].filled_chunks()) -
                                               static_cast<std::int64_t>(budget));
    };
    const PlanData bounds = bounds_at(problem, budget_bytes, options);
    const double target_seconds = (std::max)(bounds.bound_seconds, bounds.latency_floor_seconds);
    const auto cyclic = [&](std::size_t k, const Options& with) {
        return cyclic_plan(problem, images[k], budget, floors[k].chunks, with, target_seconds);
    };
    const bool is_short = problem.steps() <= 32;
    PlanData best;
    bool found = false;
    for (std::size_t k = 0; k < images.size(); ++k) {
        if (budget < floors[k].chunks) { continue; }
        // The aligned layout pays near the floor, and where few storages are wide; the packed one where the gaps of the grouped one
        // matter.
        if (found && k == 1 &&
            (best.predicted_seconds <= target_seconds * 1.002 || (!is_short && budget > floors[k].chunks * 5 / 2))) {
            continue;
        }
        if (found && k == 2 && deficit(0) - deficit(2) <= deficit(0) / 50) { continue; }
        PlanData data;
        if (problem.cyclic) {
            data = cyclic(k, options);
            if (tells_of(options, images[k])) {  // which may cost 0.1 %
                Options alone = options;
                alone.present.clear();
                PlanData fastest = cyclic(k, alone);
                if (data.predicted_seconds > fastest.predicted_seconds * 1.001) { data = std::move(fastest); }
            }
            if (problem.steps() <= 12 && problem.storages() <= 16 && options.effort == Effort::full && deficit(k) > 0 &&
                data.predicted_seconds > target_seconds * 1.005) {
                leave_unused(data, problem, images[k], budget, floors[k].chunks, options, target_seconds);
            }
        } else {
            Result<PlanData> made = one_shot_plan(problem, images[k], budget, options);
            if (!made) { return made.error(); }
            data = std::move(made).value();
        }
        if (!found || is_better(data, best)) { best = std::move(data); }
        found = true;
    }
    best.floor_bytes = floor.chunks * g;
    keep_bounds(best, bounds);
    return best;
}

inline Result<PlanData> arena_plan(const Problem& problem, const Options& options) {
    const Image image = lay_out(problem, problem.image_offsets.empty() ? ImageOrder::aligned : ImageOrder::given);
    ArenaPlanner planner{problem, image};
    const std::uint64_t budget_bytes = problem.budget_bytes == 0 ? planner.floor_bytes() : problem.budget_bytes;
    if (budget_bytes < planner.floor_bytes()) {
        return below_floor(budget_bytes, planner.floor_bytes(), planner.floor_step());
    }
    PlanData data = planner.plan(budget_bytes, options.captured, options.effort == Effort::full);
    settle(data, problem);
    data.floor_bytes = planner.floor_bytes();
    keep_bounds(data, bounds_at(problem, budget_bytes, options));
    return data;
}

}  // namespace detail

RESIDENCY_DETAIL_INLINE Result<Plan> make_plan(const Problem& problem, const Options& options) {
    if (Status status = validate(problem); !status) { return status.error(); }
    Result<PlanData> made =
        options.layout == Layout::arena ? detail::arena_plan(problem, options) : detail::chunks_plan(problem, options);
    if (!made) { return made.error(); }
    PlanData data = std::move(made).value();
    data.catalog_hash = options.catalog_hash;
    data.compute_seconds = total_compute(problem);
    for (const double seconds : {data.compute_seconds, data.bound_seconds, data.predicted_seconds}) {
        if (!std::isfinite(seconds)) {
            return Error{ErrorKind::invalid_argument,
                         "a pass takes longer than a number can say: look at the compute times, the link's rate and "
                         "its latency"};
        }
    }
    return Plan{std::move(data)};
}

}  // namespace residency::inline RESIDENCY_ABI::plan
