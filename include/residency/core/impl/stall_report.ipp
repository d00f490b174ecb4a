// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "residency/config.hpp"
#include "residency/core/stall_report.hpp"
#include "residency/error.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/bounds.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace core {

namespace detail {

[[nodiscard]] inline std::string to_ms(std::chrono::nanoseconds time) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(time.count()) / 1e6);
    return text;
}
[[nodiscard]] inline std::string to_ms(double seconds) {
    return to_ms(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)});
}
[[nodiscard]] inline std::string to_size(std::uint64_t bytes) {
    char text[32];
    const auto value = static_cast<double>(bytes);
    if (bytes >= std::uint64_t{1} << 30U) {
        std::snprintf(text, sizeof text, "%.2f GiB", value / (1 << 30));
    } else if (bytes >= std::uint64_t{1} << 20U) {
        std::snprintf(text, sizeof text, "%.1f MiB", value / (1 << 20));
    } else {
        std::snprintf(text, sizeof text, "%.1f KiB", value / (1 << 10));
    }
    return text;
}

// A pass that is so much longer than its kernels counts as one without stalls.
inline constexpr double without_stalls = 1.01;

// By the planner: the budget with which a pass takes as long as its kernels. Sets more_bytes, and says so.
[[nodiscard]] inline Status advise_budget(const StallFacts& facts, StallAdvice& advice) {
    const double compute = plan::total_compute(*facts.problem);
    const auto found = plan::budget_for(*facts.problem, compute * without_stalls);
    if (!found) {
        if (found.error().kind() != ErrorKind::budget) { return found.error(); }
        advice.text += "no budget removes it: " + found.error().message();
        return {};
    }
    const std::uint64_t now = facts.statistics.budget_bytes;
    if (found->sufficient_bytes <= now) {
        advice.text += "by the step times that the plan assumes, this budget is enough for " +
                       to_ms(found->planned_seconds) +
                       " per pass: they are not what the steps take; let them be learned "
                       "(Options::learn), or end each lease before the next";
        return {};
    }
    advice.more_bytes = found->sufficient_bytes - now;
    advice.text += to_size(*advice.more_bytes) + " more budget removes it: at " + to_size(found->sufficient_bytes) +
                   " a pass is planned to take " + to_ms(found->planned_seconds) + ", its kernels " + to_ms(compute);
    if (found->necessary_bytes > now) {
        advice.text += "; below " + to_size(found->necessary_bytes) + " no plan of copies is that fast";
    }
    return {};
}

// Without a plan: from some budget on nothing leaves.
inline void advise_all(const StallFacts& facts, StallAdvice& advice) {
    if (facts.budget.resident_from_bytes <= facts.statistics.budget_bytes) { return; }
    advice.more_bytes = facts.budget.resident_from_bytes - facts.statistics.budget_bytes;
    advice.text += "; with " + to_size(*advice.more_bytes) + " more budget everything stays, and nothing stalls";
}

[[nodiscard]] inline Status advise(const StallFacts& facts, StallAdvice& advice) {
    const bool is_planned = facts.problem.has_value();
    switch (advice.cause) {
        case StallCause::link:
            advice.text += "the link was busy all the time: ";
            if (is_planned) { return advise_budget(facts, advice); }
            advice.text += "fewer bytes (another evictor, packed weights) or a faster link";
            advise_all(facts, advice);
            return {};
        case StallCause::room:
            advice.text += "the link stood idle until memory was free: ";
            if (is_planned) { return advise_budget(facts, advice); }
            advice.text += "end leases sooner, or split large steps";
            advise_all(facts, advice);
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
            advice.text += std::to_string(facts.statistics.last_pass.capacity_misses) +
                           " capacity misses in the last pass: take Planned if the order is known, or another evictor "
                           "(residency-lab compares them)";
            advise_all(facts, advice);
            return {};
        case StallCause::unpredicted:
            advice.text += "nothing announced them: " + std::to_string(facts.statistics.last_pass.divergences) +
                           " divergences in the last pass; record the order (Options::record) and set it as the "
                           "schedule, or give hints";
            return {};
    }
    return {};
}

}  // namespace detail

RESIDENCY_INLINE Result<StallReport> report_stalls(const StallFacts& facts) {
    StallReport report;
    report.timed_passes = facts.statistics.stalls.passes;
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
        advice.text = std::string{to_string(advice.cause)} + ": " + detail::to_ms(advice.stalls.time) +
                      " per pass in " + std::to_string(advice.stalls.stalls) +
                      (advice.stalls.stalls == 1 ? " stall" : " stalls");
        if (advice.worst_step < facts.schedule->size()) {
            const std::string name{(*facts.schedule)[advice.worst_step].name};
            advice.text +=
                ", the longest at step " + std::to_string(advice.worst_step) + (name.empty() ? "" : " (" + name + ")");
        }
        advice.text += "; ";
        if (auto advised = detail::advise(facts, advice); !advised) { return advised.error(); }
        report.advice.push_back(std::move(advice));
    }
    residency::detail::sort(report.advice, [](const StallAdvice& a, const StallAdvice& b) {
        return a.stalls.time != b.stalls.time ? a.stalls.time > b.stalls.time : a.cause < b.cause;
    });
    return report;
}

}  // namespace core

RESIDENCY_INLINE std::string StallReport::text() const {
    if (timed_passes == 0) {
        return "no pass was timed: set Options::time_stalls, and drain after some eager passes\n";
    }
    if (advice.empty()) { return "no step waited for bytes in the last pass that was timed\n"; }
    std::string text;
    for (const StallAdvice& each : advice) { text += each.text + "\n"; }
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
