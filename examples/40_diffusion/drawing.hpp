// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

#include "residency/timeline/pass_timeline.hpp"

namespace diffusion {

/// How busy a row was, in 80 columns.
template <class Operations>
[[nodiscard]] std::string row(const char* name, const Operations& operations, residency::PassTimeline::Time begin,
                              residency::PassTimeline::Time end) {
    constexpr std::size_t columns = 80;
    std::array<double, columns> busy{};
    const double column = double((end - begin).count()) / columns;
    double total = 0;
    for (const auto& operation : operations) {
        for (std::size_t i = 0; i < columns; ++i) {
            const double left = double(begin.count()) + column * double(i);
            const double both = (std::min)(double(operation.end.count()), left + column) -
                                (std::max)(double(operation.start.count()), left);
            busy[i] += both > 0 ? both / column : 0;
            total += both > 0 ? both : 0;
        }
    }
    std::string line;
    for (const double share : busy) { line += share > 0.9 ? "█" : share > 0.5 ? "▓" : share > 0.05 ? "░" : " "; }
    char rest[64];
    std::snprintf(rest, sizeof rest, "│ %3.0f %% busy\n", 100 * total / double((end - begin).count()));
    return "  " + std::string{name} + std::string(9 - std::string{name}.size(), ' ') + "│" + line + rest;
}

/// What the copy engine and the kernels did, one row each.
[[nodiscard]] inline std::string drawing_of(const residency::PassTimeline& timeline) {
    using Time = residency::PassTimeline::Time;
    Time begin = Time::max(), end = Time::min();
    const auto reach = [&](const auto& all) {
        for (const auto& each : all) {
            begin = (std::min)(begin, each.start);
            end = (std::max)(end, each.end);
        }
    };
    reach(timeline.copies());
    reach(timeline.kernels());
    if (begin >= end) { return {}; }
    return row("copies", timeline.copies(), begin, end) + row("kernels", timeline.kernels(), begin, end);
}

}  // namespace diffusion
