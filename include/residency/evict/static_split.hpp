// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Keeps some storages, chosen once in attach(); the others share the rest of the capacity, and the least recently used of them is
/// evicted first. A storage that stays is evicted only if no other one may leave. Without an order the storages count as used once
/// each, in the order of their ids.
class StaticSplit {
public:
    /// Which storages of a pass stay.
    enum class Choice : std::uint8_t {
        spread,  ///< over the pass, in proportion to the bytes read, which is that of compute time where memory bounds it
        prefix,  ///< the first storages of the pass
    };
    /// The split.
    struct Config {
        Choice choice = Choice::spread;  ///< of what stays
        std::uint32_t ring_steps = 2;    ///< times the largest step: the bytes left to the others, or all
    };

    StaticSplit() noexcept : StaticSplit{Config{}} {}
    /// Decides by `config`.
    explicit StaticSplit(Config config) noexcept : config_{config} {}

    /// What EvictionPolicy asks for.
    /// @{
    [[nodiscard]] Status attach(const Context& context) {
        lists_.attach(context.bytes.size(), 2);
        stays_.assign(context.bytes.size(), 0);
        choose(context, context.order != nullptr && context.order->steps() > 0 ? context.order : nullptr);
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept { lists_.push_front(index(id), stays_[index(id)]); }
    void used(StorageId id, StepIndex) noexcept { lists_.move_front(index(id), stays_[index(id)]); }
    void removed(StorageId id) noexcept { lists_.unlink(index(id)); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        const auto other = lists_.last_that(may_leave, 0);
        return other ? other : lists_.last_that(may_leave, 1);
    }
    /// @}

    /// Whether a storage is one of those that stay. Precondition: attach() was given the storage.
    [[nodiscard]] bool stays(StorageId id) const noexcept { return stays_[index(id)] != 0; }

private:
    /// Chooses the storages that stay.
    void choose(const Context& context, const UseOrder* order);

    /// Keeps every step that is so large that its storages take less than the ring would grow for it. Returns the bytes of the
    /// ring, which are Config::ring_steps times the largest step that is left. Subtracts what it keeps from `left`.
    [[nodiscard]] std::uint64_t keep_what_widens_the_ring(const Context& context, const UseOrder* order,
                                                          std::uint64_t& left);
    /// The bytes of the ring if the largest step has `step_bytes`; UINT64_MAX / 4 at most.
    [[nodiscard]] std::uint64_t saturating_ring(std::uint64_t step_bytes) const noexcept;

    Config config_;
    LinkedLists lists_;                // 0: the others, 1: those that stay; the most recently used first
    std::vector<std::uint8_t> stays_;  // by storage: 1 where it stays
};
static_assert(EvictionPolicy<StaticSplit>);

}}}  // namespace residency::RESIDENCY_ABI::evict

#if RESIDENCY_HEADER_ONLY
#include "residency/evict/impl/static_split.ipp"
#endif
