// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/plan/fluid.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE std::vector<std::uint32_t> even_pieces(const RingShape& shape, std::uint64_t streamed) {
    const std::uint64_t blocks = shape.blocks, slots = shape.slots, count = shape.rounds * blocks;
    const std::uint64_t excess = shape.rounds * slots - streamed;
    std::vector<std::uint32_t> sizes;
    sizes.reserve(count);
    for (std::uint64_t p = 0; p < count; ++p) {
        const std::uint64_t b = p % blocks;
        const auto size = static_cast<std::uint32_t>((b + 1) * slots / blocks - b * slots / blocks);
        const auto less = static_cast<std::uint32_t>((p + 1) * excess / count - p * excess / count);
        sizes.push_back(size > less ? size - less : 0);
    }
    return sizes;
}

RESIDENCY_INLINE bool RingRounding::round(const std::vector<double>& target, const RingShape& shape, double phase,
                                          RingCandidate& candidate) {
    const std::uint64_t wanted = problem_.deficit() + shape.slots;
    candidate.shape = shape;
    candidate.piece_chunks = even_pieces(shape, wanted);
    candidate.streamed_per_step.resize(target.size());
    candidate.joins.clear();
    double sum = 0;
    for (const double chunks : target) { sum += chunks; }
    const double unit = static_cast<double>(wanted) / sum;
    if (diffuse(target, unit, phase, candidate) >= wanted) { return true; }
    double low = unit, high = unit, growth = tuning::rounding_growth;
    do {
        low = high;
        high *= 1 + growth;
        growth *= 2;
        if (high > tuning::rounding_most * unit) { return false; }
    } while (diffuse(target, high, phase, candidate) < wanted);
    for (int k = 0; k < tuning::rounding_halvings; ++k) {
        const double middle = (low + high) / 2;
        (diffuse(target, middle, phase, candidate) < wanted ? low : high) = middle;
    }
    return diffuse(target, high, phase, candidate) >= wanted;
}

// Chunks placed when the target is scaled; stops once all pieces are placed.
RESIDENCY_INLINE std::uint64_t RingRounding::diffuse(const std::vector<double>& target, double scale, double phase,
                                                     RingCandidate& candidate) {
    const std::vector<std::uint32_t>& sizes = candidate.piece_chunks;
    work_ += (target.size() + sizes.size()) / 4;
    std::size_t p = 0;
    while (p < sizes.size() && sizes[p] == 0) { ++p; }
    double credit = p < sizes.size() ? phase * sizes[p] : 0;
    std::uint32_t left = 0;  // of piece p, where that has begun
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
        credit += target[i] * scale;
        const auto all =
            static_cast<std::uint32_t>((std::min)(problem_.capacity()[i], static_cast<double>(candidate.shape.slots)));
        std::uint32_t room = all;
        while (room > 0 && p < sizes.size()) {
            if (left == 0) {
                if (credit < sizes[p] || (room < sizes[p] && room < all)) { break; }
                left = sizes[p];
            }
            const std::uint32_t x = (std::min)(left, room);
            room -= x;
            left -= x;
            credit -= x;
            sum += x;
            if (left == 0) {
                do { ++p; } while (p < sizes.size() && sizes[p] == 0);
            }
        }
        candidate.streamed_per_step[i] = all - room;
    }
    return sum;
}

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

RESIDENCY_INLINE void RingChange::apply(RingCandidate& candidate) const {
    if (chunks == 0) {
        candidate.joins[piece] ^= 1;
        return;
    }
    candidate.streamed_per_step[from] -= chunks;
    candidate.streamed_per_step[to] += chunks;
}

RESIDENCY_INLINE void RingChange::undo(RingCandidate& candidate) const {
    RingChange{to, from, chunks, piece}.apply(candidate);
}

RESIDENCY_INLINE RingNeighbourhood::RingNeighbourhood(const RingProblem& problem, std::size_t pieces,
                                                      std::size_t reach_steps)
    : problem_{problem}, pieces_{problem.is_captured() ? 0 : pieces} {
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        if (problem.capacity()[i] > 0) { streaming_.push_back(i); }
    }
    reach_ = (std::min)(reach_steps, streaming_.size());
}

RESIDENCY_INLINE void RingNeighbourhood::changes_at(std::size_t position, const RingCandidate& candidate,
                                                    const std::vector<std::uint8_t>& call_begins,
                                                    std::vector<RingChange>& changes) const {
    changes.clear();
    const std::size_t count = streaming_.size();
    if (position >= count) {
        const std::size_t piece = position - count;
        if (piece > 0 && (call_begins[piece] != 0 || candidate.joins[piece] != 0)) {
            changes.push_back({0, 0, 0, piece});
        }
        return;
    }
    const std::vector<std::uint32_t>& streamed = candidate.streamed_per_step;
    const std::uint32_t a = streaming_[position];
    const std::uint32_t whole_piece = (candidate.shape.slots + candidate.shape.blocks - 1) / candidate.shape.blocks;
    for (std::size_t distance = 1; distance <= reach_; ++distance) {
        for (const std::size_t to : {position + distance, position + count - distance}) {
            const std::uint32_t b = streaming_[to % count];
            // Chunks move far only where that keeps a resident.
            if (distance > tuning::refine_reach_steps &&
                (streamed[a] <= problem_.nonresident()[a] || streamed[b] >= problem_.nonresident()[b])) {
                continue;
            }
            for (std::uint32_t chunks = whole_piece; chunks != 0; chunks = chunks > 1 ? 1 : 0) {
                if (a == b || streamed[a] < chunks || streamed[b] + chunks > problem_.capacity()[b]) { continue; }
                changes.push_back({a, b, chunks, 0});
            }
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::plan
