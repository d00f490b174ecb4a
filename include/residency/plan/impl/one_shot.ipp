// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/greedy_planner.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/one_shot.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE PlanData one_shot_plan(const Problem& problem, const Image& image, std::uint64_t budget_chunks,
                                        const Options& options) {
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    const std::uint64_t total = image.filled_chunks();
    const double missing = total > budget_chunks ? static_cast<double>(total - budget_chunks) : 1.0;
    // The number of chunks per call that balances the latency of the calls with the wait for the first one.
    const double balanced =
        std::sqrt(latency * problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes) * missing / 2);
    const auto chunks = [&](double factor) {
        return static_cast<std::uint32_t>(std::clamp(balanced * factor, 1.0, 1e6));
    };
    std::vector<std::uint32_t> sizes{chunks(1)};
    if (options.effort == Effort::full &&
        image.cells.size() + problem.step_storages.size() < tuning::one_shot_full_items) {
        sizes.assign(std::begin(tuning::one_shot_call_chunks), std::end(tuning::one_shot_call_chunks));
        for (const double factor : tuning::one_shot_call_factors) { sizes.push_back(chunks(factor)); }
        residency::detail::sort(sizes);
        sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    }
    GreedyPlanner planner{problem, image, (std::min)(budget_chunks, total)};
    PlanData best;
    for (const std::uint32_t size : sizes) {
        RingAssignment assignment;
        if (!planner.run({latency, size}, assignment)) { continue; }
        PlanData data = assemble(problem, image, assignment, options.captured);
        data.predicted_seconds = simulate(data, problem.link, problem.compute_seconds);
        if (best.steps == 0 || data.predicted_seconds < best.predicted_seconds) { best = std::move(data); }
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
