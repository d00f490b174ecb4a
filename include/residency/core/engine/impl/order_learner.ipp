// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "residency/core/engine/order_learner.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

namespace detail {

// The storages that some weights lie on, ascending, each once.
inline std::vector<StorageId> storages_of(const Catalog& catalog, std::span<const WeightId> weights) {
    std::vector<StorageId> storages;
    storages.reserve(weights.size());
    for (const WeightId weight : weights) { storages.push_back(catalog.storage_of(weight)); }
    residency::detail::sort(storages);
    storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
    return storages;
}

// Whether the acquisitions are steps of the schedule, in its order; it may have others between them.
inline bool follows(const Schedule& schedule, std::span<const std::vector<StorageId>> acquisitions) {
    std::size_t next = 0;
    for (const Schedule::Step& step : schedule) {
        if (next == acquisitions.size()) { return true; }
        const std::vector<StorageId>& read = acquisitions[next];
        const bool is_step = step.storages.size() == read.size() &&
                             std::all_of(step.storages.begin(), step.storages.end(), [&](StorageId storage) {
                                 return std::binary_search(read.begin(), read.end(), storage);
                             });
        next += is_step ? 1 : 0;
    }
    return next == acquisitions.size();
}

}  // namespace detail

RESIDENCY_INLINE std::optional<Schedule> OrderLearner::propose(const Catalog& catalog, const Schedule& current,
                                                               std::span<const StepRecord> recorded,
                                                               bool has_diverged) {
    if (!learns_) { return std::nullopt; }
    if (!is_recording_) {
        is_recording_ = has_diverged;
        return std::nullopt;
    }
    std::vector<std::vector<StorageId>> acquisitions;
    std::vector<StepRecord> steps;
    for (const StepRecord& record : recorded) {
        auto storages = detail::storages_of(catalog, record.weights);
        // What the step before covers is still that step.
        if (storages.empty() ||
            (!acquisitions.empty() &&
             std::includes(acquisitions.back().begin(), acquisitions.back().end(), storages.begin(), storages.end()))) {
            continue;
        }
        acquisitions.push_back(std::move(storages));
        steps.push_back(record);
    }
    if (steps.empty()) { return std::nullopt; }
    is_recording_ = false;
    if (detail::follows(current, acquisitions)) {
        origin_ = OrderOrigin::learned;
        return std::nullopt;
    }
    auto schedule = Schedule::try_recorded(catalog, steps);
    if (!schedule) {
        stop();
        return std::nullopt;
    }
    is_recording_ = true;  // until it is adopted
    return std::move(*schedule);
}

RESIDENCY_INLINE Error OrderLearner::explain(const Error& error) const {
    const auto* divergence = error.detail<Divergence>();
    if (divergence == nullptr || origin_ == OrderOrigin::declared) { return error; }
    return {error.kind(),
            error.message() + "; no schedule was given, and this order is " +
                (origin_ == OrderOrigin::learned ? "that of a pass before" : "guessed from the names of the weights") +
                ": give Options::schedule",
            *divergence};
}

}}}  // namespace residency::RESIDENCY_ABI::core
