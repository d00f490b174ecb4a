// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/draft.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The general planner, for any known order: Aggressive (Cao, Felten, Karlin and Li 1995) over chunks. When the link is free it
/// loads what is missing and used next, in place of what is used last (Belady 1966), but only where that is used later than what
/// is loaded. A look-ahead cap keeps it from moving bytes earlier than the time needs. One pass from a given start.
class Aggressive {
public:
    struct Config {
        double latency_seconds = 0;       ///< of a call
        std::uint32_t piece_chunks = 1;   ///< chunks that travel in one call, at most, where they can leave together
        std::uint32_t look_ahead = none;  ///< steps between the one that runs and the one that a load is for, at most
        bool fixed_slots = false;         ///< a chunk leaves after its last use only, so that it never changes its slot
    };

    /// Keeps references. `budget_chunks` counts everything.
    Aggressive(const Problem& problem, const Image& image, std::uint64_t budget_chunks)
        : problem_{problem}, image_{image}, budget_{budget_chunks} {
        index_readers();
    }

    /// Most chunks that one step reads, with those that stay.
    [[nodiscard]] FloorChunks floor() const {
        std::uint64_t kept = 0;
        for (const Cell& cell : image_.cells) { kept += cell.keep ? cell.chunks() : 0; }
        FloorChunks floor{kept, none};
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) {
            std::uint64_t chunks = kept;
            for (std::uint32_t k = step_begin_[i]; k < step_begin_[i + 1]; ++k) {
                const Cell& cell = image_.cells[step_cells_[k]];
                chunks += cell.keep ? 0 : cell.chunks();
            }
            if (chunks > floor.chunks) { floor = {chunks, i}; }
        }
        return floor;
    }

    /// A draft of one pass. `start`: the slot of each chunk that is there already, none where it is not; empty: the planner starts
    /// with what is used first. False where the budget is below the floor (with fixed_slots: below floor_chunks).
    bool run(const Config& config, std::span<const std::uint32_t> start, Draft& draft) {
        draft = {};
        draft.explicit_residents = true;
        const auto slots = static_cast<std::uint32_t>(budget_);
        draft.slots_used = slots;
        make_units((std::max)(1u, config.piece_chunks));
        const std::uint32_t n = problem_.steps();
        slot_of_.assign(image_.chunks(), none);
        free_ = {};
        use_at_.assign(units_.size(), 0);
        present_.assign(units_.size(), 0);
        victims_ = {};
        place_start(start, slots, draft);

        const double rate = problem_.link.bytes_per_second / static_cast<double>(image_.chunk_bytes);
        step_end_.assign(n, 0.0);
        arrival_.assign(units_.size(), 0.0);
        double link = 0;
        std::uint32_t running = 0,
                      known = 0;  // steps before `running` have ended at `link`, those before `known` have a time
        std::uint32_t scan = 0, scan_at = 0;  // the first access that may be missing
        std::uint32_t call = 0;
        for (;;) {
            // What is missing and used next.
            std::uint32_t next = none;
            for (; scan < n; ++scan, scan_at = 0) {
                for (; scan_at < accesses_begin_[scan + 1] - accesses_begin_[scan]; ++scan_at) {
                    const std::uint32_t u = accesses_[accesses_begin_[scan] + scan_at];
                    if (present_[u] == 0) {
                        next = u;
                        break;
                    }
                }
                if (next != none) { break; }
            }
            // Steps whose chunks have all been asked for.
            for (; known < scan; ++known) {
                double begin = known == 0 ? 0 : step_end_[known - 1];
                for (std::uint32_t k = accesses_begin_[known]; k < accesses_begin_[known + 1]; ++k) {
                    begin = (std::max)(begin, arrival_[accesses_[k]]);
                }
                step_end_[known] = begin + problem_.compute(known);
            }
            if (next == none) { return true; }
            while (running < known && step_end_[running] <= link) { advance(running); }
            const bool too_early = config.look_ahead != none && scan > running && scan - running > config.look_ahead;
            const std::size_t moves_before = draft.moves.size();
            std::uint32_t batch = 0;
            if (!too_early) {
                const std::uint32_t first_step = scan;
                Wait wait;
                std::uint32_t step = scan, at = scan_at;
                for (std::uint32_t u = next; u != none;) {
                    const std::uint32_t chunks = units_[u].end - units_[u].begin;
                    if (batch != 0 && batch + chunks > config.piece_chunks) { break; }
                    if (!make_room(chunks, step, running, config.fixed_slots)) { break; }
                    bring(u, step, wait, draft);
                    batch += chunks;
                    // The next missing access, of this step or a later one, as far as the look-ahead goes.
                    u = none;
                    for (; step < n; ++step, at = 0) {
                        if (config.look_ahead != none && step > running && step - running > config.look_ahead) {
                            break;
                        }
                        if (step > first_step + 8) { break; }
                        for (; at < accesses_begin_[step + 1] - accesses_begin_[step]; ++at) {
                            const std::uint32_t v = accesses_[accesses_begin_[step] + at];
                            if (present_[v] == 0) {
                                u = v;
                                break;
                            }
                        }
                        if (u != none) { break; }
                    }
                }
                for (std::size_t m = moves_before; m < draft.moves.size(); ++m) {
                    draft.moves[m].wait = wait;
                    draft.moves[m].call = call;
                }
            }
            if (batch != 0) {
                link += config.latency_seconds + batch / rate;
                for (const std::uint32_t u : brought_) { arrival_[u] = link; }
                brought_.clear();
                ++call;
                continue;
            }
            if (running >= known) { return false; }
            link = (std::max)(link, step_end_[running]);
            advance(running);
        }
    }

private:
    struct Unit {
        std::uint32_t begin, end, cell;
    };

    // Which steps read each cell, and which cells each step reads.
    void index_readers() {
        const std::uint32_t n = problem_.steps();
        const std::uint64_t g = image_.chunk_bytes;
        std::vector<std::uint32_t> last(image_.cells.size(), none);
        step_begin_.assign(1, 0);
        for (std::uint32_t i = 0; i < n; ++i) {
            for (const std::uint32_t s : problem_.reads(i)) {
                if (problem_.storage_bytes[s] == 0) { continue; }
                const auto begin = static_cast<std::uint32_t>(image_.offsets[s] / g);
                auto cell = std::upper_bound(image_.cells.begin(), image_.cells.end(), begin,
                                             [](std::uint32_t x, const Cell& y) { return x < y.chunk_end; });
                for (; cell != image_.cells.end() &&
                       cell->chunk_begin * g < image_.offsets[s] + problem_.storage_bytes[s];
                     ++cell) {
                    const auto c = static_cast<std::uint32_t>(cell - image_.cells.begin());
                    if (last[c] == i) { continue; }
                    last[c] = i;
                    step_cells_.push_back(c);
                }
            }
            step_begin_.push_back(static_cast<std::uint32_t>(step_cells_.size()));
        }
        readers_begin_.assign(image_.cells.size() + 1, 0);
        for (const std::uint32_t c : step_cells_) { ++readers_begin_[c + 1]; }
        for (std::size_t c = 0; c < image_.cells.size(); ++c) { readers_begin_[c + 1] += readers_begin_[c]; }
        readers_.resize(step_cells_.size());
        std::vector<std::uint32_t> at(readers_begin_.begin(), readers_begin_.end() - 1);
        for (std::uint32_t i = 0; i < n; ++i) {
            for (std::uint32_t k = step_begin_[i]; k < step_begin_[i + 1]; ++k) { readers_[at[step_cells_[k]]++] = i; }
        }
    }

    // Cells cut into pieces; the accesses of each step by unit. Kept cells are no units.
    void make_units(std::uint32_t piece) {
        units_.clear();
        std::vector<std::uint32_t> first_unit(image_.cells.size() + 1, 0);
        for (std::uint32_t c = 0; c < image_.cells.size(); ++c) {
            const Cell& cell = image_.cells[c];
            first_unit[c] = static_cast<std::uint32_t>(units_.size());
            if (cell.keep) { continue; }
            const std::uint32_t count = (cell.chunks() + piece - 1) / piece;
            for (std::uint32_t k = 0; k < count; ++k) {
                const auto cut = [&](std::uint64_t x) {
                    return cell.chunk_begin + static_cast<std::uint32_t>(x * cell.chunks() / count);
                };
                units_.push_back({cut(k), cut(k + 1), c});
            }
        }
        first_unit.back() = static_cast<std::uint32_t>(units_.size());
        accesses_.clear();
        accesses_begin_.assign(1, 0);
        for (std::uint32_t i = 0; i < problem_.steps(); ++i) {
            for (std::uint32_t k = step_begin_[i]; k < step_begin_[i + 1]; ++k) {
                const std::uint32_t c = step_cells_[k];
                for (std::uint32_t u = first_unit[c]; u < first_unit[c + 1]; ++u) { accesses_.push_back(u); }
            }
            accesses_begin_.push_back(static_cast<std::uint32_t>(accesses_.size()));
        }
    }

    // The first reader of a unit at or after `step`; none: never again.
    std::uint32_t next_use(std::uint32_t u, std::uint32_t step) {
        const std::uint32_t c = units_[u].cell;
        std::uint32_t& at = use_at_[u];
        while (readers_begin_[c] + at < readers_begin_[c + 1] && readers_[readers_begin_[c] + at] < step) { ++at; }
        return readers_begin_[c] + at < readers_begin_[c + 1] ? readers_[readers_begin_[c] + at] : none;
    }
    // The last reader before `step`; none: no reader yet.
    std::uint32_t last_use(std::uint32_t u, std::uint32_t step) {
        static_cast<void>(next_use(u, step));
        return use_at_[u] == 0 ? none : readers_[readers_begin_[units_[u].cell] + use_at_[u] - 1];
    }

    void place_start(std::span<const std::uint32_t> start, std::uint32_t slots, Draft& draft) {
        std::vector<std::uint8_t> taken(slots, 0);
        const auto settle = [&](std::uint32_t begin, std::uint32_t end, std::uint32_t first) {
            draft.residents.push_back({begin, end, first, {}, 0, draft.slots.size()});
            for (std::uint32_t c = begin; c < end; ++c) { draft.slots.push_back(slot_of_[c]); }
        };
        if (!start.empty()) {
            for (std::uint32_t c = 0; c < start.size(); ++c) {
                if (start[c] != none && start[c] < slots) {
                    slot_of_[c] = start[c];
                    taken[start[c]] = 1;
                }
            }
        }
        std::uint32_t fresh = 0;
        const auto take = [&](std::uint32_t c) {
            while (fresh < slots && taken[fresh] != 0) { ++fresh; }
            if (fresh == slots) { return false; }
            taken[fresh] = 1;
            slot_of_[c] = fresh;
            return true;
        };
        for (const Cell& cell : image_.cells) {
            if (!cell.keep) { continue; }
            for (std::uint32_t c = cell.chunk_begin; c < cell.chunk_end; ++c) {
                if (slot_of_[c] == none && !take(c)) { break; }
            }
            settle(cell.chunk_begin, cell.chunk_end, cell.first);
        }
        std::vector<std::uint8_t> seen(units_.size(), 0);
        for (const std::uint32_t u : accesses_) {
            if (seen[u] != 0) { continue; }
            seen[u] = 1;
            const Unit& unit = units_[u];
            bool whole = true;
            for (std::uint32_t c = unit.begin; c < unit.end; ++c) { whole = whole && slot_of_[c] != none; }
            if (!whole && start.empty()) {
                std::uint32_t c = unit.begin;
                while (c < unit.end && take(c)) { ++c; }
                whole = c == unit.end;
            }
            if (!whole) {  // a piece that is there in part counts as absent
                for (std::uint32_t c = unit.begin; c < unit.end; ++c) {
                    if (slot_of_[c] != none) { taken[slot_of_[c]] = 0; }
                    slot_of_[c] = none;
                }
                if (start.empty()) { break; }
                continue;
            }
            present_[u] = 1;
            settle(unit.begin, unit.end, image_.cells[unit.cell].first);
            victims_.push({next_use(u, 0), u});
        }
        for (std::uint32_t s = 0; s < slots; ++s) {
            if (taken[s] == 0) { free_.push_back({s, none}); }
        }
    }

    // Evicts until `chunks` slots are free for a load that `step` uses; what leaves is used later than that, and not by a step
    // that may still run.
    bool make_room(std::uint32_t chunks, std::uint32_t step, std::uint32_t running, bool fixed) {
        evicted_.clear();
        std::uint64_t room = free_.size();
        while (room < chunks && !victims_.empty()) {
            const auto [use, u] = victims_.top();
            if (present_[u] == 0 || next_use(u, running) != use) {  // stale: advance() and bring() push what is true
                victims_.pop();
                continue;
            }
            if (use <= step || (fixed && use != none)) { break; }
            victims_.pop();
            present_[u] = 0;
            evicted_.push_back(u);
            room += units_[u].end - units_[u].begin;
        }
        if (room < chunks) {
            for (const std::uint32_t u : evicted_) {
                present_[u] = 1;
                victims_.push({next_use(u, running), u});
            }
            return false;
        }
        for (const std::uint32_t u : evicted_) {
            const std::uint32_t last = last_use(u, running);
            for (std::uint32_t c = units_[u].begin; c < units_[u].end; ++c) { free_.push_back({slot_of_[c], last}); }
        }
        return true;
    }

    // Step `running` has ended: what it read is used next by a later step.
    void advance(std::uint32_t& running) {
        for (std::uint32_t k = accesses_begin_[running]; k < accesses_begin_[running + 1]; ++k) {
            if (present_[accesses_[k]] != 0) { victims_.push({next_use(accesses_[k], running + 1), accesses_[k]}); }
        }
        ++running;
    }

    void bring(std::uint32_t u, std::uint32_t step, Wait& wait, Draft& draft) {
        draft.moves.push_back({units_[u].begin, units_[u].end, step, {}, 0, draft.slots.size()});
        for (std::uint32_t c = units_[u].begin; c < units_[u].end; ++c) {
            const auto [slot, last] = free_.back();
            free_.pop_back();
            if (last != none && (!wait.exists() || last > wait.step)) { wait = {last, 0}; }
            slot_of_[c] = slot;
            draft.slots.push_back(slot);
        }
        present_[u] = 1;
        brought_.push_back(u);
        victims_.push({next_use(u, step), u});
    }

    const Problem& problem_;
    const Image& image_;
    std::uint64_t budget_ = 0;
    std::vector<std::uint32_t> step_begin_, step_cells_, readers_begin_,
        readers_;  // CSR: cells of a step, steps of a cell
    std::vector<Unit> units_;
    std::vector<std::uint32_t> accesses_begin_, accesses_;  // CSR: units of a step
    std::vector<std::uint32_t> slot_of_, use_at_, evicted_, brought_;
    std::vector<std::uint8_t> present_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> free_;             // slot, last reader of what was there
    std::priority_queue<std::pair<std::uint32_t, std::uint32_t>> victims_;  // next use, unit; none is the greatest
    std::vector<double> step_end_, arrival_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
