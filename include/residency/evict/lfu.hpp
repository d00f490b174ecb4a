// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/linked_lists.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the storage with the fewest uses since it was inserted; among equals the least recently used. Forgets the count of a
/// removed storage. The use for which a storage was inserted is its first; a prefetched storage ranks as if it had that use
/// already. O(1): one list for each count that occurs (Shah, Mitra & Matani 2010).
class Lfu {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        const std::size_t storages = context.bytes.size();
        const auto lists = static_cast<std::uint32_t>(storages) + 1;
        members_.attach(storages, lists);
        order_.attach(lists, 2);
        for (std::uint32_t list = 0; list < lists; ++list) { order_.push_back(list, spare); }
        uses_.assign(lists, 0);
        list_of_.assign(storages, 0);
        is_unused_.assign(storages, 0);
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        std::uint32_t list = order_.front();
        if (list == order_.end() || uses_[list] != 1) { list = take_list(1, order_.front()); }
        members_.push_back(index(id), list);
        list_of_[index(id)] = list;
        is_unused_[index(id)] = 1;
    }
    void used(StorageId id, StepIndex) noexcept {
        const std::uint32_t list = list_of_[index(id)];
        if (is_unused_[index(id)] != 0) {
            is_unused_[index(id)] = 0;
            members_.move_back(index(id), list);
            return;
        }
        const std::uint64_t uses = uses_[list] + 1;
        std::uint32_t next = order_.next(list);
        if (next == order_.end() || uses_[next] != uses) { next = take_list(uses, next); }
        members_.move_back(index(id), next);
        list_of_[index(id)] = next;
        give_back_if_empty(list);
    }
    void removed(StorageId id) noexcept {
        members_.unlink(index(id));
        give_back_if_empty(list_of_[index(id)]);
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        for (auto list = order_.front(); list != order_.end(); list = order_.next(list)) {
            for (auto item = members_.front(list); item != members_.end(list); item = members_.next(item)) {
                if (may_leave(StorageId{item})) { return StorageId{item}; }
            }
        }
        return std::nullopt;
    }
    /// @}

private:
    static constexpr std::uint32_t spare = 1;

    [[nodiscard]] std::uint32_t take_list(std::uint64_t uses, std::uint32_t before) noexcept {
        const std::uint32_t list = order_.front(spare);
        order_.unlink(list);
        order_.insert_before(before, list);
        uses_[list] = uses;
        return list;
    }
    void give_back_if_empty(std::uint32_t list) noexcept {
        if (members_.is_empty(list)) {
            order_.unlink(list);
            order_.push_front(list, spare);
        }
    }

    LinkedLists members_;                  // storages by list, the least recently used first
    LinkedLists order_;                    // list 0: the lists in use, by ascending count; list 1: the spare ones
    std::vector<std::uint64_t> uses_;      // by list: the count of its storages
    std::vector<std::uint32_t> list_of_;   // by storage: its list
    std::vector<std::uint8_t> is_unused_;  // by storage: 1 until the first use after the insertion
};
static_assert(EvictionPolicy<Lfu>);

}}}  // namespace residency::RESIDENCY_ABI::evict
