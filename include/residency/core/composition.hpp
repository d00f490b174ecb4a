// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "residency/core/online/online_decider.hpp"
#include "residency/core/options.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/fwd.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI {
namespace core {

/// The decider of a planned composition, as `type`, by its pool. In core/planned/planned_decider.hpp, which brings the planner: only
/// programs that use a planned composition include it.
template <class Pool>
struct PlannedDeciderOf;

/// The policies that are read from a plan. Constants, not concepts: compilers explain a concept at length.
template <class E>
inline constexpr bool evicts_by_plan = std::is_same_v<E, evict::Planned>;
template <class P>
inline constexpr bool prefetches_by_plan = std::is_same_v<P, prefetch::Planned>;

/// The first parameter of a Residency: an evictor, or evict::Planned.
template <class E>
concept EvictorParameter = evict::EvictionPolicy<E> || evicts_by_plan<E>;
/// The second parameter of a Residency: a prefetcher, or prefetch::Planned.
template <class P>
concept PrefetcherParameter = prefetch::PrefetchPolicy<P> || prefetches_by_plan<P>;
/// A pool of the chunks of a plan: pool::Virtual, or what is made of it.
template <class P>
concept PlannedPool = std::derived_from<P, pool::Virtual<typename P::Device>>;
/// The third parameter of a Residency: a pool of storages, or a pool of the chunks of a plan.
template <class P>
concept PoolParameter = pool::MemoryPool<P> || PlannedPool<P>;
/// A transport for the device of a pool.
template <class T, class P>
concept TransportOf = transport::TransportPolicy<T, typename P::Device>;

/// Both policies read a plan, or neither does.
template <class E, class P>
concept ShareOnePlan = evicts_by_plan<E> == prefetches_by_plan<P>;
/// A plan places chunks at fixed addresses of one image. Other policies allocate storages one by one.
template <class E, class P>
concept PoolOfDecider = (evicts_by_plan<E> && PlannedPool<P>) || (!evicts_by_plan<E> && pool::MemoryPool<P>);

/// The decider of a planned composition is defined.
template <class E, class P>
concept HasDecider = !evicts_by_plan<E> || requires { typename PlannedDeciderOf<P>::type; };

/// Four policies that go together.
template <class Evictor, class Prefetcher, class Pool, class Transport>
concept Composable =
    EvictorParameter<Evictor> && PrefetcherParameter<Prefetcher> && ShareOnePlan<Evictor, Prefetcher> &&
    PoolParameter<Pool> && PoolOfDecider<Evictor, Pool> && TransportOf<Transport, Pool> && HasDecider<Evictor, Pool>;

/// The decider and the options that four policies select.
template <class Evictor, class Prefetcher, class Pool, class Transport>
    requires Composable<Evictor, Prefetcher, Pool, Transport>
struct Composition {
    static constexpr bool is_planned = false;
    using Decider = OnlineDecider<Evictor, Prefetcher, Pool>;
    using Options = OnlineOptions<typename Decider::Config, typename Transport::Config>;
};

template <class Pool, class Transport>
    requires Composable<evict::Planned, prefetch::Planned, Pool, Transport>
struct Composition<evict::Planned, prefetch::Planned, Pool, Transport> {
    static constexpr bool is_planned = true;
    using Decider = typename PlannedDeciderOf<Pool>::type;
    using Options = PlannedOptions<typename Decider::Config, typename Transport::Config>;
};

}  // namespace core

/// Policies that do not go together: has no members, and says why not. Only the first reason is given.
template <class Evictor, class Prefetcher, class Pool, class Transport>
class Residency {
    static_assert(core::EvictorParameter<Evictor>,
                  "who leaves: the first parameter has to model evict::EvictionPolicy, or be evict::Planned");
    static_assert(
        !core::EvictorParameter<Evictor> || core::PrefetcherParameter<Prefetcher>,
        "what comes next: the second parameter has to model prefetch::PrefetchPolicy, or be prefetch::Planned");
    static constexpr bool are_policies = core::EvictorParameter<Evictor> && core::PrefetcherParameter<Prefetcher>;
    static_assert(!are_policies || core::ShareOnePlan<Evictor, Prefetcher>,
                  "evict::Planned and prefetch::Planned read one plan: they go together or not at all");
    static constexpr bool share_plan = are_policies && core::ShareOnePlan<Evictor, Prefetcher>;
    static_assert(!share_plan || core::PoolParameter<Pool>,
                  "where it lives: the third parameter has to model pool::MemoryPool, or be pool::Virtual");
    static constexpr bool has_pool = share_plan && core::PoolParameter<Pool>;
    static_assert(!has_pool || core::PoolOfDecider<Evictor, Pool> || core::evicts_by_plan<Evictor>,
                  "pool::Virtual maps a whole image by a plan: it goes with evict::Planned and prefetch::Planned");
    static_assert(
        !has_pool || core::PoolOfDecider<Evictor, Pool> || !core::evicts_by_plan<Evictor>,
        "a plan places chunks at fixed addresses: evict::Planned and prefetch::Planned go with pool::Virtual");
    static_assert(!has_pool || !core::PoolOfDecider<Evictor, Pool> || core::TransportOf<Transport, Pool>,
                  "how it travels: the fourth parameter has to model transport::TransportPolicy for the pool's device");
    static constexpr bool go_together =
        has_pool && core::PoolOfDecider<Evictor, Pool> && core::TransportOf<Transport, Pool>;
    static_assert(!go_together || core::HasDecider<Evictor, Pool>, "a planned composition needs residency/planned.hpp");
};

}}  // namespace residency::RESIDENCY_ABI
