// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Which chunks of the image stream through which slots, in which calls. No chunk moves twice per pass.
struct RingAssignment {
    /// Chunks [chunk_begin, chunk_end) go to slots[slots_begin] and the following entries, one for each chunk.
    struct Move {
        std::uint32_t chunk_begin = 0, chunk_end = 0;
        std::uint32_t needed_by = 0;    ///< a step; none: no step reads them
        Wait wait;                      ///< the same for all moves of a call
        std::uint32_t call = 0;         ///< the number of the call that the move is part of; never decreases
        std::uint64_t slots_begin = 0;  ///< index into `slots`
    };
    std::vector<Move> moves;  ///< in copy-stream order
    /// One-shot: the chunks that are on the device before the pass. Cyclic: empty, since every chunk without a move is resident.
    std::vector<Move> residents;
    std::vector<std::uint32_t> slots;  ///< of the moves and the residents
    std::uint32_t slots_used = 0;      ///< those are slots [0, slots_used)
};

/// A range of bytes of the image: [begin, end).
struct ImageRange {
    std::uint64_t begin = 0, end = 0;

    friend auto operator<=>(const ImageRange&, const ImageRange&) = default;
};

/// The bytes of an image that storages fill, ascending. Gaps below the alignment count as filled: a copy of their own costs more.
[[nodiscard]] RESIDENCY_INLINE std::vector<ImageRange> filled_ranges(const Problem& problem, const Image& image);

/// Copies, calls, residents and slots of a plan. A chunk of a cyclic plan that is alone on its slot stays there and does not stream.
/// Leaves the times, the bounds and the budget to the caller.
[[nodiscard]] RESIDENCY_INLINE PlanData assemble(const Problem& problem, const Image& image,
                                                 const RingAssignment& assignment, bool captured);

/// Counts, for each step, the calls that must have arrived before it starts: PlanData::step_calls, from the calls and the steps.
RESIDENCY_INLINE void count_step_calls(PlanData& plan);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_assignment.ipp"
#endif
