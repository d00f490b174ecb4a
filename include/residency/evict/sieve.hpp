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

/// SIEVE (Zhang, Yang, Yue, Vigfusson & Rashmi, NSDI 2024), with sizes: a hand goes from the oldest to the newest storage. It
/// spares a storage once that was used again since its insertion or since the hand was there, and evicts the first other one. A hit
/// moves nothing. The hand skips what may not leave; that keeps its mark.
class Sieve {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        list_.attach(context.bytes.size());
        marks_.assign(context.bytes.size(), unused);
        hand_ = list_.end();
        count_ = 0;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        list_.push_front(index(id));
        marks_[index(id)] = unused;
        ++count_;
    }
    void used(StorageId id, StepIndex) noexcept {
        std::uint8_t& mark = marks_[index(id)];
        mark = mark == unused ? unmarked : visited;
    }
    void removed(StorageId id) noexcept {
        if (hand_ == index(id)) { hand_ = list_.previous(hand_); }
        list_.unlink(index(id));
        --count_;
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        auto item = hand_;
        for (std::uint64_t looked_at = 0; looked_at < 2 * count_; ++looked_at) {
            if (item == list_.end()) { item = list_.back(); }
            if (may_leave(StorageId{item})) {
                if (marks_[item] != visited) {
                    hand_ = item;
                    return StorageId{item};
                }
                marks_[item] = unmarked;
            }
            item = list_.previous(item);
        }
        return std::nullopt;
    }
    /// @}

private:
    static constexpr std::uint8_t unused = 0;  // until the first use after the insertion
    static constexpr std::uint8_t unmarked = 1;
    static constexpr std::uint8_t visited = 2;

    LinkedLists list_;                 // storages on the device, the last inserted first
    std::vector<std::uint8_t> marks_;  // by storage
    LinkedLists::Item hand_ = 0;       // the storage to look at next; the end: the oldest
    std::uint64_t count_ = 0;          // storages on the device
};
static_assert(EvictionPolicy<Sieve>);

}}}  // namespace residency::RESIDENCY_ABI::evict
