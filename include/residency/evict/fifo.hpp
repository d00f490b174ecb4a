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

/// Evicts the storage that has been on the device longest.
class Fifo {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { list_.push_front(index(id)); }
    void used(StorageId, StepIndex) noexcept {}
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
    LinkedLists list_;  // storages on the device, the last inserted first
};
static_assert(EvictionPolicy<Fifo>);

}}}  // namespace residency::RESIDENCY_ABI::evict
