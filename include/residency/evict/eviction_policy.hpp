// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

class UseOrder;

namespace evict {

/// What an evictor may know. All that it points to outlives the evictor.
struct Context {
    std::span<const std::uint64_t> bytes;  ///< of each storage, by StorageId, rounded as the pool rounds
    std::uint64_t capacity_bytes = 0;      ///< that streamed storages share
    const UseOrder* order = nullptr;       ///< the declared or recorded schedule; null: none
    std::span<const std::uint32_t> first_steps =
        {};  ///< by storage: the first step that reads it; empty: there is no schedule
};

/// The `may_leave` of concept checks and tests: every storage may be evicted.
struct AllMayLeave {
    /// True.
    constexpr bool operator()(StorageId) const noexcept { return true; }
};

/// Ranks the storages on the device and names the one to evict. Owns no bytes and makes no device call.
///
/// Required expressions, with `e` an evictor, `id` a storage, `now` a StepIndex that never decreases. None is thread safe.
///  1. `e.attach(context)`       first of all, and again to start over; may allocate; fails if the context lacks what it needs
///  2. `e.inserted(id, now)`     noexcept; `id` was brought to the device, for a use or ahead of one
///  3. `e.used(id, now)`         noexcept; each access of a storage on the device, the access that brought it included
///  4. `e.removed(id)`           noexcept; `id` is on the device no more, as a victim or for another reason
///  5. `e.victim(now, may_leave)` noexcept; the storage to evict next, among those on the device for which may_leave(id), or none;
///                               O(1) or O(log n), beside the storages that it skips
///
/// Optional:
///  6. `e.stays(id)`             noexcept; whether only a demand miss may take the place of `id`, never a prefetched storage
///
/// Semantic rules; the conformance suite cites them.
///  E1 A victim is on the device (inserted and not removed) and may leave.
///  E2 If any storage on the device may leave, there is a victim.
///  E3 victim() removes nothing: until removed(v), v is on the device. The next call may name another victim.
///  E4 Calls 2–5 allocate nothing.
///  E5 The same calls give the same answers: no clock, no address, no unseeded randomness.
///  E6 Policies are values: default constructible, nothrow movable, with an aggregate `Config` where they have parameters.
template <class E>
concept EvictionPolicy = std::default_initializable<E> && std::is_nothrow_move_constructible_v<E> &&
                         requires(E e, const Context& context, StorageId id, StepIndex now, AllMayLeave may_leave) {
                             { e.attach(context) } -> std::same_as<Status>;
                             { e.inserted(id, now) } noexcept;
                             { e.used(id, now) } noexcept;
                             { e.removed(id) } noexcept;
                             { e.victim(now, may_leave) } noexcept -> std::same_as<std::optional<StorageId>>;
                         };

/// Selects eviction by a plan. Goes with prefetch::Planned and pool::Virtual.
struct Planned {};

}  // namespace evict
}}  // namespace residency::RESIDENCY_ABI
