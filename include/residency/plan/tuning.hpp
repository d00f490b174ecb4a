// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The tuned numbers of the planner. Shares and gains are parts of a pass's time; `_steps`, `_chunks` and `_slots` count; `_work` is what the
/// searches' work() counts.
namespace tuning {

/// One number for each effort.
template <class T>
struct ByEffort {
    T quick, full;

    [[nodiscard]] constexpr T operator()(Effort effort) const noexcept { return effort == Effort::full ? full : quick; }
};

// ---- bounds
inline constexpr ByEffort<std::uint32_t> flow_bound_steps{200, 2000};

inline constexpr std::uint32_t chunk_floor_steps = 100;
inline constexpr double chunk_floor_range = 0.01;
inline constexpr int chunk_floor_halvings = 6;

// ---- choice of the image
inline constexpr double aligned_image_gain = 2e-3;
inline constexpr std::uint32_t short_schedule_steps = 32;
inline constexpr double aligned_image_floors = 2.5;
inline constexpr ByEffort<double> packed_image_saves{0.02, 0};
inline constexpr double copy_nodes_loss = 2e-3;
inline constexpr double other_image_gain = 0.02;

// ---- the step from which a pass is planned
inline constexpr double turn_gain = 1e-9;

// ---- cells that stay
inline constexpr std::uint32_t held_cell_steps = 2;
inline constexpr double held_far_share = 1.0 / 8;
inline constexpr ByEffort<double> held_others_share{1.0 / 16, 1.0 / 64};

// ---- plans that bear slower steps
inline constexpr double slower_steps = 1.07;
inline constexpr double slower_steps_from = 1;
inline constexpr double slower_steps_to = 2.5;
inline constexpr double slower_steps_harm = 3e-3;
inline constexpr ByEffort<double> slower_steps_share{0.5, 0.35};

// ---- plans that bear a slower link
inline constexpr ByEffort<double> slower_link_most{0.9, 0.97};
inline constexpr double slower_link_least = 0.75;
inline constexpr double slower_link_margin = 1.1;
inline constexpr double slower_link_loss = 3e-4;

// ---- refetch
inline constexpr double refetch_loss = 1e-3;
inline constexpr double refetch_good_loss = 1e-4;
inline constexpr double refetch_passes = 64;
inline constexpr double refetch_few_share = 1.0 / 128;
inline constexpr double refetch_larger_ring = 0.02;
inline constexpr ByEffort<std::uint64_t> refetch_work_least{10000, 100000};
inline constexpr ByEffort<std::uint64_t> refetch_work_per_step{30, 200};
inline constexpr std::size_t refetch_slower_rings = 4;
inline constexpr std::size_t refetch_reach_steps = 12;

// ---- token ring: coarse grid
inline constexpr ByEffort<std::uint64_t> ring_work_least{150000, 3000000};
inline constexpr ByEffort<std::uint64_t> ring_work_per_step{400, 6000};
inline constexpr ByEffort<double> grid_growth{1.5, 1.25};
inline constexpr double grid_piece_chunks[] = {1, 4};
inline constexpr double grid_piece_factors[] = {1, 2};
inline constexpr ByEffort<double> pieces_least{64, 3000};
inline constexpr ByEffort<double> pieces_per_step{3, 6};

// ---- token ring: descent
inline constexpr ByEffort<std::size_t> descents{1, 3};
inline constexpr double descent_gain = 1e-5;
inline constexpr double descent_slot_factors[] = {0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.5};
inline constexpr std::uint32_t descent_block_counts[] = {1, 2, 3};
inline constexpr std::uint8_t phases = 4;

// ---- token ring: smaller rings
inline constexpr double as_fast = 3e-4;
inline constexpr double shrink_first = 0.7;
inline constexpr double shrink_last = 0.99;

// ---- token ring: refinement
inline constexpr ByEffort<std::uint64_t> refine_work{100000, 2000000};
inline constexpr double refine_from = 2e-2;
inline constexpr double refine_ends_within = 2e-4;
inline constexpr double refine_gain = 1e-7;
inline constexpr std::size_t refine_reach_steps = 2;

// ---- release ring
inline constexpr std::uint32_t release_most_steps = 48;
inline constexpr ByEffort<std::uint64_t> release_work{10000, 150000};
inline constexpr ByEffort<std::uint64_t> release_improve_work{0, 290000};
inline constexpr ByEffort<int> release_sizes{4, 20};
inline constexpr double release_several_chunks = 4;
inline constexpr double release_least_ring = 0.02;
inline constexpr int release_level_halvings = 40;
inline constexpr std::uint32_t release_most_chunks = 32;
inline constexpr ByEffort<std::size_t> release_reach{2, 8};
inline constexpr ByEffort<std::uint8_t> release_wide_steps{1, 4};
inline constexpr unsigned release_joins = 5;
inline constexpr double release_gain = 1e-6;

// ---- slots of few chunks
inline constexpr std::uint32_t slots_most_chunks = 128;
inline constexpr std::uint32_t slots_step_chunks = 3;
inline constexpr ByEffort<std::uint64_t> slots_work{100000, 1000000};
inline constexpr std::uint64_t slots_work_cube = 150;

// ---- random changes
inline constexpr double travel_allowance = 4e-3;

// ---- rounding
inline constexpr double rounding_growth = 2e-3;
inline constexpr double rounding_most = 50;
inline constexpr int rounding_halvings = 3;

// ---- times
inline constexpr std::uint64_t evaluation_work = 50;
inline constexpr double period_tolerance = 1e-5;
inline constexpr std::size_t search_cut_most = 4;
inline constexpr std::uint32_t cut_most = 16;

// ---- ranges of steps
inline constexpr double range_loss = 5e-3;

// ---- fluid relaxation
inline constexpr int fluid_laps = 16;
inline constexpr int fluid_settled_laps = 8;

// ---- image
inline constexpr std::uint64_t small_storages_per_chunk = 8;

// ---- one pass
inline constexpr std::uint32_t one_shot_call_chunks[] = {1, 4};
inline constexpr double one_shot_call_factors[] = {0.5, 1, 2};
inline constexpr std::size_t one_shot_full_items = 20000;
inline constexpr std::uint32_t one_shot_call_steps = 8;

// ---- first pass
inline constexpr std::uint32_t first_pass_ahead[] = {0, 1, 2, 4, 8};
inline constexpr double first_pass_gain = 1e-6;

}  // namespace tuning

}}}  // namespace residency::RESIDENCY_ABI::plan
