// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/aggressive.hpp"
#include "residency/plan/draft.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/one_shot.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/simulate.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE FloorChunks one_shot_floor(const Problem& problem, const Image& image) {
    return Aggressive{problem, image, 0}.floor();
}

RESIDENCY_INLINE Result<PlanData> one_shot_plan(const Problem& problem, const Image& image, std::uint64_t budget,
                                                const Options& options) {
    const double latency = options.captured ? problem.link.node_latency_seconds : problem.link.latency_seconds;
    Aggressive planner{problem, image, budget};
    Aggressive::Config config;
    config.latency_seconds = latency;
    config.fixed_slots = options.fixed_slots;
    const std::uint64_t total = image.filled_chunks();
    const double missing = total > budget ? static_cast<double>(total - budget) : 1.0;
    const double piece =
        std::sqrt(latency * problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes) * missing / 2);
    std::vector<std::uint32_t> pieces{1, 4};
    const bool full = options.effort == Effort::full && image.cells.size() + problem.step_storages.size() < 20000;
    for (const double factor : {0.5, 1.0, 2.0}) {
        pieces.push_back(static_cast<std::uint32_t>(std::clamp(piece * factor, 1.0, 1e6)));
    }
    if (!full) { pieces = {pieces[3]}; }
    std::sort(pieces.begin(), pieces.end());
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
    PlanData best;
    bool found = false;
    Draft draft;
    const auto attempt = [&] {
        PlanData data;
        if (!planner.run(config, options.start, draft)) { return data; }
        data = assemble(problem, image, draft, options.captured);
        data.predicted_seconds = simulate(data, problem.link, problem.compute_seconds);
        return data;
    };
    std::uint32_t best_piece = 1;
    for (const std::uint32_t p : pieces) {
        config.piece_chunks = p;
        PlanData data = attempt();
        if (data.steps == 0) { continue; }
        if (!found || data.predicted_seconds < best.predicted_seconds) {
            best = std::move(data);
            best_piece = p;
        }
        found = true;
    }
    if (!found) {
        return Error{ErrorKind::budget, "the budget does not hold what is needed from first to last use",
                     BudgetNumbers{}};
    }
    // The smallest look-ahead that is as fast: the fewest bytes.
    config.piece_chunks = best_piece;
    const double limit = best.predicted_seconds * 1.002;
    for (std::uint32_t cap = 1; cap < problem.steps(); cap *= full ? 2 : 8) {
        config.look_ahead = cap;
        PlanData data = attempt();
        if (data.steps != 0 && data.predicted_seconds <= limit) {
            if (data.bytes_per_pass < best.bytes_per_pass || data.predicted_seconds < best.predicted_seconds) {
                best = std::move(data);
            }
            break;
        }
    }
    return best;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
