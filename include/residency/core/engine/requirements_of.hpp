// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/storage.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What the streamed storages of a catalog require of a pool, where no steps are known. The spans of the result point into `sizes`.
[[nodiscard]] inline pool::Requirements requirements_of(const Catalog& catalog, std::vector<std::uint64_t>& sizes) {
    pool::Requirements requirements;
    sizes.clear();
    for (const Storage& storage : catalog.storages()) {
        if (storage.placement != Placement::streamed || storage.bytes == 0) { continue; }
        sizes.push_back(storage.bytes);
        requirements.largest_alignment_bytes =
            (std::max)(requirements.largest_alignment_bytes, storage.alignment_bytes);
    }
    requirements.storages = sizes;
    if (sizes.empty()) { return requirements; }
    const auto largest = std::max_element(sizes.begin(), sizes.end());
    requirements.step = {&*largest, 1};
    requirements.largest_storage_bytes = *largest;
    return requirements;
}

/// The bytes of the largest streamed storage that a step reads; 0: there is none.
[[nodiscard]] inline std::uint64_t largest_scheduled_bytes(const Catalog& catalog, const Schedule& schedule) {
    std::uint64_t largest = 0;
    for (const Schedule::Step& step : schedule) {
        for (const StorageId id : step.storages) {
            const Storage& storage = catalog.storage(id);
            if (storage.placement == Placement::streamed) { largest = (std::max)(largest, storage.bytes); }
        }
    }
    return largest;
}

}}}  // namespace residency::RESIDENCY_ABI::core
