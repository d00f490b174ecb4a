// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/fluid.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/ring_target.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// The chunk that is cheapest to copy streams in every ring.
inline void stream_short_chunk(const RingProblem& problem, std::vector<double>& target) {
    if (problem.short_step() == none) { return; }
    double& chunks = target[problem.short_step()];
    chunks = (std::max)(chunks, 1.0);
}

// A target without regard to the short chunk.
inline bool relaxed_target(const RingProblem& problem, const RingShape& shape, int kind, std::vector<double>& target) {
    if (kind == target_kinds - 1) {
        target = problem.capacity();
        return true;
    }
    const double piece = shape.piece_chunks(), rate = problem.chunks_per_second();
    const double less = piece * kind / 2;
    Fluid fluid{problem.capacity(), problem.compute(), rate / (1 + problem.latency() * rate / piece)};
    if (less >= shape.slots || !fluid.solve(shape.slots - less, static_cast<double>(problem.deficit()) + less)) {
        return false;
    }
    target = fluid.stream();
    return true;
}

}  // namespace detail

RESIDENCY_INLINE bool fluid_target(const RingProblem& problem, const RingShape& shape, int kind,
                                   std::vector<double>& target) {
    if (!detail::relaxed_target(problem, shape, kind, target)) { return false; }
    detail::stream_short_chunk(problem, target);
    return true;
}

RESIDENCY_INLINE bool refetch_target(const RingProblem& problem, const RingShape& shape, int kind,
                                     std::vector<double>& target) {
    const std::vector<double>& nonresident = problem.nonresident();
    target = nonresident;
    double could_stream = 0;
    for (const double chunks : nonresident) { could_stream += chunks; }
    const auto wanted = static_cast<double>(problem.deficit() + shape.slots);
    double sum = could_stream;
    if (kind < target_kinds) {
        std::vector<double> relaxed;
        if (!detail::relaxed_target(problem, shape, kind, relaxed)) { return false; }
        const auto is_short_at = [&](double scale) {
            sum = 0;
            for (std::size_t i = 0; i < relaxed.size(); ++i) {
                const double x = scale * relaxed[i];
                target[i] = could_stream > wanted ? (std::min)(nonresident[i], x)
                                                  : (std::min)((std::max)(nonresident[i], x), problem.capacity()[i]);
                sum += target[i];
            }
            return sum < wanted;
        };
        double low = 0, high = 1;
        while (high < 1e6 && is_short_at(high)) { high *= 2; }
        for (int k = 0; k < 20; ++k) {
            const double middle = (low + high) / 2;
            (is_short_at(middle) ? low : high) = middle;
        }
        static_cast<void>(is_short_at(high));
    }
    detail::stream_short_chunk(problem, target);
    return sum > 0;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
