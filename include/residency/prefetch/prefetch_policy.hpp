// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

class UseOrder;

namespace prefetch {

/// What a prefetcher may know. Everything outlives the prefetcher's use of it.
struct Context {
    std::span<const std::uint64_t> bytes;  ///< of each storage, by StorageId, as the pool rounds
    std::uint64_t capacity_bytes = 0;      ///< what streamed storages share
    const UseOrder* order = nullptr;       ///< the declared or recorded future; null where there is none
};

/// Takes a proposal: the storage and the moment that needs it (UseOrder::never where unknown). False: take no more now.
struct AnySink {
    constexpr bool operator()(StorageId, StepIndex) const noexcept { return false; }
};

/// What comes next: proposes storages to bring before they are asked for. Best effort: the core skips what is there, evicts
/// nothing that is leased or needed sooner for it, and drops what does not fit; a proposal never fails a pass.
///
/// Required expressions, with `p` a prefetcher, `now` the step that runs. None is thread safe.
///  1. `p.attach(context)`        before all else, again to start over; may allocate; fails if the context lacks what it needs
///  2. `p.propose(now, sink)`     noexcept; offers storages in the order in which they should travel, until the sink says false
///  3. `P::interruptible`         constexpr bool: its proposals are guesses, brought in pieces that a demand miss overtakes
///  4. `p.clear()`                noexcept; only if interruptible: after a demand miss, forget what was guessed before it
///
/// Semantic rules; the conformance suite cites them.
///  F1 propose allocates nothing and terminates, also if the sink always says true.
///  F2 The same storage is offered at most once a call.
///  F3 Same calls, same proposals.
///  F4 After clear(), nothing is offered that only earlier guesses led to.
///  F5 Policies are values: default constructible, nothrow movable, with an aggregate `Config` where they have knobs.
template <class P>
concept PrefetchPolicy = std::default_initializable<P> && std::is_nothrow_move_constructible_v<P> &&
                         requires(P p, const Context& context, StepIndex now, AnySink sink) {
                             { p.attach(context) } -> std::same_as<Status>;
                             { p.propose(now, sink) } noexcept;
                             { std::bool_constant<P::interruptible>{} };
                         };

}}}  // namespace residency::RESIDENCY_ABI::prefetch
