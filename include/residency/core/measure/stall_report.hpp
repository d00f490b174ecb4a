// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/fwd.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/problem.hpp"

// What to change so that a Residency waits less. Needs Options::time_stalls.

namespace residency { inline namespace RESIDENCY_ABI {

/// The stalls of one cause, and what would remove them.
struct StallAdvice {
    StallCause cause = StallCause::link;    ///< of the stalls
    StallTime stalls;                       ///< in the last pass that was timed and is complete
    std::uint32_t worst_step = UINT32_MAX;  ///< of the schedule, the one that waited longest; UINT32_MAX: no step
    /// So many device bytes more remove them: by the planner where there is a plan, otherwise what lets everything stay. Unset: no budget
    /// is known to.
    std::optional<std::uint64_t> more_bytes;
    std::string text;  ///< one line: what was measured, and what to change
};

/// What to change, the cause with the longest time first. No advice where nothing stalled.
struct StallReport {
    /// For a planned composition whose last pass missed, or copied clearly more than the plan does: both figures, and why. Empty: the pass
    /// followed the plan.
    std::string off_plan;
    /// About leases that came out of the order of the schedule, in the last pass. Empty: there were none.
    std::string divergences;
    bool times_first = false;         ///< the steps are still being measured: what else is said here is not certain
    bool divergences_first = false;   ///< they cost something, and what follows may come from them
    std::vector<StallAdvice> advice;  ///< each cause once
    /// Of weights that stream from host memory which is not pinned, by a transport that copies straight from there. Empty: there are none.
    std::string pageable;
    /// That raw weights stream in a composition for packed ones, since none is packed. Empty: it is not so.
    std::string unpacked;
    /// How long the device ran nothing between steps in the last pass of a timeline, since the host did not submit in time. Empty: not
    /// long, or there was no timeline.
    std::string idle;
    /// Says of a planned composition that its step times add up to more than the pass took. Empty: they do not.
    std::string too_long;
    /// For a planned composition: which compute times of the plan were neither declared nor measured, or cannot be, why, and what to do.
    /// Empty: there are none.
    std::string times;
    std::uint64_t timed_passes = 0;  ///< that it is based on the last of

    /// A sentence each: divergences where they come first, off_plan, each cause (or one that says that nothing stalled or nothing was
    /// timed), pageable, unpacked, idle, other divergences, too_long, times.
    [[nodiscard]] RESIDENCY_INLINE std::vector<std::string> lines() const;
    /// These lines, each with its end.
    [[nodiscard]] RESIDENCY_INLINE std::string text() const;
};

namespace core {

/// What a report is made from.
struct StallFacts {
    Statistics statistics;
    ResolvedBudget budget;
    std::span<const Stalls> steps;
    const Schedule* schedule = nullptr;
    const Catalog* catalog = nullptr;
    std::optional<plan::Problem> problem;     ///< unset: there is no plan
    std::optional<std::uint64_t> pass_bytes;  ///< that a pass of a cyclic plan copies; unset: there is none
    bool is_for_packed = false;               ///< the composition is one for packed weights
    bool copies_host_memory = false;          ///< the transport is Pinned: calls read the host's memory where it lies
};
[[nodiscard]] RESIDENCY_INLINE Result<StallReport> report_stalls(const StallFacts& facts);

}  // namespace core

/// What the stalls of the last timed pass say, and what to change. For a planned composition the budget is searched with the planner, for
/// the step times that the plan in force assumes: about log2(chunks) plans, of some milliseconds each. For an online one it is what lets
/// everything stay. `weights`: a Residency made with Options::time_stalls, after some passes. Errors: those of plan::budget_for for a
/// malformed problem.
template <class Weights>
[[nodiscard]] Result<StallReport> try_report_stalls(const Weights& weights) {
    core::StallFacts facts{
        weights.statistics(), weights.budget(), weights.step_stalls(), &weights.schedule(), &weights.catalog(), {}, {}};
    if constexpr (requires { weights.problem(); }) {
        facts.problem = weights.problem();
        if (weights.plan().is_cyclic()) { facts.pass_bytes = weights.plan().bytes_per_pass(); }
    }
    facts.is_for_packed = requires(typename Weights::Options options) { options.policies.unpacker; };
    facts.copies_host_memory =
        std::is_same_v<typename Weights::TransportPolicy, transport::Pinned<typename Weights::Device>>;
    return core::report_stalls(facts);
}
/// As above, with StallReport::idle from `timeline`, a TimelineRecorder's that saw the last passes.
template <class Weights, class Timeline>
    requires requires(const Timeline& timeline) {
        { timeline.idle_in_words() } -> std::convertible_to<std::string>;
    }
[[nodiscard]] Result<StallReport> try_report_stalls(const Weights& weights, const Timeline& timeline) {
    auto report = try_report_stalls(weights);
    if (report) { report->idle = timeline.idle_in_words(); }
    return report;
}
#if RESIDENCY_EXCEPTIONS
/// As try_report_stalls(), but throw Exception.
/// @{
template <class Weights>
[[nodiscard]] StallReport report_stalls(const Weights& weights) {
    return unwrap(try_report_stalls(weights));
}
template <class Weights, class Timeline>
[[nodiscard]] StallReport report_stalls(const Weights& weights, const Timeline& timeline) {
    return unwrap(try_report_stalls(weights, timeline));
}
/// @}
#endif

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/stall_report.ipp"
#endif
