// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// How long a planner may search.
enum class Effort : std::uint8_t {
    quick,  ///< a few milliseconds
    full,   ///< some tens of milliseconds for hundreds of steps
};

/// How a plan is made, beside what the problem says.
struct Options {
    Effort effort = Effort::full;    ///< how long it searches
    bool captured = false;           ///< the passes are replayed as a graph
    std::uint64_t catalog_hash = 0;  ///< stored in the plan; 0: unknown
    /// Cyclic plans only: what memory holds before the first pass, one entry for each chunk of the image whose offsets are
    /// `present_offsets`. Among plans over that image that are at most 0.1 % slower than the fastest, the planner looks for one that
    /// brings few other chunks. Empty: memory holds nothing.
    std::vector<Presence> present{};
    /// The image by which memory is laid out: bytes, one for each storage. The plan is one over it unless a plan over another one takes or
    /// brings 2 % less. Empty: memory is not laid out yet.
    std::vector<std::uint64_t> present_offsets{};
    /// Captured plans only: where copies read each storage, in bytes; storages in different allocations are never neighbours. One copy node
    /// of a graph brings what is next to each other in the image and there. Where nodes cost more than another image, the planner takes
    /// that one. Empty, or not one for each storage: unknown.
    std::vector<std::uint64_t> source_offsets{};
};

}}}  // namespace residency::RESIDENCY_ABI::plan
