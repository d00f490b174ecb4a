// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/ranked_heap.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Greedy dual size frequency (Cherkasova 1998): evicts the storage of the lowest priority, clock + uses · cost / bytes, with cost
/// = 1, which aims at few misses. The clock is the priority of the last victim; uses count since the insertion. Among equals the
/// least recently used storage is evicted. O(log n).
class Gdsf {
public:
    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        bytes_ = context.bytes;
        heap_.attach(bytes_.size());
        uses_.assign(bytes_.size(), 0);
        is_unused_.assign(bytes_.size(), 0);
        clock_ = 0;
        touches_ = 0;
        named_ = no_storage;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        uses_[index(id)] = 1;
        is_unused_[index(id)] = 1;
        rank(id);
    }
    void used(StorageId id, StepIndex) noexcept {
        if (is_unused_[index(id)] != 0) {
            is_unused_[index(id)] = 0;
        } else {
            ++uses_[index(id)];
        }
        rank(id);
    }
    void removed(StorageId id) noexcept {
        if (id == named_) { clock_ = (std::max)(clock_, heap_.key(id).priority); }
        named_ = no_storage;
        heap_.remove(id);
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        const auto found = heap_.first(may_leave);
        named_ = found.value_or(no_storage);
        return found;
    }
    /// @}

private:
    struct Key {
        double priority = 0;
        std::uint64_t touch = 0;  // the number of its last change
    };
    struct LeavesBefore {
        bool operator()(const Key& a, const Key& b) const noexcept {
            return a.priority != b.priority ? a.priority < b.priority : a.touch < b.touch;
        }
    };

    void rank(StorageId id) noexcept {
        const auto bytes = static_cast<double>(std::max<std::uint64_t>(bytes_[index(id)], 1));
        heap_.put(id, {clock_ + static_cast<double>(uses_[index(id)]) / bytes, touches_++});
    }

    std::span<const std::uint64_t> bytes_;
    RankedHeap<Key, LeavesBefore> heap_;
    std::vector<std::uint64_t> uses_;      // by storage, since its insertion
    std::vector<std::uint8_t> is_unused_;  // by storage: 1 until the first use after the insertion
    double clock_ = 0;                     // the priority of the last victim
    std::uint64_t touches_ = 0;            // changes of priorities
    StorageId named_ = no_storage;         // the last answer of victim()
};
static_assert(EvictionPolicy<Gdsf>);

}}}  // namespace residency::RESIDENCY_ABI::evict
