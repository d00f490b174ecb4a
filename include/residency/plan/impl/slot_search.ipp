// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/slot_search.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

inline std::vector<double> seconds_of_steps(const Problem& problem) {
    std::vector<double> seconds = problem.compute_seconds;
    seconds.resize(problem.steps(), 0.0);
    return seconds;
}

}  // namespace detail

RESIDENCY_INLINE SlotSearch::SlotSearch(const Problem& problem, const Image& image, std::uint64_t budget_chunks,
                                        bool captured, const SearchLimits& limits)
    : limits_{limits},
      calls_{detail::seconds_of_steps(problem), problem.link.bytes_per_second / static_cast<double>(image.chunk_bytes),
             captured ? problem.link.node_latency_seconds : problem.link.latency_seconds, captured} {
    std::vector<std::uint64_t> bytes(image.chunks(), 0);
    for (const ImageRange& range : filled_ranges(problem, image)) {
        for (const std::uint32_t c : chunks_of(range.begin, range.end, image.chunk_bytes)) {
            const std::uint64_t begin = c * image.chunk_bytes;
            bytes[c] += (std::min)(range.end, begin + image.chunk_bytes) - (std::max)(range.begin, begin);
        }
    }
    items_.reserve(image.chunks());
    for (const Cell& cell : image.cells) {
        for (std::uint32_t c = cell.chunk_begin; c < cell.chunk_end && !cell.keep; ++c) {
            items_.push_back(
                {cell.first, cell.last, c, 1 - static_cast<double>(bytes[c]) / static_cast<double>(image.chunk_bytes)});
        }
    }
    slots_ = static_cast<std::uint32_t>((std::min<std::uint64_t>)(budget_chunks - image.kept_chunks(), items_.size()));
    residency::detail::sort(items_, [](const Item& a, const Item& b) {
        if (a.first != b.first) { return a.first < b.first; }
        return a.last != b.last ? a.last < b.last : a.chunk < b.chunk;
    });
}

RESIDENCY_INLINE void SlotSearch::start(const std::vector<std::uint32_t>& chunk_slot) {
    std::vector<std::uint32_t> number(chunk_slot.size() + 1, none);  // of a slot of the other plan
    std::uint32_t count = 0;
    Slots slots;
    slots.joins.assign(items_.size(), 0);
    slots.of.reserve(items_.size());
    for (const Item& item : items_) {
        const std::uint32_t slot = chunk_slot[item.chunk];
        if (slot >= number.size()) { return; }
        if (number[slot] == none) { number[slot] = count++; }
        slots.of.push_back(number[slot]);
    }
    if (count > slots_) { return; }
    const double seconds = evaluate(slots, best_seconds_);
    if (seconds >= best_seconds_) { return; }
    best_ = std::move(slots);
    best_seconds_ = seconds;
}

RESIDENCY_INLINE void SlotSearch::search() {
    if (best_seconds_ == RingCalls::impossible) { return; }
    const std::uint64_t count = items_.size();
    const std::uint64_t most = (std::min)(tuning::slots_work(limits_.effort),
                                          tuning::slots_work_cube * count * count * count);  // few items have few plans
    travel(
        best_, best_seconds_, limits_, most, [&](Slots& slots, Random& random) { change(slots, random); },
        [&](const Slots& slots, double give_up) { return evaluate(slots, give_up); },
        [&] { return built_ + calls_.work(); });
}

// One random change: of each twenty, eight give a chunk another slot, six swap two chunks, four swap what two slots hold from some
// step on, and two join or part calls.
RESIDENCY_INLINE void SlotSearch::change(Slots& slots, Random& random) const {
    const std::uint64_t kind = random(20);
    const auto a = static_cast<std::size_t>(random(items_.size()));
    if (kind < 8) {
        slots.of[a] = static_cast<std::uint32_t>(random(slots_));
    } else if (kind < 14) {
        std::swap(slots.of[a], slots.of[static_cast<std::size_t>(random(items_.size()))]);
    } else if (kind < 18) {
        const std::uint32_t one = slots.of[a], other = static_cast<std::uint32_t>(random(slots_));
        for (std::size_t k = 0; k < items_.size(); ++k) {
            if (items_[k].first < items_[a].first) { continue; }
            if (slots.of[k] == one) {
                slots.of[k] = other;
            } else if (slots.of[k] == other) {
                slots.of[k] = one;
            }
        }
    } else {
        slots.joins[a] ^= 1U;
    }
}

// Seconds per pass; impossible where chunks of one slot are read at the same time or a call would wait for a step that needs it. Above
// `give_up`: a lower bound.
RESIDENCY_INLINE double SlotSearch::evaluate(const Slots& slots, double give_up) {
    built_ += tuning::evaluation_work + items_.size();
    if (!take_slots(slots) || !make_calls(slots, RingCalls::Keeps::times)) { return RingCalls::impossible; }
    return calls_.seconds(give_up);
}

// Which items stream, in the order of the copy stream. False where two of one slot are read at the same time.
RESIDENCY_INLINE bool SlotSearch::take_slots(const Slots& slots) {
    first_in_.assign(slots_, none);
    last_in_.assign(slots_, none);
    before_.assign(items_.size(), none);
    for (std::uint32_t k = 0; k < items_.size(); ++k) {
        const std::uint32_t slot = slots.of[k];
        if (last_in_[slot] == none) {
            first_in_[slot] = k;
        } else if (items_[last_in_[slot]].last >= items_[k].first) {
            return false;
        }
        before_[k] = last_in_[slot];
        last_in_[slot] = k;
    }
    stream_.clear();
    for (std::uint32_t k = 0; k < items_.size(); ++k) {
        const std::uint32_t slot = slots.of[k];
        if (first_in_[slot] == last_in_[slot]) { continue; }
        const bool previous = before_[k] == none;
        const std::uint32_t wait = items_[previous ? last_in_[slot] : before_[k]].last;
        const std::uint64_t key =
            std::uint64_t{items_[k].first} << 33U | std::uint64_t{previous ? 0U : 1U} << 32U | wait;
        stream_.push_back({key, k, wait, previous});
        for (std::size_t at = stream_.size() - 1; at > 0 && stream_[at - 1].key > stream_[at].key; --at) {
            std::swap(stream_[at - 1], stream_[at]);
        }
    }
    return true;
}

// Items of a step that follow the same release share a call, and those that are joined. False where a call would wait for a step that
// needs it.
RESIDENCY_INLINE bool SlotSearch::make_calls(const Slots& slots, RingCalls::Keeps keeps) {
    calls_.clear(keeps);
    for (const Streamed& one : stream_) {
        const Item& item = items_[one.item];
        const RingPiece piece{item.chunk, 1, slots.of[one.item], item.first, one.wait, one.previous, item.missing};
        if (!calls_.add(piece, slots.joins[one.item] != 0 ? Joins::if_possible : Joins::same_release)) { return false; }
    }
    return true;
}

RESIDENCY_INLINE RingAssignment SlotSearch::assignment() {
    static_cast<void>(take_slots(best_) && make_calls(best_, RingCalls::Keeps::pieces));
    RingAssignment out = calls_.assignment(0);
    std::vector<std::uint32_t> number(slots_, none);  // of the slots that several share
    for (std::uint32_t& slot : out.slots) {
        if (number[slot] == none) { number[slot] = out.slots_used++; }
        slot = number[slot];
    }
    return out;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
