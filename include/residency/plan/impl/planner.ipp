// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/cyclic.hpp"
#include "residency/plan/greedy_planner.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/tuning.hpp"
#include "residency/plan/turn.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// What is below the floor is refused.
inline Error below_floor(std::uint64_t budget_bytes, const FloorChunks& floor, std::uint64_t chunk_bytes) {
    const std::uint64_t floor_bytes = floor.chunks * chunk_bytes, kept_bytes = floor.kept * chunk_bytes;
    std::string message = "budget of " + residency::detail::in_bytes(budget_bytes) + " is below the floor of " +
                          residency::detail::in_bytes(floor_bytes);
    if (floor.step != none) {
        message += ", which step " + std::to_string(floor.step) + " sets";
        if (kept_bytes != 0) { message += ", beside " + residency::detail::in_bytes(kept_bytes) + " that are kept"; }
    } else if (kept_bytes != 0) {
        message += ", all of which are kept";
    }
    return Error{ErrorKind::budget, std::move(message),
                 BudgetNumbers{floor_bytes, budget_bytes, kept_bytes, floor_bytes, floor.step}};
}

// What a plan says of its budget, without a plan.
inline PlanData bounds_at(const Problem& problem, std::uint64_t budget_bytes, const Options& options) {
    PlanData data;
    data.budget_bytes = budget_bytes;
    data.usual_bound_seconds = usual_bound(problem, budget_bytes);
    data.bound_seconds = (std::max)(data.usual_bound_seconds,
                                    exact_bound(problem, budget_bytes, tuning::flow_bound_steps(options.effort)));
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    data.latency_floor_seconds =
        problem.cyclic ? ring_floor(problem, budget_bytes, latency, tuning::flow_bound_steps(options.effort))
                       : data.bound_seconds;
    return data;
}
inline void keep_bounds(PlanData& data, const PlanData& bounds) {
    data.budget_bytes = bounds.budget_bytes;
    data.usual_bound_seconds = bounds.usual_bound_seconds;
    data.bound_seconds = bounds.bound_seconds;
    data.latency_floor_seconds = bounds.latency_floor_seconds;
}

// The image that memory is laid out by, where the problem does not say another one.
inline std::optional<Image> present_image(const Problem& problem, const Options& options) {
    if (options.present_offsets.empty() || !problem.image_offsets.empty()) { return std::nullopt; }
    Problem given = problem;
    given.image_offsets = options.present_offsets;
    if (!validate(given)) { return std::nullopt; }
    return lay_out(given, ImageOrder::given);
}

// `turn`: the problem is turned by so many steps.
inline Result<PlanData> best_plan(const Problem& problem, const Options& options, std::uint32_t turn) {
    const std::uint64_t g = problem.chunk_bytes;
    std::vector<Image> images = candidate_images(problem);
    std::vector<FloorChunks> floors;
    floors.reserve(images.size());
    for (const Image& image : images) { floors.push_back(floor_chunks(image, problem.steps())); }
    FloorChunks floor =
        *std::min_element(floors.begin(), floors.end(), [](auto a, auto b) { return a.chunks < b.chunks; });
    floor.step = step_before_turn(floor.step, turn, problem.steps());
    const std::uint64_t budget_bytes = problem.budget_bytes == 0 ? floor.chunks * g : problem.budget_bytes;
    const std::uint64_t budget = (std::min<std::uint64_t>)(budget_bytes / g, none - 1);
    if (budget < floor.chunks) { return below_floor(budget_bytes, floor, g); }
    const auto is_present = [&](const std::vector<std::uint64_t>& offsets) {
        return offsets == options.present_offsets;
    };
    if (auto present = present_image(problem, options);
        present &&
        std::none_of(images.begin(), images.end(), [&](const Image& image) { return is_present(image.offsets); })) {
        floors.push_back(floor_chunks(*present, problem.steps()));
        images.push_back(std::move(*present));
    }
    const auto deficit = [&](const Image& image) {
        return (std::max<std::int64_t>)(0, static_cast<std::int64_t>(image.filled_chunks()) -
                                               static_cast<std::int64_t>(budget));
    };
    const PlanData bounds = bounds_at(problem, budget_bytes, options);
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    // What a search stops at: the weaker floor, which costs nothing. The floor that a plan tells of needs bounds of its own.
    const double least_seconds =
        (std::max)(bounds.bound_seconds, problem.cyclic ? latency_floor(problem, budget_bytes, latency) : 0.0);
    const bool is_short = problem.steps() <= tuning::short_schedule_steps;
    PlanData best;
    double best_of_calls = 0;           // what it takes if each call is one copy node
    std::optional<PlanData> displaced;  // over the image that memory is laid out by, where another one is better
    std::vector<const Image*> planned;
    const auto is_found = [&] { return !planned.empty(); };
    // The image that memory is laid out by comes first: of plans that are as fast, it brings the least.
    std::vector<std::size_t> in_order;
    in_order.reserve(images.size());
    for (const bool comes_first : {true, false}) {
        for (std::size_t k = 0; k < images.size(); ++k) {
            if (is_present(images[k].offsets) == comes_first) { in_order.push_back(k); }
        }
    }
    const auto consider = [&](const Image& image) {
        if (std::any_of(planned.begin(), planned.end(),
                        [&](const Image* other) { return other->offsets == image.offsets; })) {
            return;
        }
        PlanData data = problem.cyclic ? cyclic_plan(problem, image, budget, options, least_seconds)
                                       : one_shot_plan(problem, image, budget, options);
        const double of_calls = data.predicted_seconds;
        count_nodes(data, problem, options);
        if (!is_found() || is_better(data, best)) {
            if (is_found() && is_present(best.storage_offsets)) { displaced = std::move(best); }
            best = std::move(data);
            best_of_calls = of_calls;
        }
        planned.push_back(&image);
    };
    // Whether the best plan loses to copy nodes what another image may save.
    const bool may_save_nodes = options.captured && has_neighbours(problem, options);
    const auto loses_to_nodes = [&] {
        return is_found() && may_save_nodes && best.predicted_seconds > best_of_calls * (1 + tuning::copy_nodes_loss);
    };
    // Whether another image cannot save so much that all would be brought again.
    const auto saves_little = [&](const Image& image) {
        if (!is_found() || !is_present(best.storage_offsets)) { return false; }
        const auto bytes =
            static_cast<double>((deficit(*planned.front()) - deficit(image)) * static_cast<std::int64_t>(g));
        return best.predicted_seconds <= least_seconds * (1 + tuning::other_image_gain) &&
               bytes <= static_cast<double>(best.bytes_per_pass) * tuning::other_image_gain;
    };
    for (const std::size_t k : in_order) {
        if (budget < floors[k].chunks || saves_little(images[k])) { continue; }
        // The aligned and the fitted layouts pay near the floor, and where few storages are wide; the packed one where the gaps of the
        // grouped one matter; the one in the order of use where chunks are few, so that a chunk of small storages is much to hold.
        const ImageOrder order = images[k].order;
        const bool is_aligned = order == ImageOrder::aligned || order == ImageOrder::fitted;
        const bool is_near = is_found() && best.predicted_seconds <= least_seconds * (1 + tuning::aligned_image_gain);
        const bool is_wide = is_short || static_cast<double>(budget) <=
                                             tuning::aligned_image_floors * static_cast<double>(floors[k].chunks);
        const bool saves = static_cast<double>(deficit(images[0]) - deficit(images[k])) >
                           tuning::packed_image_saves(options.effort) * static_cast<double>(deficit(images[0]));
        const bool is_worth = is_aligned                      ? !is_near && is_wide
                              : order == ImageOrder::sequence ? !is_near || saves
                              : order == ImageOrder::packed   ? saves
                                                              : true;
        if (!is_found() || is_worth || loses_to_nodes()) { consider(images[k]); }
    }
    if (loses_to_nodes() && problem.image_offsets.empty()) {
        const Image image = lay_out_as_sources(problem, options.source_offsets);
        if (floor_chunks(image, problem.steps()).chunks <= budget && !saves_little(image)) { consider(image); }
    }
    if (displaced && displaced->predicted_seconds <= best.predicted_seconds * (1 + tuning::other_image_gain) &&
        static_cast<double>(displaced->bytes_per_pass) <=
            static_cast<double>(best.bytes_per_pass) * (1 + tuning::other_image_gain)) {
        best = std::move(*displaced);
    }
    best.floor_bytes = floor.chunks * g;
    keep_bounds(best, bounds);
    return best;
}

// The best plan of the pass, looked at from its best step on.
inline Result<PlanData> best_plan_of_turns(const Problem& problem, const Options& options) {
    const std::uint32_t turn = best_turn(problem);
    if (turn == 0) { return best_plan(problem, options, 0); }
    // Images are compared by what the turned pass takes, which for a graph is not quite the same: its ends are elsewhere.
    Result<PlanData> made = best_plan(turned(problem, turn), options, turn);
    if (!made) { return made; }
    PlanData plan = turned_back(std::move(made).value(), problem, turn);
    finalize_times(plan, problem);
    count_nodes(plan, problem, options);
    return plan;
}

}  // namespace detail

RESIDENCY_INLINE Result<Plan> make_plan(const Problem& problem, const Options& options) {
    if (Status status = validate(problem); !status) { return status.error(); }
    Result<PlanData> made = detail::best_plan_of_turns(problem, options);
    if (!made) { return made.error(); }
    PlanData data = std::move(made).value();
    data.catalog_hash = options.catalog_hash;
    data.compute_seconds = total_compute(problem);
    for (const double seconds : {data.compute_seconds, data.bound_seconds, data.predicted_seconds}) {
        if (!residency::detail::is_finite(seconds)) {
            return Error{ErrorKind::invalid_argument,
                         "a pass takes longer than a number can say: look at the compute times, the link's rate and "
                         "its latency"};
        }
    }
    return Plan{std::move(data)};
}

}}}  // namespace residency::RESIDENCY_ABI::plan

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE PlanData one_shot_plan(const Problem& problem, const Image& image, std::uint64_t budget_chunks,
                                        const Options& options) {
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    const std::uint64_t total = image.filled_chunks();
    const double missing = total > budget_chunks ? static_cast<double>(total - budget_chunks) : 1.0;
    // The number of chunks per call that balances the latency of the calls with the wait for the first one.
    const double balanced =
        std::sqrt(latency * problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes) * missing / 2);
    const auto chunks = [&](double factor) {
        return static_cast<std::uint32_t>(std::clamp(balanced * factor, 1.0, 1e6));
    };
    std::vector<std::uint32_t> sizes{chunks(1)};
    if (options.effort == Effort::full &&
        image.cells.size() + problem.step_storages.size() < tuning::one_shot_full_items) {
        sizes.assign(std::begin(tuning::one_shot_call_chunks), std::end(tuning::one_shot_call_chunks));
        for (const double factor : tuning::one_shot_call_factors) { sizes.push_back(chunks(factor)); }
        residency::detail::sort(sizes);
        sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    }
    GreedyPlanner planner{problem, image, (std::min)(budget_chunks, total)};
    PlanData best;
    for (const std::uint32_t size : sizes) {
        RingAssignment assignment;
        if (!planner.run({latency, size}, assignment)) { continue; }
        PlanData data = assemble(problem, image, assignment, options.captured);
        data.predicted_seconds = simulate(data, problem.link, problem.compute_seconds);
        if (best.steps == 0 || data.predicted_seconds < best.predicted_seconds) { best = std::move(data); }
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
