// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/device/device.hpp"

// Forward declarations, default template arguments, and the presets: compositions that have proven themselves.

namespace residency { inline namespace RESIDENCY_ABI {

namespace evict {
class ExpectedUse;
class Lru;
struct Planned;
class Scheduled;
}  // namespace evict

namespace prefetch {
class Hinted;
template <std::uint32_t steps>
    requires(steps > 0)
class Lookahead;
struct Planned;
class Scheduled;
}  // namespace prefetch

namespace plan {
class Plan;
struct Problem;
}  // namespace plan

namespace pool {
template <VirtualMemoryDevice D>
class Slab;
template <Device D>
class StreamOrdered;
template <VirtualMemoryDevice D>
class Virtual;
}  // namespace pool

namespace transport {
template <Device D>
class Pinned;
}  // namespace transport

namespace core {
/// Pinned, for the device of a pool. Void where `Pool` has none: then Residency says what is wrong with it. `Pool` is complete.
template <class Pool>
struct DefaultTransport {
    static_assert(sizeof(Pool) != 0);
    using type = void;
};
template <class Pool>
    requires Device<typename Pool::Device>
struct DefaultTransport<Pool> {
    using type = transport::Pinned<typename Pool::Device>;
};
}  // namespace core

/// Defined in core/residency.hpp for policies that go together, and in core/composition.hpp for others, where it says why not.
template <class Evictor, class Prefetcher, class Pool, class Transport = typename core::DefaultTransport<Pool>::type>
class Residency;

/// The default: moves planned beforehand from the schedule, over one address range. Needs virtual memory of the device; can be
/// captured. Any order works; the order of the schedule is fast. Needs residency/planned.hpp.
template <VirtualMemoryDevice D>
using Planned = Residency<evict::Planned, prefetch::Planned, pool::Virtual<D>, transport::Pinned<D>>;

/// The schedule decides as the program runs: for devices without virtual memory, and steps that come and go.
template <Device D>
using Scheduled = Residency<evict::Scheduled, prefetch::Scheduled, pool::StreamOrdered<D>, transport::Pinned<D>>;

/// Nothing known beforehand: what was used last stays, and some steps are looked ahead where there is a schedule.
template <Device D>
using Cached = Residency<evict::Lru, prefetch::Lookahead<4>, pool::StreamOrdered<D>, transport::Pinned<D>>;

/// Mixtures of experts: equal slots, experts ranked by expected use, the router's guesses brought ahead. `policies.storages_at_once` is
/// the number of experts that one acquisition asks for: a smaller cache is refused when the Residency is made.
template <VirtualMemoryDevice D>
using Experts = Residency<evict::ExpectedUse, prefetch::Hinted, pool::Slab<D>, transport::Pinned<D>>;

}}  // namespace residency::RESIDENCY_ABI
