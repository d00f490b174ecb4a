// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE Result<ChunkFloor> chunk_floor(const Problem& problem) {
    if (Status status = validate(problem); !status) { return status.error(); }
    ChunkFloor floor{UINT64_MAX, UINT64_MAX};
    for (const Image& image : candidate_images(problem)) {
        const FloorChunks least = floor_chunks(image, problem.steps());
        if (least.chunks * problem.chunk_bytes < floor.floor_bytes) {
            floor.floor_bytes = least.chunks * problem.chunk_bytes;
            floor.step = least.step;
        }
        floor.everything_bytes = (std::min)(floor.everything_bytes, image.filled_chunks() * problem.chunk_bytes);
    }
    return floor;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
