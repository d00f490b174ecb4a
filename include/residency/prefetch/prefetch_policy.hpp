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

/// What a prefetcher may know. All that it points to outlives the prefetcher.
struct Context {
    std::span<const std::uint64_t> bytes;  ///< of each storage, by StorageId, rounded as the pool rounds
    std::uint64_t capacity_bytes = 0;      ///< that streamed storages share
    const UseOrder* order = nullptr;       ///< the declared or recorded schedule; null: none
};

/// The `sink` of concept checks. A sink takes a proposal, which is a storage and the step that needs it (UseOrder::never where
/// unknown). It returns false where it takes no more now.
struct ClosedSink {
    /// False.
    constexpr bool operator()(StorageId, StepIndex) const noexcept { return false; }
};

/// Proposes storages to bring to the device before they are asked for. Best effort: the decider skips what is on the device, evicts
/// nothing for a proposal that is leased or needed sooner, and drops what does not fit. A proposal never fails a pass.
///
/// Required expressions, with `p` a prefetcher, `now` the current step. None is thread safe.
///  1. `p.attach(context)`        first of all, and again to start over; may allocate; fails if the context lacks what it needs
///  2. `p.propose(now, sink)`     noexcept; offers storages in the order in which they should be copied, until the sink returns
///                                false
///  3. `P::interruptible`         constexpr bool: its proposals are guesses; they are copied in pieces, and a demand miss goes
///                                between
///  4. `p.clear()`                noexcept; only if interruptible: forgets all guesses, after a demand miss
///
/// Semantic rules; the conformance suite cites them.
///  R1 propose() allocates nothing and terminates, even if the sink always returns true.
///  R2 One call offers a storage at most once.
///  R3 The same calls give the same proposals.
///  R4 After clear(), propose() offers nothing that only earlier guesses led to.
///  R5 Policies are values: default constructible, nothrow movable, with an aggregate `Config` where they have parameters.
template <class P>
concept PrefetchPolicy = std::default_initializable<P> && std::is_nothrow_move_constructible_v<P> &&
                         requires(P p, const Context& context, StepIndex now, ClosedSink sink) {
                             { p.attach(context) } -> std::same_as<Status>;
                             { p.propose(now, sink) } noexcept;
                             { std::bool_constant<P::interruptible>{} };
                         };

/// Selects prefetching by a plan. Goes with evict::Planned and pool::Virtual.
struct Planned {};

/// Proposes nothing: every storage is copied on demand.
class None {
public:
    /// What PrefetchPolicy asks for.
    /// @{
    static constexpr bool interruptible = false;

    [[nodiscard]] Status attach(const Context&) { return {}; }
    template <class Sink>
    void propose(StepIndex, Sink&&) noexcept {}
    /// @}
};
static_assert(PrefetchPolicy<None>);

}  // namespace prefetch
}}  // namespace residency::RESIDENCY_ABI
