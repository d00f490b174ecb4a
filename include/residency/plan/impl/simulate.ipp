// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "residency/config.hpp"
#include "residency/plan/link.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE Timeline timeline(const PlanData& plan, const Link& link, std::span<const double> compute) {
    Timeline line;
    line.compute.assign(compute.begin(), compute.end());
    line.compute.resize(plan.steps, 0.0);
    line.calls.reserve(plan.calls.size());
    for (const Call& call : plan.calls) {
        std::uint64_t bytes = 0;
        for (std::uint32_t k = call.copies_begin; k < call.copies_end; ++k) { bytes += plan.copies[k].bytes(); }
        line.calls.push_back({(plan.captured ? link.node_latency_seconds : link.latency_seconds) +
                                  static_cast<double>(bytes) / link.bytes_per_second,
                              call.needed_by, call.wait.step, call.wait.pass != 0});
    }
    return line;
}

RESIDENCY_INLINE double seconds_of(TimelineSolver& solver, const Timeline& line, const PlanData& plan, double tolerance,
                                   double give_up) {
    if (!plan.cyclic) { return solver.once(line); }
    return plan.captured ? solver.captured(line, plan.cut) : solver.period(line, tolerance, give_up);
}

RESIDENCY_INLINE double simulate(const PlanData& plan, const Link& link, std::span<const double> compute) {
    const Timeline line = timeline(plan, link, compute);
    TimelineSolver solver;
    return seconds_of(solver, line, plan, 1e-12);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
