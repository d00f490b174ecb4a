// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "residency/core/executor.hpp"
#include "residency/core/position.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/tenant.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a decider works with. The engine owns all of it and outlives the decider.
struct Ground {
    Catalog catalog;
    std::span<Tenant> tenants;  // by storage
    Counters* counters = nullptr;
    const UseOrder* order = nullptr;        // null: no schedule
    std::span<const std::uint32_t> groups;  // by storage: its layer
    bool poison = false;

    /// Counts an access to storage `id`, of `bytes` bytes on the device.
    void count_access(StorageId id, std::uint64_t bytes) const noexcept;
};

inline void Ground::count_access(StorageId id, std::uint64_t bytes) const noexcept {
    Tenant& tenant = tenants[index(id)];
    if (tenant.placement == Placement::host) { bytes = 0; }
    if (tenant.missed) {
        ++counters->demand_misses;
        counters->missed_bytes += bytes;
    } else if (tenant.fresh) {
        ++counters->prefetch_hits;
        counters->prefetch_hit_bytes += bytes;
    } else {
        ++counters->hits;
        counters->hit_bytes += bytes;
    }
    tenant.missed = tenant.fresh = false;
}

template <class D, class Transport>
struct Stage : Ground {
    D* device = nullptr;
    Executor<D, Transport>* executor = nullptr;
};

}}}  // namespace residency::RESIDENCY_ABI::core
