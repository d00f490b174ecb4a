// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// How a pass that streams compares with one that does not, at one budget.
enum class Verdict : std::uint8_t {
    not_needed,   ///< everything fits: streaming does not help
    impossible,   ///< the budget is below the floor
    unreachable,  ///< even with everything resident a pass is slower than wanted: streaming does not help
    too_slow,     ///< no plan reaches the wanted speed at this budget
    hidden,       ///< the copies hide behind the kernels: a pass is at most 1 % slower than with everything resident
    slower,       ///< a pass waits for the link
};

/// The best case, before running. Bytes are in whole chunks, as pool::Virtual holds them; seconds are per pass.
struct Advice {
    Verdict verdict = Verdict::slower;  ///< how the pass compares
    std::uint64_t budget_bytes =
        0;  ///< what the advice is for: rounded down, at most everything_bytes; the floor where 0 was asked
    std::uint64_t floor_bytes = 0;       ///< the smallest budget that works
    std::uint32_t floor_step = none;     ///< the step that sets it; none: what stays sets it
    std::uint64_t everything_bytes = 0;  ///< with a budget of so much nothing streams
    std::uint64_t bytes_per_pass = 0;    ///< over the link, in the plan
    double compute_seconds = 0;          ///< the kernels alone; 0: unknown
    double bound_seconds = 0;            ///< no plan of copies is faster
    double planned_seconds = 0;          ///< what the plan takes
    std::string text;                    ///< one line: what to do, with the numbers

    /// Whether offloading is of no use for this problem: it is not needed, no smaller budget works, or it is never fast enough.
    [[nodiscard]] bool will_not_help() const noexcept {
        return verdict == Verdict::not_needed || verdict == Verdict::unreachable || floor_bytes >= everything_bytes;
    }
};

/// Budgets for a wanted speed.
struct SpeedBudget {
    std::uint64_t necessary_bytes = 0;   ///< below it no plan of copies is fast enough, by the bound
    std::uint64_t sufficient_bytes = 0;  ///< with so much the planner's plan is fast enough
    double planned_seconds = 0;          ///< per pass, of that plan
};

/// The smallest budgets with which a pass takes no longer than `wanted_seconds`. Makes about log2(chunks) plans, of some milliseconds
/// each. Errors: those of make_plan for a malformed problem; budget, where no budget is enough.
[[nodiscard]] RESIDENCY_INLINE Result<SpeedBudget> budget_for(Problem problem, double wanted_seconds,
                                                              const Options& options = {.effort = Effort::quick});

/// What to expect at problem.budget_bytes, and whether a pass can take no longer than `wanted_seconds` there. A budget below the floor
/// is a verdict, not an error. Errors: those of make_plan for a malformed problem.
[[nodiscard]] RESIDENCY_INLINE Result<Advice> advise(Problem problem,
                                                     std::optional<double> wanted_seconds = std::nullopt,
                                                     const Options& options = {});

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/advice.ipp"
#endif
