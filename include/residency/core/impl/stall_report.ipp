// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/learning_report.hpp"
#include "residency/core/report_text.hpp"
#include "residency/core/stall_report.hpp"
#include "residency/error.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/bounds.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace core {

namespace detail {

// A pass that is so much longer than its kernels counts as one without stalls.
inline constexpr double without_stalls = 1.01;

// Says of stalls what removes them.
class StallAdvisor {
public:
    explicit StallAdvisor(const StallFacts& facts) : facts_{&facts} {}

    // Appends to the text, and sets more_bytes.
    [[nodiscard]] Status advise(StallAdvice& advice);

private:
    using SpeedBudget = Result<plan::SpeedBudget>;

    // By the planner: the budget with which a pass takes as long as its kernels.
    [[nodiscard]] Status advise_budget(StallAdvice& advice);
    // Without a plan: from some budget on nothing leaves.
    void advise_all(StallAdvice& advice) const;

    const StallFacts* facts_;
    std::optional<SpeedBudget> speed_;  // searched once
};

RESIDENCY_INLINE Status StallAdvisor::advise_budget(StallAdvice& advice) {
    using residency::detail::in_ms, residency::detail::in_units;
    const auto to_time = [](double seconds) {
        return in_ms(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)});
    };
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
                       to_time(found->planned_seconds) +
                       " per pass: they are not what the steps take; let them be learned "
                       "(Options::learn), or end each lease before the next";
        return {};
    }
    advice.more_bytes = found->sufficient_bytes - now;
    advice.text += in_units(*advice.more_bytes) + " more budget removes it: at " + in_units(found->sufficient_bytes) +
                   " a pass is planned to take " + to_time(found->planned_seconds) + ", its kernels " +
                   to_time(compute);
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
            advice.text +=
                "steps took less time than the plan assumes: declare what they take, or let it be learned "
                "(Options::learn)";
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
    if (learning.reason == LearningReason::nothing_streams || (assumed == 0 && !is_measuring)) { return {}; }
    std::string text = "times of ";
    const std::string of = std::to_string(steps.size()) + (steps.size() == 1 ? " step" : " steps");
    if (assumed > 0) {
        text += std::to_string(assumed) + " of " + of + " are assumed from their bytes: ";
    } else {
        text += of + " are as they were declared: ";
    }
    const std::string declare = "declare what the steps take (ScheduleBuilder)";
    switch (learning.reason) {
        case LearningReason::none:
            text += "they are being measured, " + std::to_string(learning.timed_steps) + " so far; ";
            text += learning.passes_ahead > 0
                        ? "the measured pass is not complete: call drain(), or wait for the "
                          "stream, once in a while"
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
    if (learning.overlapping_steps > 0) {
        text += "; times of " + std::to_string(learning.overlapping_steps) +
                (learning.overlapping_steps == 1 ? " step is" : " steps are") +
                " not learned: their leases overlap; end each before the next is acquired";
    }
    return text;
}

}  // namespace detail

RESIDENCY_INLINE Result<StallReport> report_stalls(const StallFacts& facts) {
    StallReport report;
    report.divergences = residency::detail::divergences_in_words(facts.statistics);
    report.times = detail::times_in_words(facts);
    report.timed_passes = facts.statistics.stalls.passes;
    detail::StallAdvisor advisor{facts};
    const Stalls& pass = facts.statistics.stalls.last_pass;
    for (std::size_t i = 0; i < stall_causes; ++i) {
        if (pass.by_cause[i].stalls == 0) { continue; }
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
    lines.reserve(3 + advice.size());
    if (!divergences.empty()) { lines.push_back(divergences); }
    if (timed_passes == 0) {
        lines.emplace_back("no pass was timed: set Options::time_stalls, and drain after some eager passes");
    } else if (advice.empty()) {
        lines.emplace_back("no step waited for bytes in the last pass that was timed");
    }
    for (const StallAdvice& each : advice) { lines.push_back(each.text); }
    if (!times.empty()) { lines.push_back(times); }
    return lines;
}

RESIDENCY_INLINE std::string StallReport::text() const {
    std::string text;
    for (const std::string& line : lines()) { text += line + "\n"; }
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
