// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdio>
#include <utility>

#include "residency/model/number.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// No plan of copies is faster at a budget. Seconds.
[[nodiscard]] inline double best_seconds(const Problem& problem, std::uint64_t budget_bytes, Effort effort) {
    return (std::max)(total_compute(problem), exact_bound(problem, budget_bytes, tuning::flow_bound_steps(effort)));
}
[[nodiscard]] inline std::string milliseconds(double seconds) {
    char text[48];
    std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
    return text;
}

[[nodiscard]] inline Error too_fast(double wanted_seconds, double least_seconds) {
    return {ErrorKind::budget, "no budget brings a pass to " + milliseconds(wanted_seconds) +
                                   ": with everything resident it takes " + milliseconds(least_seconds)};
}

}  // namespace detail

RESIDENCY_INLINE Result<SpeedBudget> budget_for(Problem problem, double wanted_seconds, const Options& options) {
    const auto ends = chunk_floor(problem);
    if (!ends) { return ends.error(); }
    const std::uint64_t chunk = problem.chunk_bytes;
    const double least = detail::best_seconds(problem, ends->everything_bytes, options.effort);
    if (residency::detail::is_nan(wanted_seconds) || least > wanted_seconds) {
        return detail::too_fast(wanted_seconds, least);
    }
    // Below a budget that is not enough, no budget is.
    std::uint64_t low = ends->floor_bytes / chunk, high = ends->everything_bytes / chunk;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (detail::best_seconds(problem, middle * chunk, options.effort) <= wanted_seconds) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    SpeedBudget found{low * chunk, (std::max)(ends->everything_bytes, ends->floor_bytes), least};
    high = found.sufficient_bytes / chunk;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        problem.budget_bytes = middle * chunk;
        const auto plan = make_plan(problem, options);
        if (!plan) { return plan.error(); }
        if (plan->predicted_seconds() <= wanted_seconds) {
            found.sufficient_bytes = problem.budget_bytes;
            found.planned_seconds = plan->predicted_seconds();
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return found;
}

RESIDENCY_INLINE Result<Advice> advise(Problem problem, std::optional<double> wanted_seconds, const Options& options) {
    using detail::milliseconds;
    using residency::detail::in_bytes;
    const auto ends = chunk_floor(problem);
    if (!ends) { return ends.error(); }
    Advice advice;
    advice.floor_bytes = ends->floor_bytes;
    advice.floor_step = ends->step;
    advice.everything_bytes = (std::max)(ends->everything_bytes, ends->floor_bytes);
    advice.budget_bytes =
        problem.budget_bytes == 0
            ? advice.floor_bytes
            : (std::min)(problem.budget_bytes / problem.chunk_bytes * problem.chunk_bytes, advice.everything_bytes);
    advice.compute_seconds = total_compute(problem);
    advice.bound_seconds = detail::best_seconds(problem, advice.budget_bytes, options.effort);
    const std::string floor =
        "the smallest budget that works is " + in_bytes(advice.floor_bytes) +
        (advice.floor_step == none ? std::string{} : ", for step " + std::to_string(advice.floor_step));
    const double least = detail::best_seconds(problem, advice.everything_bytes, options.effort);
    if (wanted_seconds && (residency::detail::is_nan(*wanted_seconds) || least > *wanted_seconds)) {
        advice.verdict = Verdict::unreachable;
        advice.planned_seconds = advice.bound_seconds;
        advice.text = "offloading will not help here: " + detail::too_fast(*wanted_seconds, least).message();
        return advice;
    }
    if (advice.budget_bytes >= advice.everything_bytes) {
        advice.verdict = Verdict::not_needed;
        advice.bound_seconds = advice.planned_seconds = least;
        advice.text = "offloading will not help here: everything fits, in " + in_bytes(advice.everything_bytes);
        return advice;
    }
    if (advice.budget_bytes < advice.floor_bytes) {
        advice.verdict = Verdict::impossible;
        advice.text = in_bytes(advice.budget_bytes) + " are too few: " + floor;
        if (advice.will_not_help()) {
            advice.text = "offloading will not help here: nothing less than everything works, " +
                          in_bytes(advice.everything_bytes);
        }
        return advice;
    }
    problem.budget_bytes = advice.budget_bytes;
    const auto plan = make_plan(problem, options);
    if (!plan) { return plan.error(); }
    advice.planned_seconds = plan->predicted_seconds();
    advice.bytes_per_pass = plan->bytes_per_pass();
    advice.text = in_bytes(advice.budget_bytes) + ": expect " + milliseconds(advice.planned_seconds) +
                  " per pass, no plan is below " + milliseconds(advice.bound_seconds);
    if (wanted_seconds && advice.bound_seconds > *wanted_seconds) {
        advice.verdict = Verdict::too_slow;
        const auto needed = budget_for(std::move(problem), *wanted_seconds);
        if (!needed) { return needed.error(); }
        advice.text += "; " + milliseconds(*wanted_seconds) + " takes a budget of " +
                       in_bytes(needed->sufficient_bytes) + ", with less than " + in_bytes(needed->necessary_bytes) +
                       " it is impossible";
        return advice;
    }
    advice.verdict = advice.compute_seconds > 0 && advice.planned_seconds <= advice.compute_seconds * 1.01
                         ? Verdict::hidden
                         : Verdict::slower;
    if (advice.verdict == Verdict::hidden) { advice.text += "; the copies hide behind the kernels"; }
    if (advice.verdict == Verdict::slower && advice.compute_seconds > 0) {
        char factor[32];
        std::snprintf(factor, sizeof factor, "%.2f", advice.planned_seconds / advice.compute_seconds);
        advice.text += "; " + std::string{factor} + " times what it takes with everything resident";
    }
    return advice;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
