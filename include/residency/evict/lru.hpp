// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/linked_lists.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the least recently used storage. A cyclic order that does not fit has no hits.
class Lru {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { list_.push_front(index(id)); }
    void used(StorageId id, StepIndex) noexcept {
        if (list_.front() != index(id)) { list_.move_front(index(id)); }
    }
    void removed(StorageId id) noexcept { list_.unlink(index(id)); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        for (auto item = list_.back(); item != list_.end(); item = list_.previous(item)) {
            if (may_leave(StorageId{item})) { return StorageId{item}; }
        }
        return std::nullopt;
    }
    /// @}

private:
    LinkedLists list_;  // storages on the device, the most recently used first
};
static_assert(EvictionPolicy<Lru>);

}}}  // namespace residency::RESIDENCY_ABI::evict
