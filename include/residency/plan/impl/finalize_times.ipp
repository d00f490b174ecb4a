// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/finalize_times.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/timeline.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE void finalize_times(PlanData& data, const Timeline& line) {
    TimelineSolver solver;
    if (data.captured && data.cyclic) {
        double least = 0;
        for (std::uint32_t cut = 0; cut <= data.calls.size() && cut <= tuning::cut_most; ++cut) {
            if (cut > 0 && data.calls[cut - 1].wait.exists() && data.calls[cut - 1].wait.pass == 0) { break; }
            const double seconds = solver.captured(line, cut);
            if (cut == 0 || seconds < least) {
                least = seconds;
                data.cut = cut;
            }
        }
    }
    data.predicted_seconds = seconds_of(solver, line, data, 1e-12);
}

RESIDENCY_INLINE void finalize_times(PlanData& data, const Problem& problem) {
    finalize_times(data, timeline(data, problem.link, problem.compute_seconds));
}

RESIDENCY_INLINE bool is_better(const PlanData& a, const PlanData& b) {
    if (std::abs(a.predicted_seconds - b.predicted_seconds) > 1e-9 * b.predicted_seconds) {
        return a.predicted_seconds < b.predicted_seconds;
    }
    return a.bytes_per_pass < b.bytes_per_pass;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
