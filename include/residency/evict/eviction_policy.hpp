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

/// What an evictor may know. Everything outlives the evictor's use of it.
struct Context {
    std::span<const std::uint64_t> bytes;        ///< of each storage, by StorageId, as the pool rounds
    std::uint64_t capacity_bytes = 0;            ///< what streamed storages share
    const UseOrder* order = nullptr;             ///< the declared or recorded future; null where there is none
    std::span<const std::uint32_t> groups = {};  ///< the layer of each storage, or empty: all in one
};

/// Stands for "any storage may leave" in concept checks and tests.
struct AnyMayLeave {
    constexpr bool operator()(StorageId) const noexcept { return true; }
};

/// Who leaves: ranks the storages that are on the device and names a victim. It owns no bytes and makes no device call.
///
/// Required expressions, with `e` an evictor, `id` a storage, `now` a StepIndex that never decreases. None is thread safe.
///  1. `e.attach(context)`       before all else, again to start over; may allocate; fails if the context lacks what it needs
///  2. `e.inserted(id, now)`     noexcept; `id` came to the device, for a use or ahead of one
///  3. `e.used(id, now)`         noexcept; each access of a storage on the device, the one that brought it included
///  4. `e.removed(id)`           noexcept; `id` left the device, as a victim or not
///  5. `e.victim(now, may_leave)` noexcept; the storage to leave next among those on the device for which may_leave(id), or
///                               none; O(1) or O(log n) beside the storages passed over
///
/// Optional:
///  6. `e.stays(id)`             noexcept; whether only a demand miss may take `id`'s place, never something brought ahead
///
/// Semantic rules; the conformance suite cites them.
///  E1 A victim is on the device (inserted and not removed) and may leave.
///  E2 If any storage on the device may leave, there is a victim.
///  E3 victim() removes nothing: until removed(v), v is on the device. Asked again at once, it may name another.
///  E4 Calls 2–5 allocate nothing.
///  E5 Same calls, same answers: no clock, no address, no unseeded randomness.
///  E6 Policies are values: default constructible, nothrow movable, with an aggregate `Config` where they have knobs.
template <class E>
concept EvictionPolicy = std::default_initializable<E> && std::is_nothrow_move_constructible_v<E> &&
                         requires(E e, const Context& context, StorageId id, StepIndex now, AnyMayLeave may_leave) {
                             { e.attach(context) } -> std::same_as<Status>;
                             { e.inserted(id, now) } noexcept;
                             { e.used(id, now) } noexcept;
                             { e.removed(id) } noexcept;
                             { e.victim(now, may_leave) } noexcept -> std::same_as<std::optional<StorageId>>;
                         };

}}}  // namespace residency::RESIDENCY_ABI::evict
