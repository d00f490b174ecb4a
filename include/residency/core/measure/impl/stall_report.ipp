// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <variant>

#include "residency/config.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/report_text.hpp"
#include "residency/core/measure/stall_report.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/bounds.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace core {

namespace detail {

// A pass counts as one without stalls if it takes at most this many times as long as its kernels.
inline constexpr double without_stalls = 1.01;

// A pass follows its plan if it copies at most this many times the bytes of the plan.
inline constexpr double follows_plan = 1.1;

[[nodiscard]] inline std::string ms_of(double seconds) {
    return residency::detail::in_ms(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)});
}

inline constexpr const char* declare_times = "declare what the steps take (ScheduleBuilder)";

// How the plan comes to know what steps take.
[[nodiscard]] inline std::string learn_in_words(const Statistics& statistics) {
    std::string declare{declare_times};
    if (statistics.learning.reason == LearningReason::not_wanted) {
        return declare + ", or let it be learned (Options::learn)";
    }
    if (residency::detail::holds_leases(statistics)) {
        return "leases overlap, so that it is not learned: end each before the next is acquired";
    }
    return declare;
}

// Why a pass did not follow its plan. Empty: it did. The first pass, and one for which a plan was made, bring more.
[[nodiscard]] inline std::string off_plan_in_words(const StallFacts& facts) {
    const Statistics& statistics = facts.statistics;
    const Counters& last = statistics.last_pass;
    if (!facts.pass_bytes || statistics.total.passes < 2 || last.plans_made > 0) { return {}; }
    const auto planned = static_cast<double>(*facts.pass_bytes);
    if (last.demand_misses == 0 && static_cast<double>(last.fetched_bytes) <= planned * follows_plan) { return {}; }
    std::string text = "the last pass copied " + residency::detail::in_units(last.fetched_bytes) + ", the plan needs " +
                       residency::detail::in_units(*facts.pass_bytes) + "; " + std::to_string(last.demand_misses) +
                       (last.demand_misses == 1 ? " demand miss: " : " demand misses: ");
    if (!residency::detail::holds_leases(statistics)) {
        return text + (last.divergences > 0 ? "it came out of the order of the schedule"
                                            : "passes after a change bring what it lacks; if it goes on, look for "
                                              "weights that are acquired in parts, or outside their step");
    }
    text += "a lease that stays open over later steps stops the plan's copies: end each lease after its last kernel";
    const HeldLease& held = statistics.held_lease;
    if (held.storage == no_storage) { return text; }
    const std::string until = std::to_string(held.until);
    text += "; the lease of " + facts.catalog->describe(held.storage) + " (step " + std::to_string(held.step) +
            ") was open until step " + until;
    // Where the steps between have it already, the lease has more in it.
    const auto has_it = [&](std::uint32_t step) {
        const auto storages = facts.schedule->storages(step);
        return std::find(storages.begin(), storages.end(), held.storage) != storages.end();
    };
    bool is_declared = held.until < facts.schedule->size();
    for (std::uint32_t step = held.step; is_declared && step <= held.until; ++step) { is_declared = has_it(step); }
    return text + (is_declared ? "; lease it apart from what is read in fewer steps"
                               : "; if it is read that long, declare it (ScheduleBuilder::live_until, " + until +
                                     "): the plan then keeps it, and the lease costs nothing");
}

// The plan still assumes step times while the real ones are being measured: its predictions say nothing yet.
[[nodiscard]] inline bool is_still_measuring(const StallFacts& facts) {
    const auto steps = facts.schedule->steps();
    return facts.problem && facts.statistics.learning.state == LearningState::measuring &&
           std::any_of(steps.begin(), steps.end(), [](const auto& step) { return !step.compute; });
}

// Says that the planned times of the steps add up to more than the pass took. Empty: they do not.
[[nodiscard]] inline std::string too_long_in_words(const StallFacts& facts) {
    const Statistics& statistics = facts.statistics;
    if (!facts.problem || !statistics.pass_time) { return {}; }
    double planned = 0;
    const std::uint32_t steps = (std::min)(statistics.pass_steps, facts.problem->steps());
    for (std::uint32_t step = 0; step < steps; ++step) { planned += facts.problem->compute(step); }
    const double ran = std::chrono::duration<double>(*statistics.pass_time).count();
    if (planned <= ran * without_stalls) { return {}; }
    return "declared times are too long: the plan counts with " + ms_of(planned) + " of steps, and the pass takes " +
           ms_of(ran) + ", so that the bound computed from them says nothing; " + learn_in_words(statistics);
}

// Says of stalls what removes them.
class StallAdvisor {
public:
    StallAdvisor(const StallFacts& facts, bool is_off_plan) : facts_{&facts}, is_off_plan_{is_off_plan} {}

    // Appends to the text, and sets more_bytes.
    [[nodiscard]] Status advise(StallAdvice& advice);

private:
    using SpeedBudget = Result<plan::SpeedBudget>;

    // By the planner: the budget with which a pass takes as long as its kernels.
    [[nodiscard]] Status advise_budget(StallAdvice& advice);
    // Without a plan: from some budget on nothing leaves.
    void advise_all(StallAdvice& advice) const;

    const StallFacts* facts_;
    bool is_off_plan_ = false;
    std::optional<SpeedBudget> speed_;  // searched once
};

RESIDENCY_INLINE Status StallAdvisor::advise_budget(StallAdvice& advice) {
    using residency::detail::in_units;
    if (is_off_plan_) {
        advice.text += "the pass does not follow its plan; mend that first, then look here again";
        return {};
    }
    if (is_still_measuring(*facts_)) {
        advice.text += "what the steps take is still being measured; look again once it is known";
        return {};
    }
    const double compute = plan::total_compute(*facts_->problem);
    if (!speed_) { speed_.emplace(plan::budget_for(*facts_->problem, compute * without_stalls)); }
    const SpeedBudget& found = *speed_;
    if (!found) {
        if (found.error().kind() != ErrorKind::budget) { return found.error(); }
        advice.text += "no budget removes it: " + found.error().message();
        return {};
    }
    const std::uint64_t now = facts_->statistics.budget_bytes;
    if (found->sufficient_bytes <= now) {
        advice.text += "by the step times that the plan assumes, this budget is enough for " +
                       ms_of(found->planned_seconds) + " per pass: they are not what the steps take; " +
                       learn_in_words(facts_->statistics);
        return {};
    }
    advice.more_bytes = found->sufficient_bytes - now;
    advice.text += in_units(*advice.more_bytes) + " more budget removes it: at " + in_units(found->sufficient_bytes) +
                   " a pass is planned to take " + ms_of(found->planned_seconds) + ", its kernels " + ms_of(compute);
    if (found->necessary_bytes > now) {
        advice.text += "; below " + in_units(found->necessary_bytes) + " no plan of copies is that fast";
    }
    return {};
}

RESIDENCY_INLINE void StallAdvisor::advise_all(StallAdvice& advice) const {
    using residency::detail::in_units;
    const std::uint64_t all = facts_->budget.resident_from_bytes, now = facts_->statistics.budget_bytes;
    if (all <= now) { return; }
    advice.more_bytes = all - now;
    advice.text += "; with " + in_units(*advice.more_bytes) + " more budget everything stays, and nothing stalls";
    const std::uint64_t weights = facts_->catalog->streamed_bytes() + facts_->catalog->resident_bytes();
    if (all > weights + weights / 8) {
        advice.text += " (" + in_units(all) + " for weights of " + in_units(weights) +
                       ": the pool may leave so much unused between them; pool::Slab for equal sizes and Planned take "
                       "less)";
    }
}

RESIDENCY_INLINE Status StallAdvisor::advise(StallAdvice& advice) {
    const bool is_planned = facts_->problem.has_value();
    const Counters& last = facts_->statistics.last_pass;
    switch (advice.cause) {
        case StallCause::link:
            advice.text += "the link was busy all the time: ";
            if (is_planned) { return advise_budget(advice); }
            advice.text += "fewer bytes (another evictor, packed weights) or a faster link";
            advise_all(advice);
            return {};
        case StallCause::room:
            advice.text += "the link stood idle until memory was free: ";
            if (is_planned) { return advise_budget(advice); }
            advice.text += "end leases sooner, or split large steps";
            advise_all(advice);
            return {};
        case StallCause::issued_late:
            advice.text += "the link stood idle with nothing to copy: ";
            advice.text += is_planned
                               ? "end leases as soon as their kernels are launched, and wait on the host once per pass"
                               : "look further ahead (prefetch::Lookahead, prefetch::Scheduled), or wait on the host "
                                 "less often";
            return {};
        case StallCause::declared_time:
            advice.text += "steps took less time than the plan assumes: " + learn_in_words(facts_->statistics);
            return {};
        case StallCause::evicted:
            advice.text += std::to_string(last.capacity_misses) +
                           " capacity misses in the last pass: take Planned if the order is known, or another evictor "
                           "(residency-lab compares them)";
            advise_all(advice);
            return {};
        case StallCause::unpredicted:
            advice.text += "nothing announced them: ";
            advice.text += last.divergences > 0 ? "they came out of the order of the schedule"
                                                : "record the order (Options::record) and set it as the schedule, or "
                                                  "give hints";
            return {};
    }
    return {};
}

// Which compute times the plan assumes, why, and what to do. Empty: none.
[[nodiscard]] inline std::string times_in_words(const StallFacts& facts) {
    if (!facts.problem) { return {}; }
    const LearningReport& learning = facts.statistics.learning;
    const auto steps = facts.schedule->steps();
    const auto assumed = std::count_if(steps.begin(), steps.end(), [](const auto& step) { return !step.compute; });
    const bool is_measuring = learning.state == LearningState::measuring;
    const bool is_overlapping = learning.overlapping_steps > 0;
    if (learning.reason == LearningReason::nothing_streams || (assumed == 0 && !is_measuring && !is_overlapping)) {
        return {};
    }
    std::string text = "times of ";
    const std::string of = std::to_string(steps.size()) + (steps.size() == 1 ? " step" : " steps");
    if (assumed > 0) {
        text += std::to_string(assumed) + " of " + of + " are assumed from their bytes: ";
    } else {
        text += of + " are as they were declared: ";
    }
    if (is_overlapping) {
        text += std::to_string(learning.overlapping_steps);
        text += learning.overlapping_steps == 1 ? " is" : " are";
        text += " not learned, since leases overlap: end each before the next is acquired";
        if (learning.reason == LearningReason::none || learning.reason == LearningReason::untimed_steps) {
            return text;
        }
        text += "; ";
    }
    const std::string declare{declare_times};
    switch (learning.reason) {
        case LearningReason::none:
            text += "they are being measured, " + std::to_string(learning.timed_steps) + " so far; ";
            text += learning.passes_ahead > 0
                        ? "the passes that are measured are not complete: they are read as soon as they are"
                        : "let more passes go by, and drain() after each, before you judge the plan";
            break;
        case LearningReason::not_wanted: text += "set Options::learn, or " + declare; break;
        case LearningReason::makes_no_plan: text += "the plan was given, and is kept"; break;
        case LearningReason::captured:
            text += "a pass was captured before they were measured; capture after some passes, or " + declare;
            break;
        case LearningReason::untimed_steps: text += "they could not be measured; " + declare; break;
        case LearningReason::no_plan: text += "there is no plan for what was measured; " + declare; break;
        case LearningReason::nothing_streams: break;
    }
    return text;
}

// That bytes travel from memory which is not pinned.
[[nodiscard]] inline std::string pageable_in_words(const StallFacts& facts) {
    if (!facts.copies_host_memory || !facts.statistics.streaming) { return {}; }
    std::uint64_t bytes = 0;
    for (const Storage& storage : facts.catalog->storages()) {
        const auto* source = std::get_if<HostSource>(&storage.source);
        const bool is_pageable = source != nullptr && source->host->kind() == HostMemory::pageable;
        if (is_pageable && storage.placement == Placement::streamed) { bytes += storage.bytes; }
    }
    if (bytes == 0) { return {}; }
    return residency::detail::in_bytes(bytes) +
           " lie in host memory that is not pinned, from which copies take several times as long and may block the "
           "host: load with host::load, whose report says why memory is not pinned, or use transport::Staged";
}

// That nothing is packed where weights are to travel packed.
[[nodiscard]] inline std::string unpacked_in_words(const StallFacts& facts) {
    if (!facts.is_for_packed || !facts.statistics.streaming) { return {}; }
    for (const Storage& storage : facts.catalog->storages()) {
        if (std::holds_alternative<PackedHostSource>(storage.source)) { return {}; }
    }
    return "no weight of the catalog is packed, so that raw bytes stream and nothing is gained over Planned or "
           "Experts: give "
           "the catalog of packed::pack or packed::load (PackedModel::catalog), whose kept_raw says what stays raw and "
           "why";
}

}  // namespace detail

RESIDENCY_INLINE Result<StallReport> report_stalls(const StallFacts& facts) {
    StallReport report;
    report.off_plan = detail::off_plan_in_words(facts);
    const bool holds_leases = residency::detail::holds_leases(facts.statistics);
    const bool diverging_costs = !report.off_plan.empty() || facts.statistics.last_pass.demand_misses > 0;
    report.divergences = residency::detail::divergences_in_words(facts.statistics, diverging_costs, holds_leases);
    report.divergences_first = !report.divergences.empty() && diverging_costs && !holds_leases;
    report.pageable = detail::pageable_in_words(facts);
    report.unpacked = detail::unpacked_in_words(facts);
    report.too_long = detail::too_long_in_words(facts);
    report.times = detail::times_in_words(facts);
    report.times_first = !report.times.empty() && detail::is_still_measuring(facts);
    report.timed_passes = facts.statistics.stalls.passes;
    detail::StallAdvisor advisor{facts, !report.off_plan.empty()};
    const Stalls& pass = facts.statistics.stalls.last_pass;
    for (std::size_t i = 0; i < stall_causes; ++i) {
        if (pass.by_cause[i] == StallTime{}) { continue; }
        StallAdvice advice;
        advice.cause = static_cast<StallCause>(i);
        advice.stalls = pass.by_cause[i];
        std::chrono::nanoseconds longest{};
        for (std::uint32_t step = 0; step < facts.steps.size(); ++step) {
            const auto time = facts.steps[step].by_cause[i].time;
            if (time > longest) { advice.worst_step = step; }
            longest = (std::max)(longest, time);
        }
        advice.text = std::string{to_string(advice.cause)} + ": " + residency::detail::in_ms(advice.stalls.time) +
                      " per pass in " + std::to_string(advice.stalls.stalls) +
                      (advice.stalls.stalls == 1 ? " stall" : " stalls");
        if (advice.worst_step < facts.schedule->size()) {
            advice.text += ", the longest at " +
                           residency::detail::step_in_words(*facts.schedule, *facts.catalog, advice.worst_step);
        }
        advice.text += "; ";
        if (auto advised = advisor.advise(advice); !advised) { return advised.error(); }
        report.advice.push_back(std::move(advice));
    }
    residency::detail::sort(report.advice, [](const StallAdvice& a, const StallAdvice& b) {
        return a.stalls.time != b.stalls.time ? a.stalls.time > b.stalls.time : a.cause < b.cause;
    });
    return report;
}

}  // namespace core

RESIDENCY_INLINE std::vector<std::string> StallReport::lines() const {
    std::vector<std::string> lines;
    lines.reserve(8 + advice.size());
    if (times_first) { lines.push_back(times); }
    if (divergences_first) { lines.push_back(divergences); }
    if (!off_plan.empty()) { lines.push_back(off_plan); }
    if (timed_passes == 0) {
        lines.emplace_back("no pass was timed: set Options::time_stalls, and drain after some eager passes");
    } else if (advice.empty()) {
        lines.emplace_back("no step waited for bytes in the last pass that was timed");
    }
    for (const StallAdvice& each : advice) { lines.push_back(each.text); }
    if (!pageable.empty()) { lines.push_back(pageable); }
    if (!unpacked.empty()) { lines.push_back(unpacked); }
    if (!idle.empty()) { lines.push_back(idle); }
    if (!divergences.empty() && !divergences_first) { lines.push_back(divergences); }
    if (!too_long.empty()) { lines.push_back(too_long); }
    if (!times.empty() && !times_first) { lines.push_back(times); }
    return lines;
}

RESIDENCY_INLINE std::string StallReport::text() const {
    std::string text;
    for (const std::string& line : lines()) { text += line + "\n"; }
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
