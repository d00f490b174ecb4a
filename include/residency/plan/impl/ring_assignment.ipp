// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "residency/model/sort.hpp"
#include "residency/plan/ring_assignment.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE std::vector<ImageRange> filled_ranges(const Problem& problem, const Image& image) {
    std::vector<ImageRange> filled;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (problem.storage_bytes[s] != 0) {
            filled.push_back({image.offsets[s], image.offsets[s] + problem.storage_bytes[s]});
        }
    }
    residency::detail::sort(filled);
    std::size_t kept = 0;
    for (std::size_t k = 1; k < filled.size(); ++k) {
        if (filled[k].begin < filled[kept].end + (std::max<std::uint64_t>)(1, problem.alignment_bytes)) {
            filled[kept].end = filled[k].end;
        } else {
            filled[++kept] = filled[k];
        }
    }
    if (!filled.empty()) { filled.resize(kept + 1); }
    return filled;
}

RESIDENCY_INLINE void count_step_calls(PlanData& plan) {
    plan.step_calls.assign(plan.steps, 0);
    for (const Call& call : plan.calls) { ++plan.step_calls[call.needed_by]; }
    for (std::uint32_t i = 1; i < plan.steps; ++i) { plan.step_calls[i] += plan.step_calls[i - 1]; }
}

namespace detail {

/// Turns one assignment into one plan. Every chunk that a copy brings has its slot before the copy is written.
class Assembly {
public:
    Assembly(const Problem& problem, const Image& image, const RingAssignment& assignment, bool captured)
        : problem_{problem},
          image_{image},
          assignment_{assignment},
          filled_{filled_ranges(problem, image)},
          is_streamed_(image.chunks(), false),
          is_alone_(image.chunks(), false) {
        data_.cyclic = problem.cyclic;
        data_.captured = captured;
        data_.chunk_bytes = image.chunk_bytes;
        data_.image_bytes = image.bytes;
        data_.steps = problem.steps();
        data_.storage_offsets = image.offsets;
        data_.storage_bytes = problem.storage_bytes;
        data_.chunk_slot.assign(image.chunks(), none);
    }

    PlanData run() {
        std::uint32_t slots = assignment_.slots_used;
        if (problem_.cyclic) { find_alone(); }
        write_calls();
        if (problem_.cyclic) {
            slots = write_all_that_stays();
        } else {
            write_listed_residents();
        }
        data_.held_bytes = slots * image_.chunk_bytes;
        count_step_calls(data_);
        for (const Copy& copy : data_.copies) { data_.bytes_per_pass += copy.bytes(); }
        return std::move(data_);
    }

private:
    [[nodiscard]] std::uint32_t slot_of(const RingAssignment::Move& move, std::uint32_t chunk) const {
        return assignment_.slots[move.slots_begin + (chunk - move.chunk_begin)];
    }

    // Chunks that share their slot with no other one: they need not come back.
    void find_alone() {
        std::vector<std::uint32_t> user(assignment_.slots_used, none);
        std::vector<bool> is_shared(assignment_.slots_used, false);
        for (const RingAssignment::Move& move : assignment_.moves) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) {
                const std::uint32_t slot = slot_of(move, c);
                if (user[slot] != none && user[slot] != c) { is_shared[slot] = true; }
                user[slot] = c;
            }
        }
        for (std::uint32_t slot = 0; slot < assignment_.slots_used; ++slot) {
            if (user[slot] == none || is_shared[slot]) { continue; }
            is_alone_[user[slot]] = true;
            vacant_.push_back(slot);
        }
    }

    // One copy for each filled part of chunks [begin, end).
    void write_copies(std::vector<Copy>& to, std::uint32_t begin, std::uint32_t end, std::uint32_t needed_by) const {
        const std::uint64_t low = begin * image_.chunk_bytes, high = end * image_.chunk_bytes;
        auto range = std::upper_bound(filled_.begin(), filled_.end(), low,
                                      [](std::uint64_t x, const ImageRange& r) { return x < r.end; });
        for (; range != filled_.end() && range->begin < high; ++range) {
            to.push_back({(std::max)(low, range->begin), (std::min)(high, range->end), needed_by});
        }
    }

    // Neighbouring chunks of one call are one copy. A call of which nothing is left hands its wait on to the next one.
    void write_calls() {
        const std::vector<RingAssignment::Move>& moves = assignment_.moves;
        Wait handed_on;
        for (std::size_t m = 0; m < moves.size();) {
            Call call;
            call.copies_begin = static_cast<std::uint32_t>(data_.copies.size());
            call.wait = moves[m].wait;
            call.needed_by = moves[m].needed_by;
            const std::uint32_t number = moves[m].call;
            while (m < moves.size() && moves[m].call == number) {
                std::size_t next = m + 1;
                while (next < moves.size() && moves[next].call == number &&
                       moves[next].chunk_begin == moves[next - 1].chunk_end) {
                    ++next;
                }
                write_neighbours(m, next);
                m = next;
            }
            call.copies_end = static_cast<std::uint32_t>(data_.copies.size());
            if (is_before(call.wait, handed_on)) { call.wait = handed_on; }
            if (call.copies_begin == call.copies_end) {
                handed_on = call.wait;
                continue;
            }
            handed_on = {};
            // Calls stay in the order of the steps that need them.
            Copy& first = data_.copies[call.copies_begin];
            first.needed_by = (std::min)(call.needed_by, first.needed_by);
            if (!data_.captured) {
                data_.calls.push_back(call);
                continue;
            }
            for (std::uint32_t k = call.copies_begin; k < call.copies_end; ++k) {
                data_.calls.push_back({k, k + 1, call.wait, data_.copies[k].needed_by});
            }
        }
    }
    static bool is_before(const Wait& a, const Wait& b) {
        if (!a.exists() || !b.exists()) { return b.exists(); }
        return a.pass != b.pass ? a.pass < b.pass : a.step < b.step;
    }

    // Moves [begin, end), whose chunks are consecutive, without those that stay.
    void write_neighbours(std::size_t begin, std::size_t end) {
        const std::vector<RingAssignment::Move>& moves = assignment_.moves;
        for (std::size_t m = begin; m < end; ++m) {
            for (std::uint32_t c = moves[m].chunk_begin; c < moves[m].chunk_end; ++c) {
                if (is_alone_[c]) { continue; }
                data_.chunk_slot[c] = slot_of(moves[m], c);
                is_streamed_[c] = true;
            }
        }
        const std::uint32_t last = moves[end - 1].chunk_end;
        for (std::uint32_t c = moves[begin].chunk_begin; c < last;) {
            std::uint32_t stop = c;
            while (stop < last && !is_alone_[stop]) { ++stop; }
            while (moves[begin].chunk_end <= c) { ++begin; }
            if (stop > c) { write_copies(data_.copies, c, stop, moves[begin].needed_by); }
            c = stop + 1;
        }
    }

    void write_listed_residents() {
        std::vector<RingAssignment::Move> residents = assignment_.residents;
        residency::detail::sort(residents, [](const RingAssignment::Move& a, const RingAssignment::Move& b) {
            return a.needed_by != b.needed_by ? a.needed_by < b.needed_by : a.chunk_begin < b.chunk_begin;
        });
        for (const RingAssignment::Move& move : residents) {
            for (std::uint32_t c = move.chunk_begin; c < move.chunk_end; ++c) {
                data_.chunk_slot[c] = slot_of(move, c);
            }
            write_copies(data_.residents, move.chunk_begin, move.chunk_end, move.needed_by);
        }
    }

    // All that does not stream, in the order of its first use, on slots of its own. Returns the number of slots held.
    std::uint32_t write_all_that_stays() {
        struct Run {
            std::uint32_t first, begin, end;  // first reader, chunks
        };
        std::vector<Run> runs;
        for (const Cell& cell : image_.cells) {
            for (std::uint32_t c = cell.chunk_begin; c < cell.chunk_end; ++c) {
                if (is_streamed_[c]) { continue; }
                if (!runs.empty() && runs.back().end == c && runs.back().first == cell.first) {
                    ++runs.back().end;
                } else {
                    runs.push_back({cell.first, c, c + 1});
                }
            }
        }
        residency::detail::sort(runs, [](const Run& a, const Run& b) {
            return a.first != b.first ? a.first < b.first : a.begin < b.begin;
        });
        std::uint32_t slots = assignment_.slots_used;
        for (const Run& run : runs) {
            for (std::uint32_t c = run.begin; c < run.end; ++c) {
                if (vacant_.empty()) {
                    data_.chunk_slot[c] = slots++;
                } else {
                    data_.chunk_slot[c] = vacant_.back();
                    vacant_.pop_back();
                }
            }
            write_copies(data_.residents, run.begin, run.end, run.first);
        }
        return slots;
    }

    const Problem& problem_;
    const Image& image_;
    const RingAssignment& assignment_;
    const std::vector<ImageRange> filled_;
    std::vector<bool> is_streamed_, is_alone_;  // by chunk of the image
    std::vector<std::uint32_t> vacant_;         // slots of the chunks that are alone on theirs
    PlanData data_;
};

}  // namespace detail

RESIDENCY_INLINE PlanData assemble(const Problem& problem, const Image& image, const RingAssignment& assignment,
                                   bool captured) {
    return detail::Assembly{problem, image, assignment, captured}.run();
}

}}}  // namespace residency::RESIDENCY_ABI::plan
