// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/problem.hpp"

namespace residency::inline RESIDENCY_ABI::core {

/// What there is to plan, as plain data: residents are pinned, storages that kernels read from the host have no bytes. Compute
/// times only where every step has one.
[[nodiscard]] inline plan::Problem make_problem(const Catalog& catalog, const Schedule& schedule,
                                                const plan::Link& link, std::uint64_t chunk_bytes) {
    plan::Problem problem;
    problem.link = link;
    problem.chunk_bytes = chunk_bytes;
    problem.cyclic = schedule.is_cyclic();
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const Storage& storage = catalog.storages()[i];
        problem.storage_bytes.push_back(storage.placement == Placement::host ? 0 : storage.bytes);
        problem.alignment_bytes = (std::max)(problem.alignment_bytes, storage.alignment_bytes);
        if (storage.placement == Placement::resident) { problem.pinned.push_back(i); }
    }
    bool timed = true;
    std::vector<std::uint32_t> reads;
    for (const Schedule::Step& step : schedule) {
        reads.clear();
        for (const StorageId id : step.storages) { reads.push_back(index(id)); }
        problem.add_step(reads);
        timed = timed && step.compute.has_value();
    }
    if (schedule.empty()) { problem.add_step({}); }
    if (timed && !schedule.empty()) {
        for (const Schedule::Step& step : schedule) {
            problem.compute_seconds.push_back(std::chrono::duration<double>(*step.compute).count());
        }
    }
    return problem;
}

}  // namespace residency::inline RESIDENCY_ABI::core
