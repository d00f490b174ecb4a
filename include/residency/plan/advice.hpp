// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "residency/error.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// What streaming comes to at a budget.
enum class Verdict : std::uint8_t {
    not_needed,   ///< everything fits: streaming does not help here
    impossible,   ///< the budget is below the floor
    unreachable,  ///< the wanted speed is beyond the kernels themselves: streaming does not help here
    too_slow,     ///< no plan reaches the wanted speed at this budget
    hidden,       ///< the copies hide behind the kernels: as fast as if everything were resident
    slower,       ///< a pass waits for the link
};

/// The best case, before running. Bytes in whole chunks, as pool::Virtual holds them; seconds of a pass.
struct Advice {
    Verdict verdict = Verdict::slower;
    std::uint64_t budget_bytes =
        0;  ///< that the advice is for, rounded down, clamped to everything_bytes; asked 0: the floor
    std::uint64_t floor_bytes = 0;       ///< the smallest budget that works
    std::uint32_t floor_step = none;     ///< the step that sets it, if one does
    std::uint64_t everything_bytes = 0;  ///< with so much, nothing streams
    std::uint64_t bytes_per_pass = 0;    ///< over the link, in the plan
    double compute_seconds = 0;          ///< the kernels alone; 0: unknown
    double bound_seconds = 0;            ///< no plan of copies beats this
    double planned_seconds = 0;          ///< to expect: what the plan comes to
    std::string text;                    ///< one line: what to do, with the numbers

    /// Whether offloading is of no use at this problem: not needed, without any smaller budget that works, or never fast enough.
    [[nodiscard]] bool will_not_help() const noexcept {
        return verdict == Verdict::not_needed || verdict == Verdict::unreachable || floor_bytes >= everything_bytes;
    }
};

/// Budgets for a wanted speed.
struct SpeedBudget {
    std::uint64_t necessary_bytes = 0;   ///< below that no plan of copies is fast enough, by the bound
    std::uint64_t sufficient_bytes = 0;  ///< with so much the planner's plan is
    double planned_seconds = 0;          ///< of that plan
};

namespace detail {

/// What no plan of copies beats at a budget. Seconds.
[[nodiscard]] inline double best_seconds(const Problem& problem, std::uint64_t budget_bytes, Effort effort) {
    return (std::max)(total_compute(problem), exact_bound(problem, budget_bytes, tuning::flow_bound_steps(effort)));
}
[[nodiscard]] inline std::string milliseconds(double seconds) {
    char text[48];
    std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
    return text;
}
[[nodiscard]] inline std::string in_bytes(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

[[nodiscard]] inline Error too_fast(double wanted_seconds, double least_seconds) {
    return {ErrorKind::budget, "no budget brings a pass to " + milliseconds(wanted_seconds) +
                                   ": with everything resident it takes " + milliseconds(least_seconds)};
}

}  // namespace detail

/// The smallest budgets with which a pass takes no longer than `wanted_seconds`. Makes a plan for each halving of the range, of some
/// milliseconds each. Errors: those of make_plan for a malformed problem; budget, where no budget is enough.
[[nodiscard]] inline Result<SpeedBudget> budget_for(Problem problem, double wanted_seconds,
                                                    const Options& options = {.effort = Effort::quick}) {
    const auto ends = chunk_floor(problem);
    if (!ends) { return ends.error(); }
    const std::uint64_t chunk = problem.chunk_bytes;
    const double least = detail::best_seconds(problem, ends->everything_bytes, options.effort);
    if (!(least <= wanted_seconds)) { return detail::too_fast(wanted_seconds, least); }
    // A budget below one that cannot do cannot do either.
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

/// What to expect at problem.budget_bytes, and whether a pass can take no longer than `wanted_seconds` there. A budget below the floor
/// is a verdict, not an error. Errors: those of make_plan for a malformed problem.
[[nodiscard]] inline Result<Advice> advise(Problem problem, std::optional<double> wanted_seconds = std::nullopt,
                                           const Options& options = {}) {
    using detail::in_bytes;
    using detail::milliseconds;
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
    if (wanted_seconds && !(least <= *wanted_seconds)) {
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
                  " a pass, no plan is below " + milliseconds(advice.bound_seconds);
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
