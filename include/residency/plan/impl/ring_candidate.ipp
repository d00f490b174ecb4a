// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/ring_candidate.hpp"
#include "residency/plan/ring_problem.hpp"
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

RESIDENCY_INLINE bool single_block_ring(const RingProblem& problem, std::uint32_t slots, Effort effort,
                                        RingCandidate& candidate) {
    if (!problem.fits(slots)) { return false; }
    const std::uint32_t rounds = problem.rounds_for(slots);
    slots = problem.slots_for(rounds);
    if (!problem.fits(slots)) { return false; }
    candidate.shape = {slots, rounds, 1};
    candidate.piece_chunks = even_pieces(candidate.shape, problem.deficit() + slots);
    candidate.joins.clear();
    std::size_t pieces = 0;
    for (const std::uint32_t size : candidate.piece_chunks) { pieces += size != 0; }
    const std::vector<double>& compute = problem.compute();
    // Steps that can read a piece, rotated so that the shortest one comes first.
    std::vector<std::uint32_t> able;
    std::vector<double> ended(1, 0.0);  // compute before each step
    std::size_t shortest = 0;
    for (std::uint32_t i = 0; i < compute.size(); ++i) {
        ended.push_back(ended.back() + compute[i]);
        if (problem.capacity()[i] < slots) { continue; }
        if (able.empty() || compute[i] < compute[able[shortest]]) { shortest = able.size(); }
        able.push_back(i);
    }
    const std::size_t count = able.size();
    if (pieces == 0 || count < pieces || count * count * pieces > tuning::single_block_work(effort)) { return false; }
    std::rotate(able.begin(), able.begin() + static_cast<std::ptrdiff_t>(shortest), able.end());
    const double call = problem.latency() + slots / problem.chunks_per_second();
    const auto cost = [&](std::size_t from, std::size_t to) {  // from the end of one reader to the end of the next
        const std::uint32_t a = able[from], b = able[to];
        const double between = b > a ? ended[b] - ended[a + 1] : ended.back() - ended[a + 1] + ended[b];
        return (std::max)(call, between) + compute[b];
    };
    constexpr double never = 1e300;
    std::vector<double> now(count, never), next(count);
    std::vector<std::uint32_t> from(pieces * count, 0);  // by piece, then by reader: the reader of the piece before
    now[0] = 0;
    for (std::size_t p = 1; p < pieces; ++p) {
        std::fill(next.begin(), next.end(), never);
        for (std::size_t b = p; b + (pieces - p) <= count; ++b) {
            for (std::size_t a = p - 1; a < b; ++a) {
                if (now[a] == never) { continue; }
                const double seconds = now[a] + cost(a, b);
                if (seconds < next[b]) {
                    next[b] = seconds;
                    from[p * count + b] = static_cast<std::uint32_t>(a);
                }
            }
        }
        std::swap(now, next);
    }
    std::size_t last = pieces - 1;
    for (std::size_t a = pieces - 1; a < count; ++a) {
        if (now[a] + cost(a, 0) < now[last] + cost(last, 0)) { last = a; }
    }
    std::vector<std::uint32_t> steps;
    for (std::size_t p = pieces; p-- > 0; last = from[p * count + last]) { steps.push_back(able[last]); }
    residency::detail::sort(steps);
    candidate.streamed_per_step.assign(compute.size(), 0);
    std::size_t at = 0;
    for (const std::uint32_t size : candidate.piece_chunks) {
        if (size != 0) { candidate.streamed_per_step[steps[at++]] = size; }
    }
    return true;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
