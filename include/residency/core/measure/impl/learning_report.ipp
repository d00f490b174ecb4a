// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/measure/learning_report.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::string_view to_string(OrderOrigin origin) noexcept {
    switch (origin) {
        case OrderOrigin::none: return "none";
        case OrderOrigin::declared: return "declared";
        case OrderOrigin::guessed: return "guessed";
        case OrderOrigin::learned: return "learned";
    }
    return "?";
}

RESIDENCY_INLINE std::string_view to_string(LearningState state) noexcept {
    switch (state) {
        case LearningState::off: return "off";
        case LearningState::measuring: return "measuring";
        case LearningState::done: return "done";
        case LearningState::gave_up: return "gave up";
    }
    return "?";
}

RESIDENCY_INLINE std::string_view to_string(LearningReason reason) noexcept {
    switch (reason) {
        case LearningReason::none: return "none";
        case LearningReason::not_wanted: return "not_wanted";
        case LearningReason::makes_no_plan: return "makes_no_plan";
        case LearningReason::nothing_streams: return "nothing_streams";
        case LearningReason::captured: return "captured";
        case LearningReason::untimed_steps: return "untimed_steps";
        case LearningReason::no_plan: return "no_plan";
    }
    return "?";
}

RESIDENCY_INLINE std::string describe(const LearningReport& report) {
    std::string text = "order " + std::string{to_string(report.order)} + "; step times: ";
    text += to_string(report.state);
    if (report.reason != LearningReason::none) { text += " (" + std::string{to_string(report.reason)} + ")"; }
    text += ", " + std::to_string(report.timed_steps) + " of " + std::to_string(report.steps) + " steps timed";
    text += "; planned again " + std::to_string(report.replans) + (report.replans == 1 ? " time" : " times");
    if (report.overlapping_steps > 0) {
        text += "; times of " + std::to_string(report.overlapping_steps) +
                (report.overlapping_steps == 1 ? " step is" : " steps are") +
                " not learned: their leases overlap; end each before the next is acquired, or declare what they take";
    }
    if (report.passes_ahead > 0) {
        text += "; the passes that are measured are not complete, " + std::to_string(report.passes_ahead) +
                (report.passes_ahead == 1 ? " pass was" : " passes were") + " enqueued since";
    }
    return text;
}

}}  // namespace residency::RESIDENCY_ABI
