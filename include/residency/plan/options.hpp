// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

enum class Effort : std::uint8_t {
    quick,  ///< few options, a few milliseconds
    full,   ///< all of them, some tens of milliseconds for hundreds of steps
};

struct Options {
    Effort effort = Effort::full;
    bool captured = false;  ///< for passes that are replayed as a graph
    Layout layout = Layout::chunks;
    bool fixed_slots = true;         ///< one-shot plans too keep each chunk at one place (Plan::is_static)
    std::uint64_t catalog_hash = 0;  ///< kept in the plan
    /// One-shot: the slot of each chunk of the image that is there at the start, none where it is not. Empty: the planner starts
    /// with what is used first. Needs Problem::image_offsets.
    std::vector<std::uint32_t> start{};
    /// Cyclic: what memory holds before the first pass, by chunk of an image that lies as `present_offsets` says. Among plans over
    /// that image that are nearly as fast (1e-3), the planner looks for one that needs little else.
    std::vector<Presence> present{};
    std::vector<std::uint64_t> present_offsets{};
};

}}}  // namespace residency::RESIDENCY_ABI::plan
