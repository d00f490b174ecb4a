// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/core/statistics.hpp"
#include "residency/interop/aoti.hpp"

namespace compiled {

/// A step on a timeline: its number, and the modules that its kernels came from.
[[nodiscard]] inline std::string step_text(const residency::aoti::StepEvent& event) {
    if (!event.step) { return {}; }
    const std::string& module = event.method->steps[*event.step].module;
    return std::to_string(*event.step) + (module.empty() ? "" : " " + module);
}
/// The kernels of a step, as the compiler named them.
[[nodiscard]] inline std::string kernels_text(const residency::aoti::StepEvent& event) {
    if (!event.step) { return "no weights"; }
    const std::string& kernels = event.method->steps[*event.step].kernels;
    return kernels.empty() ? event.method->name : kernels;
}

}  // namespace compiled
