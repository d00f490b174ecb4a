// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "benchmarks/lab/workload.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/model/use_order.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/problem.hpp"

namespace lab {

/// What plan/ needs to know of some of a workload's steps.
inline residency::plan::Problem problem_of(const Workload& work, const Card& card, std::size_t first,
                                           std::size_t last) {
    residency::plan::Problem problem;
    problem.link.bytes_per_second = card.link.to_device_bytes_per_second;
    problem.cyclic = work.is_known;
    problem.storage_bytes = work.bytes;
    for (std::uint32_t i = 0; i < work.resident.size(); ++i) {
        if (work.resident[i]) { problem.kept.push_back(i); }
    }
    std::vector<std::uint32_t> reads;
    for (std::size_t i = first; i < last; ++i) {
        reads.clear();
        for (const residency::StorageId id : work.steps[i].storages) { reads.push_back(index(id)); }
        problem.add_step(reads);
        problem.compute_seconds.push_back(std::chrono::duration<double>(work.compute(work.steps[i], card)).count());
    }
    return problem;
}

/// Seconds a pass that nothing beats inside the budget. Where the order is known: the exact bound of plan/. Otherwise of all
/// measured passes together, with the best contents to begin with: their compute time, and, where all streamed storages have one
/// size, the fewest that any choice has to bring (Belady's misses but for those that fill the budget).
inline double bound_of(const Workload& work, const Card& card, std::uint64_t budget_bytes) {
    if (work.is_known) {
        return residency::plan::exact_bound(problem_of(work, card, 0, work.steps.size()), budget_bytes, 600);
    }
    const std::size_t warm = work.pass_ends.size() / 3;
    const std::size_t first = warm == 0 ? 0 : work.pass_ends[warm - 1];
    const auto passes = static_cast<double>(work.pass_ends.size() - warm);
    double compute = 0;
    std::vector<residency::StorageId> accesses;
    std::uint64_t size = 0;
    bool is_even = true;
    for (std::size_t i = first; i < work.steps.size(); ++i) {
        compute += std::chrono::duration<double>(work.compute(work.steps[i], card)).count();
        for (const residency::StorageId id : work.steps[i].storages) {
            if (work.resident[index(id)]) { continue; }
            is_even = is_even && (size == 0 || size == work.bytes[index(id)]);
            size = work.bytes[index(id)];
            accesses.push_back(id);
        }
    }
    const std::uint64_t resident = work.resident_bytes();
    if (!is_even || size == 0 || budget_bytes < resident + size) { return compute / passes; }
    std::vector<std::uint64_t> offsets(accesses.size() + 1);
    for (std::size_t i = 0; i < offsets.size(); ++i) { offsets[i] = i; }
    const auto order = residency::UseOrder::try_from(offsets, accesses, static_cast<std::uint32_t>(work.bytes.size()),
                                                     residency::Cycle::one_shot);
    if (!order) { return compute / passes; }
    residency::evict::Belady belady;
    const std::uint64_t capacity = budget_bytes - resident;
    const auto counts = lab::trace::replay_cache(accesses, {work.bytes, capacity, &*order}, belady);
    if (!counts) { return compute / passes; }
    const std::uint64_t slots = capacity / size;
    const std::uint64_t brought = counts->misses > slots ? counts->misses - slots : 0;
    const double copies =
        static_cast<double>(brought) * static_cast<double>(size) / card.link.to_device_bytes_per_second;
    return std::max(compute, copies) / passes;
}

}  // namespace lab
