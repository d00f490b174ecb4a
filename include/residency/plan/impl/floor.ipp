// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/plan/floor.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/turn.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE Result<ChunkFloor> chunk_floor(const Problem& problem, std::uint32_t at_once) {
    if (Status status = validate(problem); !status) { return status.error(); }
    ChunkFloor floor{UINT64_MAX, UINT64_MAX};
    std::uint64_t at_once_bytes = 0;  // in whichever image a plan takes
    const std::uint32_t turn = detail::best_turn(problem);
    Problem other;
    if (turn != 0) { other = detail::turned(problem, turn); }
    for (const Image& image : candidate_images(turn == 0 ? problem : other)) {
        FloorChunks least = floor_chunks(image, problem.steps());
        least.step = detail::step_before_turn(least.step, turn, problem.steps());
        if (least.chunks * problem.chunk_bytes < floor.floor_bytes) {
            floor.floor_bytes = least.chunks * problem.chunk_bytes;
            floor.step = least.step;
            floor.kept_bytes = least.kept * problem.chunk_bytes;
        }
        floor.everything_bytes = (std::min)(floor.everything_bytes, image.filled_chunks() * problem.chunk_bytes);
        floor.unread_bytes = (std::max)(floor.unread_bytes, image.unread_chunks * problem.chunk_bytes);
        if (at_once > 0) {
            at_once_bytes = (std::max)(at_once_bytes, chunks_at_once(problem, image, at_once) * problem.chunk_bytes);
        }
    }
    if (at_once_bytes > floor.floor_bytes) {
        floor.floor_bytes = at_once_bytes;
        floor.step = none;
        floor.is_at_once = true;
    }
    return floor;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
