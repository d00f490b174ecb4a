// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "residency/model/sort.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

/// A chunk of which storages fill a part only.
struct ShortChunk {
    std::uint32_t chunk = 0;
    double missing = 0;  // the share that holds no bytes and is not copied
};

// Ascending. What the last chunk of the image lacks is not filled either.
inline std::vector<ShortChunk> short_chunks(const Problem& problem, const Image& image) {
    std::vector<ShortChunk> found;
    std::uint64_t at = 0;
    const auto add_gap = [&](std::uint64_t end) {
        for (const std::uint64_t g = image.chunk_bytes; at < end;) {
            const std::uint64_t stop = (std::min)(end, (at / g + 1) * g);
            const auto chunk = static_cast<std::uint32_t>(at / g);
            const double missing = static_cast<double>(stop - at) / static_cast<double>(g);
            if (!found.empty() && found.back().chunk == chunk) {
                found.back().missing += missing;
            } else {
                found.push_back({chunk, missing});
            }
            at = stop;
        }
    };
    for (const ImageRange& range : filled_ranges(problem, image)) {
        add_gap(range.begin);
        at = range.end;
    }
    add_gap(image.chunks() * image.chunk_bytes);
    return found;
}

}  // namespace detail

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
    const std::vector<detail::ShortChunk> short_ones = detail::short_chunks(problem, image);
    auto next_short = short_ones.begin();
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        const Cell& cell = image.cells[c];
        if (hold[c]) {
            held += cell.chunks();
            continue;
        }
        while (next_short != short_ones.end() && next_short->chunk < cell.chunk_begin) { ++next_short; }
        std::uint32_t begin = cell.chunk_begin;
        const auto add_part = [&](std::uint32_t end, double missing) {
            if (begin < end) { parts_.push_back({cell.first, cell.last, begin, end, missing}); }
            begin = end;
        };
        for (; next_short != short_ones.end() && next_short->chunk < cell.chunk_end; ++next_short) {
            add_part(next_short->chunk, 0);
            add_part(next_short->chunk + 1, next_short->missing);
        }
        add_part(cell.chunk_end, 0);
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
    missing_.assign(n, 0.0);
    for (const RingPart& part : parts_) {
        capacity_[part.first] += part.chunks();
        missing_[part.first] += part.missing;
        missing_chunks_ += part.missing;
        ++part_offsets_[part.first + 1];
        if (part.missing > 0 && part.chunk_end == image.chunks()) { short_step_ = part.first; }
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

RESIDENCY_INLINE void choose_chunks(const RingProblem& problem, const std::vector<std::uint32_t>& streamed_per_step,
                                    std::vector<StreamedRun>& stream) {
    stream.clear();
    for (std::uint32_t i = 0; i < streamed_per_step.size(); ++i) {
        std::uint32_t left = streamed_per_step[i];
        for (std::uint32_t k = problem.first_part(i); left > 0; ++k) {
            const RingPart& part = problem.parts()[k];
            const std::uint32_t x = (std::min)(left, part.chunks());
            const bool continues =
                !stream.empty() && stream.back().chunk_begin + stream.back().chunks == part.chunk_begin;
            bool at_begin = continues;
            if (problem.knows_presence() && x < part.chunks()) {
                const std::uint32_t head = problem.nonresident(part.chunk_begin, part.chunk_begin + x);
                const std::uint32_t tail = problem.nonresident(part.chunk_end - x, part.chunk_end);
                at_begin = head != tail ? head > tail : continues;
            }
            stream.push_back(
                {part.first, part.last, at_begin ? part.chunk_begin : part.chunk_end - x, x, part.missing});
            if (stream.size() > 1) {  // a short chunk comes after those that it continues
                StreamedRun &last = stream.back(), &before = stream[stream.size() - 2];
                if (last.chunk_begin + x == before.chunk_begin && last.first == before.first &&
                    last.last == before.last) {
                    std::swap(last, before);
                }
            }
            left -= x;
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::plan
