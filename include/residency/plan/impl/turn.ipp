// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/tuning.hpp"
#include "residency/plan/turn.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

// Bytes times the steps for which they may be away, from each step on: that of the gap between two readers in which the pass begins.
inline std::vector<double> away_from(const Problem& problem) {
    const std::uint32_t n = problem.steps();
    std::vector<double> change(n + std::size_t{1}, 0.0);
    std::vector<std::uint32_t> first(problem.storages(), none), last(problem.storages(), none);
    std::vector<bool> kept(problem.storages(), false);
    for (const std::uint32_t s : problem.kept) { kept[s] = true; }
    // Passes that begin with one of the steps [begin, end).
    const auto add = [&](std::uint32_t s, std::uint32_t begin, std::uint32_t end, std::uint32_t gap) {
        const double value = static_cast<double>(problem.storage_bytes[s]) * gap;
        change[begin] += value;
        change[end] -= value;
    };
    for (std::uint32_t i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (kept[s] || last[s] == i) { continue; }
            if (first[s] == none) {
                first[s] = i;
            } else {
                add(s, last[s] + 1, i + 1, i - last[s]);
            }
            last[s] = i;
        }
    }
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (first[s] == none) { continue; }
        const std::uint32_t gap = n - last[s] + first[s];
        add(s, 0, first[s] + 1, gap);
        add(s, last[s] + 1, n, gap);
    }
    change.pop_back();
    for (std::uint32_t i = 1; i < n; ++i) { change[i] += change[i - 1]; }
    return change;
}

inline std::uint64_t least_floor(const Problem& problem) {
    std::uint64_t least = UINT64_MAX;
    for (const Image& image : candidate_images(problem)) {
        least = (std::min)(least, floor_chunks(image, problem.steps()).chunks);
    }
    return least;
}

RESIDENCY_INLINE std::uint32_t best_turn(const Problem& problem) {
    if (!problem.cyclic || problem.steps() < 2) { return 0; }
    const std::vector<double> away = away_from(problem);
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < problem.steps(); ++i) {  // of equal ones the last, which moves the fewest steps
        const double least = away[best] * (1 + tuning::turn_gain);
        if (best == 0 ? away[i] > least : away[i] >= away[best] * (1 - tuning::turn_gain)) { best = i; }
    }
    return best != 0 && least_floor(turned(problem, best)) < least_floor(problem) ? best : 0;
}

RESIDENCY_INLINE Problem turned(const Problem& problem, std::uint32_t step) {
    Problem result = problem;
    const std::uint32_t n = problem.steps();
    result.step_offsets.clear();
    result.step_storages.clear();
    result.step_storages.reserve(problem.step_storages.size());
    result.step_offsets.reserve(problem.step_offsets.size());
    for (std::uint32_t i = 0; i < n; ++i) { result.add_step(problem.reads(step_before_turn(i, step, n))); }
    if (!result.compute_seconds.empty()) {
        std::rotate(result.compute_seconds.begin(), result.compute_seconds.begin() + step,
                    result.compute_seconds.end());
    }
    return result;
}

// By chunk of the plan's image: the first step of a pass that reads it, or none.
inline std::vector<std::uint32_t> first_readers(const PlanData& plan, const Problem& problem) {
    const std::uint64_t g = plan.chunk_bytes;
    std::vector<std::uint32_t> first(plan.chunk_slot.size(), none);
    for (std::uint32_t i = problem.steps(); i-- > 0;) {
        for (const std::uint32_t s : problem.reads(i)) {
            if (plan.storage_bytes[s] == 0) { continue; }
            const std::uint64_t begin = plan.storage_offsets[s];
            for (const std::uint32_t c : chunks_of(begin, begin + plan.storage_bytes[s], g)) { first[c] = i; }
        }
    }
    return first;
}

RESIDENCY_INLINE PlanData turned_back(PlanData plan, const Problem& problem, std::uint32_t step) {
    const std::uint32_t n = problem.steps(), left = n - step;  // steps before the end of the pass
    const std::vector<std::uint32_t> first = first_readers(plan, problem);
    const auto is_of_next = [&](std::uint32_t turned_step) { return turned_step >= left; };
    const auto before = [&](std::uint32_t turned_step) { return step_before_turn(turned_step, step, n); };
    std::vector<Copy> copies;
    std::vector<Call> calls;
    copies.reserve(plan.copies.size());
    calls.reserve(plan.calls.size());
    std::size_t split = 0;  // the first call of the next pass
    while (split < plan.calls.size() && !is_of_next(plan.calls[split].needed_by)) { ++split; }
    for (std::size_t k = 0; k < plan.calls.size(); ++k) {
        Call call = plan.calls[(split + k) % plan.calls.size()];
        const bool is_next = is_of_next(call.needed_by);
        const std::uint32_t begin = call.copies_begin, end = call.copies_end;
        const std::uint32_t needed_by = before(call.needed_by);
        call.copies_begin = static_cast<std::uint32_t>(copies.size());
        for (std::uint32_t c = begin; c < end; ++c) {
            Copy copy = plan.copies[c];
            // A copy that is joined to an earlier one may be for the next pass: it comes in this one.
            copy.needed_by = is_of_next(copy.needed_by) == is_next ? before(copy.needed_by) : needed_by;
            copies.push_back(copy);
        }
        call.copies_end = static_cast<std::uint32_t>(copies.size());
        call.needed_by = needed_by;
        if (call.wait.exists()) {
            call.wait.pass += (is_of_next(call.wait.step) ? 1 : 0) - (is_next ? 1 : 0);
            call.wait.step = before(call.wait.step);
            // A step two passes before has ended where any step of the pass before has.
            if (call.wait.pass < -1) { call.wait = {0, -1}; }
        }
        calls.push_back(call);
    }
    // What stays, in the order of the pass, chunk by chunk where neighbours are needed by different steps; then what the first pass has to
    // begin with.
    std::vector<Copy> residents;
    const auto add_residents = [&](const Copy& copy, std::uint32_t end_step) {
        const std::uint64_t g = plan.chunk_bytes;
        for (const std::uint32_t c : chunks_of(copy.image_begin, copy.image_end, g)) {
            if (first[c] != none && first[c] >= end_step) { continue; }
            const std::uint64_t low = (std::max)(copy.image_begin, c * g),
                                high = (std::min)(copy.image_end, (c + 1) * g);
            if (low != copy.image_begin && !residents.empty() && residents.back().image_end == low &&
                residents.back().needed_by == first[c]) {
                residents.back().image_end = high;
            } else {
                residents.push_back({low, high, first[c]});
            }
        }
    };
    for (const Copy& copy : plan.residents) { add_residents(copy, none); }
    for (std::size_t k = 0; k < calls.size(); ++k) {
        if (calls[k].needed_by < step) { continue; }
        for (std::uint32_t c = calls[k].copies_begin; c < calls[k].copies_end; ++c) { add_residents(copies[c], step); }
    }
    residency::detail::sort(residents, [](const Copy& a, const Copy& b) {
        return a.needed_by != b.needed_by ? a.needed_by < b.needed_by : a.image_begin < b.image_begin;
    });
    plan.residents = std::move(residents);
    plan.copies = std::move(copies);
    plan.calls = std::move(calls);
    count_step_calls(plan);
    plan.cut = 0;
    return plan;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
