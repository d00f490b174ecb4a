// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE RingProblem::RingProblem(const Problem& problem, const Image& image, const std::vector<bool>& hold,
                                          std::uint64_t budget_chunks, bool captured,
                                          const std::vector<Presence>* present)
    : chunks_per_second_{problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes)},
      latency_{captured ? problem.link.node_latency_seconds : problem.link.latency_seconds},
      captured_{captured} {
    const std::uint32_t n = problem.steps();
    compute_.resize(n);
    for (std::uint32_t i = 0; i < n; ++i) { compute_[i] = problem.compute(i); }
    std::uint64_t held = 0;
    const double last_chunk =
        static_cast<double>(image.bytes % image.chunk_bytes) / static_cast<double>(image.chunk_bytes);
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        if (hold[c]) {
            held += cell.chunks();
            continue;
        }
        std::uint32_t end = cell.chunk_end;
        if (end == image.chunks() && last_chunk > 0) {
            --end;
            parts_.push_back({cell.first, cell.last, end, end + 1, 1 - last_chunk});
        }
        if (cell.chunk_begin < end) { parts_.push_back({cell.first, cell.last, cell.chunk_begin, end, 0}); }
        streamable_ += cell.chunks();
    }
    // Of the parts of a step, the chunk that is cheapest to copy comes first.
    residency::detail::sort(parts_, [](const RingPart& a, const RingPart& b) {
        if (a.first != b.first) { return a.first < b.first; }
        if (a.last != b.last) { return a.last < b.last; }
        return a.missing != b.missing ? a.missing > b.missing : a.chunk_begin < b.chunk_begin;
    });
    part_offsets_.assign(n + std::size_t{1}, 0);
    capacity_.assign(n, 0.0);
    for (const RingPart& part : parts_) {
        capacity_[part.first] += part.chunks();
        ++part_offsets_[part.first + 1];
        if (part.missing > 0) { short_step_ = part.first; }
    }
    for (std::uint32_t i = 0; i < n; ++i) { part_offsets_[i + 1] += part_offsets_[i]; }
    if (present != nullptr) {
        nonresident_before_.assign(image.chunks() + std::size_t{1}, 0);
        absent_before_ = nonresident_before_;
        for (std::uint32_t c = 0; c < image.chunks(); ++c) {
            const Presence presence = (*present)[c];
            nonresident_before_[c + 1] = nonresident_before_[c] + (presence == Presence::resident ? 0 : 1);
            absent_before_[c + 1] = absent_before_[c] + (presence == Presence::absent ? 1 : 0);
        }
        nonresident_.assign(n, 0.0);
        for (const RingPart& part : parts_) {
            nonresident_[part.first] += nonresident(part.chunk_begin, part.chunk_end);
        }
    }
    budget_ = budget_chunks > held ? budget_chunks - held : 0;
    deficit_ = streamable_ > budget_ ? streamable_ - budget_ : 0;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
