// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/options.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Every tuned number of the planner. No other file of plan/ has one. "Without" says what plans lose, on average over a family of
/// schedules of the planning campaign, when the number's rule is off; numbers that only bound the time of planning say so. Work is
/// counted in steps, calls and pieces looked at.
namespace tuning {

/// One number for each effort.
template <class T>
struct ByEffort {
    T quick, full;

    [[nodiscard]] constexpr T operator()(Effort effort) const noexcept { return effort == Effort::full ? full : quick; }
};

/// Steps: beyond so many the bound of a schedule that reads storages repeatedly is not computed exactly. Bounds time.
inline constexpr ByEffort<std::uint32_t> flow_bound_steps{200, 2000};

// ---- the image and the cells that stay

/// Steps: a schedule of so few tries the aligned image at every budget. Without: 0.1 % slower where few storages are wide, 1.5 % at worst.
inline constexpr std::uint32_t short_schedule_steps = 32;
/// Floors: budgets up to so many floors try the aligned image. Without: 0.6 % slower near the floor, 7 % at worst.
inline constexpr double aligned_image_floors = 2.5;
/// Steps: chunks whose readers are farther apart may stay. 0: 0.2 to 0.6 % slower; 8: 0.4 to 0.7 % slower.
inline constexpr std::uint32_t held_cell_steps = 2;

// ---- plans that bear times other than measured

/// Share by which steps may take longer, by what GPUs under full load were measured to lose (3 to 7 %). Without: at those times 0.1 %
/// slower on average, and several per cent where steps and copies take equally long.
inline constexpr double slower_steps = 0.05;
/// Share of the link's rate: the least that a plan bears where steps cover the copies. 0: 0.7 % more bytes.
inline constexpr double slower_link_least = 0.75;
/// Share of the link's rate: the most that it is planned for. By the tests of slower links.
inline constexpr double slower_link_most = 0.97;
/// Factor on the share of the link that the plan needs. By the tests of slower links.
inline constexpr double slower_link_margin = 1.1;

/// Share by which they are planned for. 0.05: 0.1 % slower at steps that are 8 % longer.
inline constexpr double planned_slower_steps = 0.08;

// ---- budget left unused

/// Steps: schedules of so few may leave some of the budget unused. Without: 0.4 % slower where few storages are wide, 8 % at worst.
inline constexpr std::uint32_t unused_steps = 12;
/// Storages: so much of the budget at most. 1: of three to six equal storages up to 20 % slower.
inline constexpr std::uint64_t unused_storages = 2;
/// Share above the bound from which a plan may be improved so. Bounds time.
inline constexpr double unused_above = 5e-3;
/// The next try leaves 1 / so much more unused. 4: of three to six equal storages up to 6 % slower.
inline constexpr std::uint64_t unused_step_part = 16;
/// Work. Bounds time.
inline constexpr std::uint64_t unused_work = 4000000;

// ---- plans near what memory holds

/// Share by which such a plan may be slower (Options::present). By contract.
inline constexpr double refetch_loss = 1e-3;
/// Passes among which the loads of a change are shared out. 1024: 12 % more loads; 16: 6 % fewer, and slower plans.
inline constexpr double refetch_passes = 64;
/// Share of the deficit by which the ring may be larger. 0.02: 1 % more loads, 1.5 % fewer bytes. Without: 1 % more bytes.
inline constexpr double refetch_larger_ring = 0.2;
/// Rings that load less and are too slow, made faster by small changes. Without: 1 % more loads.
inline constexpr std::size_t refetch_slower_rings = 4;
/// Work, at least and per step. Bounds time: a third of it gives 10 % more loads.
inline constexpr ByEffort<std::uint64_t> refetch_work_least{10000, 100000};
inline constexpr ByEffort<std::uint64_t> refetch_work_per_step{30, 200};

// ---- the search for a ring

/// Work, at least and per step. Bounds time: with half of it quick plans are 0.6 % slower.
inline constexpr ByEffort<std::uint64_t> ring_work_least{150000, 3000000};
inline constexpr ByEffort<std::uint64_t> ring_work_per_step{400, 6000};
/// Factor from one number of rounds to the next one that is tried. 2: 0.6 % slower where few storages are wide, 19 % at worst.
inline constexpr double grid_growth = 1.5;
/// Factors on the slots of the ring that the descent tries. Without: 0.1 to 0.2 % slower where copies take somewhat longer than steps.
inline constexpr double descent_slot_factors[] = {0.8, 0.9, 1.1, 1.2};
/// Pieces per pass at most: so many, and so many per step. Without: quick plans are 0.2 to 0.3 % slower.
inline constexpr ByEffort<double> pieces_least{64, 3000};
inline constexpr ByEffort<double> pieces_per_step{3, 6};
/// Share: plans that differ by less count as equally fast, and the one that moves fewer bytes is taken. 0: 3 % more bytes.
inline constexpr double as_fast = 3e-4;
/// Work of the small changes of the best ring. Without: 0.1 to 0.2 % slower, 1.5 % at worst.
inline constexpr ByEffort<std::uint64_t> refine_work{100000, 2000000};
/// Share: a change that gains less does not count, so that rounding errors do not keep a search going.
inline constexpr double refine_gain = 1e-7;
/// Pairs of steps times pieces: beyond so many no ring of one block is tried. Bounds time. Without such rings: 1 to 2.5 % slower where
/// every other step is short.
inline constexpr ByEffort<std::uint64_t> single_block_work{150000, 1500000};
/// Share by which the scale of a target grows first, until rounding streams enough. 0.002: no difference.
inline constexpr double rounding_growth = 0.02;
/// Relative, of periods while searching. 1e-4: no difference.
inline constexpr double period_tolerance = 1e-5;
/// Calls: the largest cut that is tried. 0: captured plans move 1 % more bytes; 16: no difference.
inline constexpr std::uint32_t cut_most = 4;
/// Laps of the fluid relaxation. 4, 16: no difference.
inline constexpr int fluid_laps = 8;

// ---- one pass

/// Factors on the balanced number of chunks per call that are tried. Without: 0.2 % slower.
inline constexpr double one_shot_call_factors[] = {0.5, 1, 2};
/// Cells and accesses: beyond so many only one factor is tried. Bounds time.
inline constexpr std::size_t one_shot_full_items = 20000;

// ---- the first pass of a cyclic plan

/// Steps ahead for which residents are copied, as tried. Not ablated: its simulation chooses among them.
inline constexpr std::uint32_t first_pass_ahead[] = {0, 1, 2, 4, 8};
/// Share: an order that gains less is not worth telling.
inline constexpr double first_pass_gain = 1e-6;

}  // namespace tuning

}}}  // namespace residency::RESIDENCY_ABI::plan
