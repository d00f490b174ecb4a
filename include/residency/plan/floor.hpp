// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/error.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/problem.hpp"

namespace residency::inline RESIDENCY_ABI::plan {

/// The ends of the range of budgets, in whole chunks.
struct ChunkFloor {
    std::uint64_t floor_bytes = 0;       ///< the smallest budget for which make_plan finds a plan
    std::uint64_t everything_bytes = 0;  ///< with so much, nothing streams
    std::uint32_t step = none;           ///< the step that sets the floor, if one does
};

/// Errors: what make_plan says of a malformed problem.
inline Result<ChunkFloor> chunk_floor(const Problem& problem) {
    if (Status status = validate(problem); !status) { return status.error(); }
    const auto measure = [&](ImageOrder order) {
        const Image image = lay_out(problem, order);
        std::uint64_t chunks = 0;
        for (const Cell& cell : image.cells) { chunks += cell.chunks(); }
        const FloorChunks floor = floor_chunks(image, problem.steps());
        return ChunkFloor{floor.chunks * problem.chunk_bytes, chunks * problem.chunk_bytes, floor.step};
    };
    if (!problem.image_offsets.empty()) { return measure(ImageOrder::given); }
    const ChunkFloor grouped = measure(ImageOrder::grouped);
    const ChunkFloor aligned = measure(ImageOrder::aligned);
    ChunkFloor floor = aligned.floor_bytes < grouped.floor_bytes ? aligned : grouped;
    floor.everything_bytes = grouped.everything_bytes;
    return floor;
}

}  // namespace residency::inline RESIDENCY_ABI::plan
