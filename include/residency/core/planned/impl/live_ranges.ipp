// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>

#include "residency/core/planned/chunk_table.hpp"
#include "residency/core/planned/live_ranges.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

namespace detail {

// By call: the position, in its pass, of the step whose end the call waits for. Calls run in order, so that a call also waits for what the calls
// before it wait for, those of the pass before included. none: it waits for nothing.
[[nodiscard]] inline std::vector<std::uint32_t> awaited_steps(const plan::Plan& plan) {
    const auto steps = std::int64_t{plan.steps()};
    std::vector<std::uint32_t> awaited(plan.calls().size(), plan::none);
    std::int64_t latest = (std::numeric_limits<std::int64_t>::min)();
    for (std::int64_t pass = plan.is_cyclic() ? -1 : 0; pass <= 0; ++pass) {
        for (std::size_t k = 0; k < awaited.size(); ++k) {
            const plan::Wait& wait = plan.calls()[k].wait;
            if (wait.exists()) { latest = (std::max)(latest, (pass + wait.pass) * steps + wait.step); }
            if (latest != (std::numeric_limits<std::int64_t>::min)()) {
                awaited[k] = static_cast<std::uint32_t>((latest % steps + steps) % steps);
            }
        }
    }
    return awaited;
}

}  // namespace detail

RESIDENCY_INLINE LiveRanges::LiveRanges(const plan::Plan& plan, const UseOrder& reads)
    : reads_{reads}, of_step_(plan.steps()), longest_(plan.steps()), offsets_(plan.steps()) {
    const std::vector<std::uint32_t> awaited = detail::awaited_steps(plan);
    std::vector<std::vector<std::uint32_t>> calls_of(plan.steps());  // by step: the calls that wait for its end
    for (std::uint32_t k = 0; k < awaited.size(); ++k) {
        if (awaited[k] != plan::none) { calls_of[awaited[k]].push_back(k); }
    }
    // From the last step to the first: by slot, the next step after which it is overwritten.
    const std::uint32_t end = plan.steps() - 1;
    std::vector<std::uint32_t> until(plan.slots_held(), end);
    std::size_t entries = 0;
    for (std::uint32_t step = 0; step < plan.steps(); ++step) {
        offsets_[step] = entries;
        entries += reads.storages_at(step).size();
    }
    last_.resize(entries);
    for (std::uint32_t step = plan.steps(); step-- > 0;) {
        for (const std::uint32_t k : calls_of[step]) {
            for_each_chunk(plan, plan.copies(plan.calls()[k]),
                           [&](std::uint32_t chunk) { until[plan.slot_of_chunk(chunk)] = step; });
        }
        of_step_[step] = end;
        longest_[step] = step;
        std::size_t entry = offsets_[step];
        for (const StorageId id : reads.storages_at(step)) {
            std::uint32_t last = end;
            for (const std::uint32_t chunk : plan.chunks_of_storage(index(id))) {
                const std::uint32_t slot = plan.slot_of_chunk(chunk);
                if (slot != plan::none) { last = (std::min)(last, until[slot]); }
            }
            last_[entry++] = last;
            of_step_[step] = (std::min)(of_step_[step], last);
            longest_[step] = (std::max)(longest_[step], last);
        }
    }
}

RESIDENCY_INLINE std::uint32_t LiveRanges::of(std::uint32_t step, std::span<const StorageId> storages) const noexcept {
    if (step >= longest_.size() || longest_[step] == step) { return step; }
    const std::span<const StorageId> row = reads_.storages_at(step);
    std::uint32_t last = static_cast<std::uint32_t>(of_step_.size()) - 1;
    for (const StorageId id : storages) {
        const auto at = std::find(row.begin(), row.end(), id);
        if (at == row.end()) { return step; }
        last = (std::min)(last, last_[offsets_[step] + static_cast<std::size_t>(at - row.begin())]);
    }
    return last;
}

}}}  // namespace residency::RESIDENCY_ABI::core
