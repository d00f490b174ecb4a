// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/search.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Searches cyclic plans of few chunks by the slot of each one, without a ring: a chunk that shares its slot with others streams, one that
/// is alone stays. So what stays is chosen by what it saves a pass, also where the link idles in one part of the pass and cannot
/// keep up in another, and where whole chunks are a large part of the budget. Changes slots and joins calls at random, and also takes what
/// costs a little (travel()). Deterministic; its result never gets slower with more work.
class SlotSearch {
public:
    /// `budget_chunks` counts kept chunks too.
    SlotSearch(const Problem& problem, const Image& image, std::uint64_t budget_chunks, bool captured,
               const SearchLimits& limits);

    /// Considers the slots that another plan gives the chunks of the image. Kept chunks count for nothing.
    void start(const std::vector<std::uint32_t>& chunk_slot);
    /// Searches from the best start, if there was one that works.
    void search();
    /// Of the best plan found, per pass; RingCalls::impossible where there is none.
    [[nodiscard]] double seconds() const noexcept { return best_seconds_; }
    /// The chunks and slots of the best plan found.
    [[nodiscard]] RingAssignment assignment();

private:
    struct Item {  // a chunk that may stream
        std::uint32_t first, last, chunk;
        double missing;  // the share of it that holds no bytes and is not copied
    };
    struct Slots {
        std::vector<std::uint32_t> of;    // by item
        std::vector<std::uint8_t> joins;  // by item: 1: in the call of the item before it in the copy stream
    };
    struct Streamed {        // an item that shares its slot
        std::uint64_t key;   // its place in the copy stream: step that needs it, pass and step of the release
        std::uint32_t item;  // in items_
        std::uint32_t wait;  // the step that releases the slot
        bool previous;       // that step is of the pass before
    };

    [[nodiscard]] double evaluate(const Slots& slots, double give_up);
    [[nodiscard]] bool take_slots(const Slots& slots);
    [[nodiscard]] bool make_calls(const Slots& slots, RingCalls::Keeps keeps);
    void change(Slots& slots, Random& random) const;

    const SearchLimits limits_;
    std::uint32_t slots_ = 0;
    RingCalls calls_;
    std::vector<Item> items_;  // by first reader
    Slots best_;
    double best_seconds_ = RingCalls::impossible;
    std::vector<std::uint32_t> first_in_, last_in_, before_;  // by slot; by item: the item before it in its slot
    std::vector<Streamed> stream_;                            // in the order of the copy stream
    std::uint64_t built_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/slot_search.ipp"
#endif
