// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/config.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<Schedule> Schedule::try_with_compute(
    std::span<const std::optional<std::chrono::nanoseconds>> compute) const {
    if (compute.size() != size()) {
        return Error{ErrorKind::invalid_argument, std::to_string(compute.size()) + " durations for a schedule of " +
                                                      std::to_string(size()) + " steps"};
    }
    if (!data_) { return *this; }
    Content content = content_of(*data_);
    for (std::size_t i = 0; i < compute.size(); ++i) {
        if (compute[i] && compute[i]->count() < 0) {
            return Error{ErrorKind::invalid_argument, "step " + std::to_string(i) + ": a negative duration"};
        }
        if (!compute[i] && data_->steps[i].weights.empty()) {
            return Error{ErrorKind::invalid_argument,
                         "step " + std::to_string(i) + ": it has no weights, so give the time that it takes"};
        }
        content.compute_ns[i] = compute[i] ? compute[i]->count() : -1;
    }
    return Schedule{data_->catalog_hash,    data_->outline,  data_->storage_count,
                    data_->storage_offsets, data_->storages, std::move(content)};
}

RESIDENCY_INLINE Schedule::Schedule(std::uint64_t catalog_hash, std::shared_ptr<const CatalogOutline> outline,
                                    std::uint32_t storage_count, std::vector<std::uint64_t> storage_offsets,
                                    std::vector<StorageId> storages, Content content) {
    auto data = std::make_shared<Data>();
    static_cast<Content&>(*data) = std::move(content);
    data->catalog_hash = catalog_hash;
    data->outline = std::move(outline);
    data->storage_count = storage_count;
    data->storage_offsets = std::move(storage_offsets);
    data->storages = std::move(storages);
    data->steps.resize(data->compute_ns.size());
    for (std::size_t i = 0; i < data->steps.size(); ++i) {
        Step& step = data->steps[i];
        step.weights = slice(data->weights, data->weight_offsets, i);
        step.storages = slice(data->storages, data->storage_offsets, i);
        if (data->compute_ns[i] >= 0) { step.compute = std::chrono::nanoseconds{data->compute_ns[i]}; }
        const std::span<const char> name = slice(data->names, data->name_offsets, i);
        step.name = {name.data(), name.size()};
        step.position = static_cast<std::uint32_t>(i);
    }
    data_ = std::move(data);
}

RESIDENCY_INLINE Schedule Schedule::make(const Catalog& catalog, Content content) {
    std::vector<std::uint64_t> offsets{0};
    offsets.reserve(content.weight_offsets.size());
    std::vector<StorageId> storages;
    storages.reserve(content.weights.size());
    std::vector<std::uint32_t> seen_in(catalog.storages().size(), UINT32_MAX);
    for (std::size_t i = 0; i + 1 < content.weight_offsets.size(); ++i) {
        for (const WeightId id : slice(content.weights, content.weight_offsets, i)) {
            const StorageId storage = catalog.storage_of(id);
            if (std::exchange(seen_in[index(storage)], static_cast<std::uint32_t>(i)) != i) {
                storages.push_back(storage);
            }
        }
        offsets.push_back(storages.size());
    }
    return {catalog.hash(),     catalog.outline(),   static_cast<std::uint32_t>(catalog.storages().size()),
            std::move(offsets), std::move(storages), std::move(content)};
}

RESIDENCY_INLINE UseOrder Schedule::use_order(std::uint32_t steps) const {
    if (!data_) { return {}; }
    RESIDENCY_ASSERT(steps <= size(), "a pass ends after a step of the schedule");
    const auto offsets = std::span<const std::uint64_t>{data_->storage_offsets}.first(std::size_t{steps} + 1);
    return *UseOrder::try_from(offsets, std::span{data_->storages}.first(static_cast<std::size_t>(offsets.back())),
                               data_->storage_count, data_->cycle);
}

}}  // namespace residency::RESIDENCY_ABI
