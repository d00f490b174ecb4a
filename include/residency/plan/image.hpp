// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// How storages follow each other in an image that the planner lays out.
enum class ImageOrder : std::uint8_t {
    given,  ///< as Problem::image_offsets says
    grouped,  ///< unread storages first, then small and kept ones, then those that several steps read, then the rest, each group in
    ///< the order of first use; groups that must not share a chunk start a chunk of their own
    packed,    ///< the same without gaps, except behind the unread ones
    sequence,  ///< unread storages first, then kept ones, the others in the order of first use, without gaps
    aligned,  ///< unread storages first, the others in the order of first use; what a step reads first starts a chunk where that saves
              ///< the step a chunk
    fitted,  ///< unread storages first, then kept ones, the others in the order of first use; what a step reads first starts a chunk only
             ///< where it would lie on more chunks than the widest of these needs
};

/// Consecutive chunks of the image with the same first and last reader.
struct Cell {
    std::uint32_t chunk_begin = 0, chunk_end = 0;
    std::uint32_t first = none, last = none;  ///< steps; none: no step reads the chunks
    bool keep = false;                        ///< the chunks hold a kept storage and never stream

    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunk_end - chunk_begin; }
};

/// The image of a problem, cut into chunks. Cells are in the order of the image, do not overlap, and leave out chunks that nothing has to
/// hold: those of padding alone, and of *unread* storages, which no step reads and which are not kept.
struct Image {
    ImageOrder order = ImageOrder::given;
    std::vector<std::uint64_t> offsets;  ///< bytes, one for each storage
    std::uint64_t bytes = 0;             ///< end of the last storage
    std::uint64_t chunk_bytes = 0;
    std::vector<Cell> cells;
    std::uint64_t unread_chunks = 0;                 ///< in no cell, with bytes of unread storages
    std::vector<std::uint32_t> first_use, last_use;  ///< steps, one for each storage; none: no step reads it

    [[nodiscard]] std::uint32_t chunks() const noexcept {
        return static_cast<std::uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
    }
    /// Chunks of the cells that are kept.
    [[nodiscard]] std::uint64_t kept_chunks() const noexcept {
        std::uint64_t sum = 0;
        for (const Cell& cell : cells) { sum += cell.keep ? cell.chunks() : 0; }
        return sum;
    }
    /// Chunks of all cells.
    [[nodiscard]] std::uint64_t filled_chunks() const noexcept {
        std::uint64_t sum = 0;
        for (const Cell& cell : cells) { sum += cell.chunks(); }
        return sum;
    }
};

/// Offsets and cells. O(accesses + storages log storages + chunks).
[[nodiscard]] RESIDENCY_INLINE Image lay_out(const Problem& problem, ImageOrder order);

/// The image in which storages follow each other as at their sources (Options::source_offsets), without gaps.
[[nodiscard]] RESIDENCY_INLINE Image lay_out_as_sources(const Problem& problem,
                                                        std::span<const std::uint64_t> source_offsets);

/// The images that a planner may choose from: the given one, or one for each order that makes a difference. `sequence` and `fitted`
/// are among them where chunks are few.
[[nodiscard]] RESIDENCY_INLINE std::vector<Image> candidate_images(const Problem& problem);

/// How many chunks must be held at once, and the step that needs them.
struct FloorChunks {
    std::uint64_t chunks = 0;
    std::uint32_t step = none;  ///< none: the kept chunks alone are that many
    std::uint64_t kept = 0;     ///< of these, kept chunks
};
/// The kept chunks, and those between their first and their last reader, at the step with the most.
[[nodiscard]] RESIDENCY_INLINE FloorChunks floor_chunks(const Image& image, std::uint32_t steps);
/// The kept chunks, and those of the `count` storages that lie on the most chunks, kept ones apart.
[[nodiscard]] RESIDENCY_INLINE std::uint64_t chunks_at_once(const Problem& problem, const Image& image,
                                                            std::uint32_t count);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/image.ipp"
#endif
