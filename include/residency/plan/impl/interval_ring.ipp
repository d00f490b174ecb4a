// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "residency/model/sort.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/ring_calls.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// A slot that holds nothing that a step still reads. The one that was released first, then the one that was free first, is taken first.
struct FreeSlot {
    std::int64_t released_after;  // a step; −1: before this pass
    std::uint32_t rank, slot;

    friend auto operator<=>(const FreeSlot&, const FreeSlot&) = default;
};

}  // namespace detail

// A second sweep starts from the order in which the first one released the slots, so that a pass begins with the slots that the pass
// before left first.
RESIDENCY_INLINE bool interval_ring(const Image& image, const std::vector<bool>& hold, std::uint32_t slots,
                                    RingAssignment& assignment) {
    std::vector<std::uint32_t> cells;
    for (std::uint32_t c = 0; c < image.cells.size(); ++c) {
        if (!hold[c]) { cells.push_back(c); }
    }
    residency::detail::sort(cells, [&](std::uint32_t a, std::uint32_t b) {
        const Cell &x = image.cells[a], &y = image.cells[b];
        if (x.first != y.first) { return x.first < y.first; }
        return x.last != y.last ? x.last < y.last : a < b;
    });
    std::vector<std::uint32_t> order(slots);
    for (std::uint32_t s = 0; s < slots; ++s) { order[s] = s; }
    std::vector<std::uint32_t> last_reader(slots, none);
    std::vector<RingPiece> pieces;
    for (int sweep = 0; sweep < 2; ++sweep) {
        // A heap whose front is taken first.
        std::vector<detail::FreeSlot> free;
        free.reserve(slots);
        for (std::uint32_t k = 0; k < slots; ++k) { free.push_back({-1, k, order[k]}); }
        pieces.clear();
        std::fill(last_reader.begin(), last_reader.end(), none);
        for (const std::uint32_t c : cells) {
            const Cell& cell = image.cells[c];
            for (std::uint32_t chunk = cell.chunk_begin; chunk < cell.chunk_end; ++chunk) {
                if (free.empty()) { return false; }
                const auto [released, rank, slot] = free.front();
                if (released >= static_cast<std::int64_t>(cell.first)) { return false; }
                std::pop_heap(free.begin(), free.end(), std::greater<>{});
                const bool is_first = released < 0;  // then it waits for the pass before
                pieces.push_back(
                    {chunk, 1, slot, cell.first, is_first ? none : static_cast<std::uint32_t>(released), is_first});
                free.back() = {cell.last, slot, slot};
                std::push_heap(free.begin(), free.end(), std::greater<>{});
                last_reader[slot] = cell.last;
            }
        }
        for (RingPiece& piece : pieces) {
            if (piece.wait_previous) { piece.wait_step = last_reader[piece.slot]; }
        }
        residency::detail::sort(order, [&](std::uint32_t a, std::uint32_t b) {
            const auto rank = [&](std::uint32_t slot) {  // never read: first
                return last_reader[slot] == none ? std::int64_t{-1} : std::int64_t{last_reader[slot]};
            };
            return rank(a) != rank(b) ? rank(a) < rank(b) : a < b;
        });
    }
    // Waits never decrease where that is possible, so that pieces share a call.
    RingCalls calls{{}, 1, 0, false};
    for (std::size_t p = 0; p < pieces.size(); ++p) {
        if (p > 0) {
            const RingPiece& before = pieces[p - 1];
            RingPiece& piece = pieces[p];
            const bool is_later =
                before.wait_previous != piece.wait_previous ? piece.wait_previous : before.wait_step > piece.wait_step;
            if (is_later && (before.wait_previous || before.wait_step < piece.needed_by)) {
                piece.wait_step = before.wait_step;
                piece.wait_previous = before.wait_previous;
            }
        }
        static_cast<void>(calls.add(pieces[p], Joins::same_release));
    }
    assignment = calls.assignment(slots);
    return true;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
