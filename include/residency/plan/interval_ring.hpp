// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/ring_assignment.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// What always works: every cell that is not held streams once a pass, from before its first reader to after its last, through
/// `slots` chunk slots; a cell takes the slots that were released first. Intervals of steps make an interval graph, so this
/// succeeds whenever the slots hold what is between its first and last reader at every step (floor_chunks); false otherwise.
/// A second sweep starts from the order in which the first one released the slots, so that a pass begins with the slots that the
/// pass before has left longest ago.
inline bool interval_ring(const Image& image, const std::vector<bool>& hold, std::uint32_t slots,
                          RingAssignment& assignment) {
    std::vector<std::uint32_t> cells;
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        if (!hold[c]) { cells.push_back(c); }
    }
    std::sort(cells.begin(), cells.end(), [&](std::uint32_t a, std::uint32_t b) {
        const Cell &x = image.cells[a], &y = image.cells[b];
        if (x.first != y.first) { return x.first < y.first; }
        return x.last != y.last ? x.last < y.last : a < b;
    });
    using Free =
        std::tuple<std::int64_t, std::uint32_t, std::uint32_t>;  // released after (−1: before this pass), order, slot
    std::vector<std::uint32_t> order(slots);
    for (std::uint32_t s = 0; s < slots; ++s) { order[s] = s; }
    std::vector<std::uint32_t> last_reader(slots, none);
    for (int sweep = 0; sweep < 2; ++sweep) {
        std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
        for (std::uint32_t k = 0; k < slots; ++k) { free.emplace(-1, k, order[k]); }
        assignment = {};
        assignment.slots_used = slots;
        std::fill(last_reader.begin(), last_reader.end(), none);
        std::vector<std::size_t> opened;  // moves that wait for the pass before: the step is known at the end
        std::vector<std::uint32_t> opened_slot;
        for (const std::uint32_t c : cells) {
            const Cell& cell = image.cells[c];
            for (std::uint32_t chunk = cell.chunk_begin; chunk < cell.chunk_end; ++chunk) {
                if (free.empty()) { return false; }
                const auto [released, rank, slot] = free.top();
                if (released >= static_cast<std::int64_t>(cell.first)) { return false; }
                free.pop();
                RingAssignment::Move move{chunk, chunk + 1, cell.first, {}, 0, assignment.slots.size()};
                if (released >= 0) {
                    move.wait = {static_cast<std::uint32_t>(released), 0};
                } else {
                    opened.push_back(assignment.moves.size());
                    opened_slot.push_back(slot);
                }
                assignment.slots.push_back(slot);
                assignment.moves.push_back(move);
                free.emplace(cell.last, slot, slot);
                last_reader[slot] = cell.last;
            }
        }
        for (std::size_t k = 0; k < opened.size(); ++k) {
            assignment.moves[opened[k]].wait = {last_reader[opened_slot[k]], -1};
        }
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
            const auto rank = [&](std::uint32_t slot) {  // never read: first
                return last_reader[slot] == none ? std::int64_t{-1} : std::int64_t{last_reader[slot]};
            };
            return rank(a) != rank(b) ? rank(a) < rank(b) : a < b;
        });
    }
    // A wait never goes back, so that calls that could start together do.
    std::uint32_t call = 0;
    for (std::size_t m = 0; m < assignment.moves.size(); ++m) {
        if (m > 0) {
            Wait& wait = assignment.moves[m].wait;
            const RingAssignment::Move& before = assignment.moves[m - 1];
            if (std::pair{before.wait.pass, before.wait.step} > std::pair{wait.pass, wait.step} &&
                (before.wait.pass < 0 || before.wait.step < assignment.moves[m].needed_by)) {
                wait = before.wait;
            }
            if (!(wait == before.wait) || before.needed_by != assignment.moves[m].needed_by) { ++call; }
        }
        assignment.moves[m].call = call;
    }
    return true;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
