// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Plans one pass: chunks are loaded in the order of their first use, as early as the link and the slots allow (Cao, Felten, Karlin
/// and Li 1995). A chunk leaves only after its last reader, so that it comes at most once and keeps its slot. The pass begins with
/// the chunks that are used first.
class GreedyPlanner {
public:
    struct Config {
        double latency_seconds = 0;         ///< per call
        std::uint32_t chunks_per_call = 1;  ///< at most, unless one group is larger
    };

    /// Keeps references to the problem and the image. `budget_chunks` counts all chunks, kept ones too.
    GreedyPlanner(const Problem& problem, const Image& image, std::uint64_t budget_chunks);

    /// Writes the assignment of the pass. False where the budget is below floor_chunks(image).
    [[nodiscard]] bool run(const Config& config, RingAssignment& assignment);

private:
    struct Group {  // chunks of one cell that load and leave together
        std::uint32_t chunk_begin, chunk_end, first, last;

        [[nodiscard]] std::uint32_t chunks() const noexcept { return chunk_end - chunk_begin; }
    };
    struct FreeSlot {
        std::uint32_t slot, last_reader;  // of the chunk that was there; none: the slot was never used
    };

    void make_groups(std::uint32_t most_chunks);
    [[nodiscard]] std::uint32_t place_start(RingAssignment& assignment);
    [[nodiscard]] bool make_room(std::uint32_t chunks);
    void end_step(std::uint32_t step);
    void load(std::uint32_t group, Wait& wait, RingAssignment& assignment);

    const Problem& problem_;
    const Image& image_;
    std::uint32_t slots_;                      // the budget
    std::vector<std::uint32_t> cells_;         // those that may leave, by first reader
    std::vector<Group> groups_;                // in the order of their first use
    std::vector<std::uint32_t> by_last_;       // groups by last reader
    std::size_t ended_ = 0;                    // the groups of by_last_ whose last reader has ended
    std::vector<std::uint32_t> slot_of_;       // by chunk of the image
    std::vector<FreeSlot> free_;               // the next one to use is at the end
    std::priority_queue<std::uint32_t> dead_;  // groups on slots that no later step reads
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/greedy_planner.ipp"
#endif
