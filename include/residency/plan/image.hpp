// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// How storages follow each other in an image that the planner lays out.
enum class ImageOrder : std::uint8_t {
    given,  ///< Problem::image_offsets
    grouped,  ///< small, pinned, unread and repeatedly read storages first, then the rest in the order of first use; what steps
              ///< apart read starts a chunk of its own
    packed,   ///< the same without a gap
    aligned,  ///< in the order of first use; what a step reads first starts a chunk where that saves the step a chunk
};

/// Consecutive chunks of the image with the same first and last reader.
struct Cell {
    std::uint32_t chunk_begin = 0, chunk_end = 0;
    std::uint32_t first = none, last = none;  ///< steps; none: no step reads them
    bool keep = false;                        ///< holds a pinned or an unread storage

    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunk_end - chunk_begin; }
};

/// The image of a problem, cut into chunks. Cells are in the order of the image and leave out chunks of padding alone.
struct Image {
    std::vector<std::uint64_t> offsets;
    std::uint64_t bytes = 0;
    std::uint64_t chunk_bytes = 0;
    std::vector<Cell> cells;
    std::vector<std::uint32_t> first_use, last_use;  ///< of each storage; none where no step reads it

    [[nodiscard]] std::uint32_t chunks() const noexcept {
        return static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
    }
    /// Chunks that hold something.
    [[nodiscard]] std::uint64_t filled_chunks() const noexcept {
        std::uint64_t sum = 0;
        for (const Cell& cell : cells) { sum += cell.chunks(); }
        return sum;
    }
};

/// First and last reader of each storage.
inline void find_uses(const Problem& problem, std::vector<std::uint32_t>& first, std::vector<std::uint32_t>& last) {
    first.assign(problem.storages(), none);
    last.assign(problem.storages(), none);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (first[s] == none) { first[s] = i; }
            last[s] = i;
        }
    }
}

/// Offsets and cells. O(accesses + storages log storages + chunks).
inline Image lay_out(const Problem& problem, ImageOrder order) {
    Image image;
    image.chunk_bytes = problem.chunk_bytes;
    find_uses(problem, image.first_use, image.last_use);
    const std::uint32_t count = problem.storages();
    const std::uint64_t g = problem.chunk_bytes;
    std::vector<bool> pinned(count, false);
    for (const std::uint32_t s : problem.pinned) { pinned[s] = true; }

    std::vector<std::uint32_t> sequence(count);
    for (std::uint32_t s = 0; s < count; ++s) { sequence[s] = s; }
    const auto by_use = [&](std::uint32_t a, std::uint32_t b) {
        return image.first_use[a] != image.first_use[b] ? image.first_use[a] < image.first_use[b] : a < b;
    };
    const std::uint64_t align = (std::max<std::uint64_t>)(1, (std::min)(problem.alignment_bytes, g));
    const auto up = [](std::uint64_t x, std::uint64_t to) { return (x + to - 1) / to * to; };
    if (order == ImageOrder::given) {
        image.offsets = problem.image_offsets;
        for (std::uint32_t s = 0; s < count; ++s) {
            image.bytes = (std::max)(image.bytes, image.offsets[s] + problem.storage_bytes[s]);
        }
        std::sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
            return image.offsets[a] != image.offsets[b] ? image.offsets[a] < image.offsets[b] : a < b;
        });
    } else {
        // 0: small or kept, 1: read at steps apart, 2: the rest.
        const auto group = [&](std::uint32_t s) {
            if (order == ImageOrder::aligned) { return 2; }
            if (image.first_use[s] == none || pinned[s] ||
                problem.storage_bytes[s] * tuning::small_storages_per_chunk < g) {
                return 0;
            }
            return image.last_use[s] != image.first_use[s] ? 1 : 2;
        };
        std::sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
            return group(a) != group(b) ? group(a) < group(b) : by_use(a, b);
        });
        image.offsets.assign(count, 0);
        std::uint64_t at = 0;
        int at_group = 0;
        for (std::size_t k = 0; k < sequence.size(); ++k) {
            const std::uint32_t s = sequence[k];
            at = up(at, align);
            if (order == ImageOrder::grouped) {
                if (group(s) == 1 || (at_group == 1 && group(s) != 1)) { at = up(at, g); }
                at_group = group(s);
            } else if (order == ImageOrder::aligned &&
                       (k == 0 || image.first_use[s] != image.first_use[sequence[k - 1]])) {
                std::uint64_t bytes = 0;
                for (std::size_t j = k; j < sequence.size() && image.first_use[sequence[j]] == image.first_use[s];
                     ++j) {
                    bytes = up(bytes, align) + problem.storage_bytes[sequence[j]];
                }
                if (bytes != 0 && (at % g + bytes + g - 1) / g > (bytes + g - 1) / g) { at = up(at, g); }
            }
            image.offsets[s] = at;
            at += problem.storage_bytes[s];
            image.bytes = (std::max)(image.bytes, at);
        }
    }

    for (const std::uint32_t s : sequence) {
        if (problem.storage_bytes[s] == 0) { continue; }
        const auto begin = static_cast<std::uint32_t>(image.offsets[s] / g);
        const auto end = static_cast<std::uint32_t>((image.offsets[s] + problem.storage_bytes[s] + g - 1) / g);
        Cell cell{begin, end, image.first_use[s], image.last_use[s], pinned[s] || image.first_use[s] == none};
        if (!image.cells.empty() && image.cells.back().chunk_end > begin) {  // shares the last chunk
            Cell& back = image.cells.back();
            if (back.chunks() > 1) {
                Cell shared = back;
                shared.chunk_begin = shared.chunk_end - 1;
                --back.chunk_end;
                image.cells.push_back(shared);
            }
            Cell& shared = image.cells.back();
            if (cell.first != none) {
                shared.first = (std::min)(shared.first, cell.first);
                shared.last = shared.last == none ? cell.last : (std::max)(shared.last, cell.last);
            }
            shared.keep = shared.keep || cell.keep;
            ++cell.chunk_begin;
        }
        if (cell.chunk_begin < cell.chunk_end) { image.cells.push_back(cell); }
    }
    return image;
}

/// The images that a planner may choose from: the given one, or one in each order that makes a difference.
inline std::vector<Image> candidate_images(const Problem& problem) {
    if (!problem.image_offsets.empty()) { return {lay_out(problem, ImageOrder::given)}; }
    std::vector<Image> images{lay_out(problem, ImageOrder::grouped), lay_out(problem, ImageOrder::aligned)};
    Image packed = lay_out(problem, ImageOrder::packed);
    if (packed.bytes != images[0].bytes) { images.push_back(std::move(packed)); }
    return images;
}

/// Chunks that must be held at once: the kept ones, and those between their first and their last reader at the worst step.
struct FloorChunks {
    std::uint64_t chunks = 0;
    std::uint32_t step = none;  ///< the step that sets it
};
inline FloorChunks floor_chunks(const Image& image, std::uint32_t steps) {
    std::vector<std::int64_t> change(steps + 1, 0);
    std::int64_t kept = 0;
    for (const Cell& cell : image.cells) {
        if (cell.keep) {
            kept += cell.chunks();
        } else {
            change[cell.first] += cell.chunks();
            change[cell.last + 1] -= cell.chunks();
        }
    }
    FloorChunks floor{static_cast<std::uint64_t>(kept), none};
    std::int64_t live = kept;
    for (std::uint32_t i = 0; i < steps; ++i) {
        live += change[i];
        if (static_cast<std::uint64_t>(live) > floor.chunks) { floor = {static_cast<std::uint64_t>(live), i}; }
    }
    return floor;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
