// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"

// Words of the reports that people read: the stall report and the page of a run.

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Such as "1.250 ms".
[[nodiscard]] inline std::string in_ms(std::chrono::nanoseconds time) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(time.count()) / 1e6);
    return text;
}
/// Such as "1.5 KiB" or "2.00 GiB", in the largest unit of which there is at least one.
[[nodiscard]] inline std::string in_units(std::uint64_t bytes) {
    if (bytes < 1024) { return std::to_string(bytes) + " B"; }
    constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    for (; value >= 1024 && unit < 3; ++unit) { value /= 1024; }
    char text[32];
    std::snprintf(text, sizeof text, unit < 2 ? "%.1f %s" : "%.2f %s", value, units[unit]);
    return text;
}

/// A step for people: "step 9 (layer 9; layer9.q and 3 others)". Its name where it has one, and the first of its weights.
[[nodiscard]] inline std::string step_in_words(const Schedule& schedule, const Catalog& catalog, std::uint32_t step) {
    std::string text = "step " + std::to_string(step);
    const Schedule::Step& of = schedule[step];
    std::string more{of.name};
    if (!of.weights.empty()) {
        more += (more.empty() ? "" : "; ") + std::string{catalog.weight(of.weights.front()).name};
        const std::size_t others = of.weights.size() - 1;
        if (others > 0) { more += " and " + std::to_string(others) + (others == 1 ? " other" : " others"); }
    }
    return more.empty() ? text : text + " (" + more + ")";
}

/// What to say of divergences in the last pass. `cost`: the pass copied more than it had to, or missed; unset: it did not miss, and what
/// it had to copy is not known. `held`: a lease was open over later steps, which costs the same. Empty: there were none.
[[nodiscard]] inline std::string divergences_in_words(const Statistics& statistics, std::optional<bool> cost,
                                                      bool held) {
    const std::uint64_t divergences = statistics.last_pass.divergences;
    if (divergences == 0) { return {}; }
    const std::string text = std::to_string(divergences) + (divergences == 1 ? " lease" : " leases") +
                             " of the last pass came out of the order of the schedule (divergences): ";
    if (!cost) { return text + "report_stalls says whether they cost something"; }
    if (!*cost) { return text + "they cost nothing measurable"; }
    if (held) { return text + "look at them again once each lease ends before the next is acquired"; }
    const bool is_guessed = statistics.learning.order == OrderOrigin::guessed;
    return text + "mend this first, the rest follows from it; " +
           (is_guessed ? "the order was guessed from the names: give a schedule, or lease everything in one pass, so "
                         "that its order is learned"
                       : "record the order (Options::record) and set it as the schedule; Options::strict names the "
                         "first of them");
}
/// Whether leases of the last pass were open over later steps, as far as is known.
[[nodiscard]] inline bool holds_leases(const Statistics& statistics) noexcept {
    return statistics.held_lease.storage != no_storage || statistics.learning.overlapping_steps > 0;
}

}}}  // namespace residency::RESIDENCY_ABI::detail
