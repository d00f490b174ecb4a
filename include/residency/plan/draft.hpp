// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// What a planner of chunks decides; assemble() turns it into a plan.
struct Draft {
    struct Move {
        std::uint32_t chunk_begin = 0, chunk_end = 0;
        std::uint32_t needed_by = 0;
        Wait wait;
        std::uint32_t call = 0;         ///< counts up
        std::uint64_t slots_begin = 0;  ///< of `slots`, one entry a chunk
    };
    std::vector<Move> moves;      ///< in copy-stream order
    std::vector<Move> residents;  ///< what is there at the start, where that is not what no move brings
    bool explicit_residents = false;
    std::vector<std::uint32_t> slots;
    std::uint32_t slots_used = 0;  ///< by the moves: [0, slots_used); residents come after them
};

/// The bytes of an image that storages fill, as ranges without the gaps between them, ascending.
inline std::vector<std::pair<std::uint64_t, std::uint64_t>> filled_ranges(const Problem& problem, const Image& image) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> filled;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (problem.storage_bytes[s] != 0) {
            filled.emplace_back(image.offsets[s], image.offsets[s] + problem.storage_bytes[s]);
        }
    }
    std::sort(filled.begin(), filled.end());
    std::size_t kept = 0;
    for (std::size_t k = 1; k < filled.size(); ++k) {  // gaps below the alignment travel along
        if (filled[k].first < filled[kept].second + (std::max<std::uint64_t>)(1, problem.alignment_bytes)) {
            filled[kept].second = filled[k].second;
        } else {
            filled[++kept] = filled[k];
        }
    }
    if (!filled.empty()) { filled.resize(kept + 1); }
    return filled;
}

/// Residents, copies, calls and maps of a cyclic plan in chunks. Times and bounds are left to the caller.
inline PlanData assemble(const Problem& problem, const Image& image, const Draft& draft, bool captured) {
    PlanData data;
    data.layout = Layout::chunks;
    data.cyclic = problem.cyclic;
    data.captured = captured;
    data.chunk_bytes = image.chunk_bytes;
    data.image_bytes = image.bytes;
    data.steps = problem.steps();
    data.storage_offsets = image.offsets;
    data.storage_bytes = problem.storage_bytes;
    const std::uint64_t g = image.chunk_bytes;
    const auto filled = filled_ranges(problem, image);

    // One copy for each filled part of chunks [begin, end).
    const auto emit = [&](std::vector<Copy>& to, std::uint32_t begin, std::uint32_t end, std::uint32_t needed_by,
                          auto slot_of) {
        const std::uint64_t low = begin * g, high = end * g;
        auto range = std::upper_bound(filled.begin(), filled.end(), low,
                                      [](std::uint64_t x, const auto& r) { return x < r.second; });
        for (; range != filled.end() && range->first < high; ++range) {
            Copy copy{(std::max)(low, range->first), (std::min)(high, range->second), data.slots.size(), needed_by};
            for (const std::uint32_t c : chunks_of(copy.image_begin, copy.image_end, g)) {
                data.slots.push_back(slot_of(c));
            }
            to.push_back(copy);
        }
    };

    data.chunk_slot.assign(image.chunks(), none);
    std::vector<bool> streamed(image.chunks(), false);
    std::vector<std::uint32_t> slot_now(image.chunks(), none);
    bool is_static = true;
    const auto place = [&](std::uint32_t chunk, std::uint32_t slot) {
        is_static = is_static && (data.chunk_slot[chunk] == none || data.chunk_slot[chunk] == slot);
        data.chunk_slot[chunk] = slot_now[chunk] = slot;
    };
    // A chunk that always comes back to a slot of its own need not come back: it stays there.
    std::vector<bool> stays(image.chunks(), false);
    std::vector<std::uint32_t> vacant;
    if (problem.cyclic) {
        std::vector<std::uint32_t> user(draft.slots_used, none);
        std::vector<bool> is_shared(draft.slots_used, false);
        for (const Draft::Move& move : draft.moves) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) {
                const std::uint32_t slot = draft.slots[move.slots_begin + (c - move.chunk_begin)];
                if (user[slot] != none && user[slot] != c) { is_shared[slot] = true; }
                user[slot] = c;
            }
        }
        for (std::uint32_t slot = 0; slot < draft.slots_used; ++slot) {
            if (user[slot] == none || is_shared[slot]) { continue; }
            stays[user[slot]] = true;
            vacant.push_back(slot);
        }
    }
    Wait carried;  // of calls of which nothing is left: the next one waits in their place
    for (std::size_t m = 0; m < draft.moves.size();) {
        Call call;
        call.copies_begin = static_cast<std::uint32_t>(data.copies.size());
        call.wait = draft.moves[m].wait;
        call.needed_by = draft.moves[m].needed_by;
        const std::uint32_t number = draft.moves[m].call;
        for (; m < draft.moves.size() && draft.moves[m].call == number;) {
            std::uint32_t end = draft.moves[m].chunk_end;
            std::size_t next = m + 1;
            while (next < draft.moves.size() && draft.moves[next].call == number &&
                   draft.moves[next].chunk_begin == end) {
                end = draft.moves[next++].chunk_end;
            }
            for (std::size_t k = m; k < next; ++k) {
                for (std::uint32_t c = draft.moves[k].chunk_begin; c < draft.moves[k].chunk_end; ++c) {
                    if (stays[c]) { continue; }
                    place(c, draft.slots[draft.moves[k].slots_begin + (c - draft.moves[k].chunk_begin)]);
                    streamed[c] = true;
                }
            }
            std::size_t first = m;
            for (std::uint32_t c = draft.moves[m].chunk_begin; c < end;) {
                std::uint32_t stop = c;
                while (stop < end && !stays[stop]) { ++stop; }
                while (draft.moves[first].chunk_end <= c) { ++first; }
                if (stop > c) {
                    emit(data.copies, c, stop, draft.moves[first].needed_by,
                         [&](std::uint32_t at) { return slot_now[at]; });
                }
                c = stop + 1;
            }
            m = next;
        }
        call.copies_end = static_cast<std::uint32_t>(data.copies.size());
        const auto order = [](const Wait& wait) {
            return wait.exists() ? std::pair{wait.pass, std::int64_t{wait.step}} : std::pair{-2, std::int64_t{0}};
        };
        if (order(call.wait) < order(carried)) { call.wait = carried; }
        if (call.copies_begin == call.copies_end) {
            carried = call.wait;
            continue;
        }
        carried = {};
        // Calls stay in the order of what needs them.
        data.copies[call.copies_begin].needed_by = (std::min)(call.needed_by, data.copies[call.copies_begin].needed_by);
        if (!captured) {
            data.calls.push_back(call);
            continue;
        }
        for (std::uint32_t k = call.copies_begin; k < call.copies_end; ++k) {
            data.calls.push_back({k, k + 1, call.wait, data.copies[k].needed_by});
        }
    }

    std::uint32_t slot = draft.slots_used;
    if (draft.explicit_residents) {
        std::vector<Draft::Move> residents = draft.residents;
        std::sort(residents.begin(), residents.end(), [](const Draft::Move& a, const Draft::Move& b) {
            return a.needed_by != b.needed_by ? a.needed_by < b.needed_by : a.chunk_begin < b.chunk_begin;
        });
        for (const Draft::Move& move : residents) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) {
                place(c, draft.slots[move.slots_begin + (c - move.chunk_begin)]);
            }
            emit(data.residents, move.chunk_begin, move.chunk_end, move.needed_by,
                 [&](std::uint32_t c) { return slot_now[c]; });
        }
    }

    // Residents, in the order of their first use.
    struct Kept {
        std::uint32_t first, begin, end;
    };
    std::vector<Kept> kept;
    for (const Cell& cell : image.cells) {
        for (std::uint32_t c = cell.chunk_begin; c < cell.chunk_end; ++c) {
            if (streamed[c] || draft.explicit_residents) { continue; }
            if (!kept.empty() && kept.back().end == c && kept.back().first == cell.first) {
                ++kept.back().end;
            } else {
                kept.push_back({cell.first, c, c + 1});
            }
        }
    }
    std::sort(kept.begin(), kept.end(),
              [](const Kept& a, const Kept& b) { return a.first != b.first ? a.first < b.first : a.begin < b.begin; });
    for (const Kept& run : kept) {
        for (std::uint32_t c = run.begin; c < run.end; ++c) {
            if (vacant.empty()) {
                place(c, slot++);
            } else {
                place(c, vacant.back());
                vacant.pop_back();
            }
        }
        emit(data.residents, run.begin, run.end, run.first, [&](std::uint32_t c) { return slot_now[c]; });
    }
    data.held_bytes = slot * g;
    if (!is_static) { data.chunk_slot.clear(); }

    data.step_calls.assign(data.steps, 0);
    for (const Call& call : data.calls) { ++data.step_calls[call.needed_by]; }
    for (std::uint32_t i = 1; i < data.steps; ++i) { data.step_calls[i] += data.step_calls[i - 1]; }
    for (const Copy& copy : data.copies) { data.bytes_per_pass += copy.bytes(); }
    return data;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
