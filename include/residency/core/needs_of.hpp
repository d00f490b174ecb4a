// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/storage.hpp"
#include "residency/pool/needs.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What the streamed storages of a catalog ask of a pool, where no steps are known. `sizes` gets what the result's spans lie over.
[[nodiscard]] inline pool::Needs needs_of(const Catalog& catalog, std::vector<std::uint64_t>& sizes) {
    pool::Needs needs;
    sizes.clear();
    for (const Storage& storage : catalog.storages()) {
        if (storage.placement != Placement::streamed || storage.bytes == 0) { continue; }
        sizes.push_back(storage.bytes);
        needs.largest_alignment_bytes = (std::max)(needs.largest_alignment_bytes, storage.alignment_bytes);
    }
    needs.storages = sizes;
    if (sizes.empty()) { return needs; }
    const auto largest = std::max_element(sizes.begin(), sizes.end());
    needs.step = {&*largest, 1};
    needs.largest_storage_bytes = *largest;
    return needs;
}

/// The bytes of the largest streamed storage that a step reads; 0: there is none.
[[nodiscard]] inline std::uint64_t largest_read_bytes(const Catalog& catalog, const Schedule& schedule) {
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
