// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "residency/model/sort.hpp"
#include "residency/plan/greedy_planner.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE GreedyPlanner::GreedyPlanner(const Problem& problem, const Image& image, std::uint64_t budget_chunks)
    : problem_{problem}, image_{image}, slots_{static_cast<std::uint32_t>(budget_chunks)} {
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        if (!image.cells[c].keep) { cells_.push_back(c); }
    }
    residency::detail::sort(cells_, [&](std::uint32_t a, std::uint32_t b) {
        return image.cells[a].first != image.cells[b].first ? image.cells[a].first < image.cells[b].first : a < b;
    });
}

RESIDENCY_INLINE bool GreedyPlanner::run(const Config& config, RingAssignment& assignment) {
    assignment = {};
    assignment.slots_used = slots_;
    make_groups((std::max)(1U, config.chunks_per_call));
    const double chunks_per_second = problem_.link.bytes_per_second / static_cast<double>(image_.chunk_bytes);
    std::vector<double> arrival(groups_.size(), 0.0), step_end(problem_.steps(), 0.0);
    double link = 0;
    std::uint32_t ended = 0;  // steps that have ended at `link`
    std::uint32_t known = 0;  // steps whose end is known
    std::size_t arrived = 0;  // groups that the known steps read
    std::uint32_t call = 0;
    std::uint32_t next = place_start(assignment);
    if (assignment.slots.size() > slots_) { return false; }
    for (;;) {
        const std::uint32_t due = next < groups_.size() ? groups_[next].first : problem_.steps();
        for (; known < due; ++known) {
            double begin = known == 0 ? 0 : step_end[known - 1];
            for (; arrived < groups_.size() && groups_[arrived].first == known; ++arrived) {
                begin = (std::max)(begin, arrival[arrived]);
            }
            step_end[known] = begin + problem_.compute(known);
        }
        if (next == groups_.size()) { return true; }
        while (ended < known && step_end[ended] <= link) { end_step(ended++); }
        // The groups of one call, for as long as they fit.
        const std::size_t moves_before = assignment.moves.size();
        const std::uint32_t begin = next;
        std::uint32_t chunks = 0;
        Wait wait;
        for (; next < groups_.size() && groups_[next].first <= due + tuning::one_shot_call_steps; ++next) {
            const std::uint32_t more = groups_[next].chunks();
            if ((chunks != 0 && chunks + more > config.chunks_per_call) || !make_room(more)) { break; }
            load(next, wait, assignment);
            chunks += more;
        }
        if (next == begin) {
            if (ended == known) { return false; }
            link = (std::max)(link, step_end[ended]);
            end_step(ended++);
            continue;
        }
        for (std::size_t m = moves_before; m < assignment.moves.size(); ++m) {
            assignment.moves[m].wait = wait;
            assignment.moves[m].call = call;
        }
        ++call;
        link += config.latency_seconds + chunks / chunks_per_second;
        for (std::uint32_t g = begin; g < next; ++g) { arrival[g] = link; }
    }
}

// Cuts cells evenly into groups of at most `most_chunks`.
RESIDENCY_INLINE void GreedyPlanner::make_groups(std::uint32_t most_chunks) {
    groups_.clear();
    for (const std::uint32_t c : cells_) {
        const Cell& cell = image_.cells[c];
        const std::uint32_t count = (cell.chunks() + most_chunks - 1) / most_chunks;
        const auto cut = [&](std::uint64_t k) {
            return cell.chunk_begin + static_cast<std::uint32_t>(k * cell.chunks() / count);
        };
        for (std::uint32_t k = 0; k < count; ++k) { groups_.push_back({cut(k), cut(k + 1), cell.first, cell.last}); }
    }
    by_last_.resize(groups_.size());
    for (std::uint32_t g = 0; g < groups_.size(); ++g) { by_last_[g] = g; }
    residency::detail::sort(by_last_, [&](std::uint32_t a, std::uint32_t b) {
        return groups_[a].last != groups_[b].last ? groups_[a].last < groups_[b].last : a < b;
    });
    ended_ = 0;
}

// Cells that stay, then the groups that are used first, as many as fit. Returns the first group that does not.
RESIDENCY_INLINE std::uint32_t GreedyPlanner::place_start(RingAssignment& assignment) {
    slot_of_.assign(image_.chunks(), none);
    std::uint32_t slot = 0;
    const auto place = [&](std::uint32_t begin, std::uint32_t end, std::uint32_t first) {
        assignment.residents.push_back({begin, end, first, {}, 0, assignment.slots.size()});
        for (std::uint32_t c = begin; c < end; ++c) {
            slot_of_[c] = slot;
            assignment.slots.push_back(slot++);
        }
    };
    for (const Cell& cell : image_.cells) {
        if (cell.keep) { place(cell.chunk_begin, cell.chunk_end, cell.first); }
    }
    std::uint32_t next = 0;
    for (; next < groups_.size() && slot + groups_[next].chunks() <= slots_; ++next) {
        place(groups_[next].chunk_begin, groups_[next].chunk_end, groups_[next].first);
    }
    free_.clear();
    for (; slot < slots_; ++slot) { free_.push_back({slot, none}); }
    dead_ = {};
    return next;
}

// Frees slots until `chunks` are free. Where they cannot be, nothing leaves.
RESIDENCY_INLINE bool GreedyPlanner::make_room(std::uint32_t chunks) {
    std::size_t room = free_.size();
    std::vector<std::uint32_t> leave;
    while (room < chunks && !dead_.empty()) {
        leave.push_back(dead_.top());
        dead_.pop();
        room += groups_[leave.back()].chunks();
    }
    for (const std::uint32_t g : leave) {
        if (room < chunks) {
            dead_.push(g);
            continue;
        }
        for (std::uint32_t c = groups_[g].chunk_begin; c < groups_[g].chunk_end; ++c) {
            free_.push_back({slot_of_[c], groups_[g].last});
        }
    }
    return room >= chunks;
}

RESIDENCY_INLINE void GreedyPlanner::end_step(std::uint32_t step) {
    for (; ended_ < by_last_.size() && groups_[by_last_[ended_]].last <= step; ++ended_) {
        dead_.push(by_last_[ended_]);
    }
}

// Onto free slots; `wait` becomes the last reader of what was there.
RESIDENCY_INLINE void GreedyPlanner::load(std::uint32_t group, Wait& wait, RingAssignment& assignment) {
    const Group& g = groups_[group];
    assignment.moves.push_back({g.chunk_begin, g.chunk_end, g.first, {}, 0, assignment.slots.size()});
    for (std::uint32_t c = g.chunk_begin; c < g.chunk_end; ++c) {
        const FreeSlot free = free_.back();
        free_.pop_back();
        if (free.last_reader != none && (!wait.exists() || free.last_reader > wait.step)) {
            wait = {free.last_reader, 0};
        }
        slot_of_[c] = free.slot;
        assignment.slots.push_back(free.slot);
    }
}

}}}  // namespace residency::RESIDENCY_ABI::plan
