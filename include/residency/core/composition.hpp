// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "residency/core/online_decider.hpp"
#include "residency/core/options.hpp"
#include "residency/core/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/planned.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/planned.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which decider four policies come to, or the reason why they do not go together.
template <class Evictor, class Prefetcher, class Pool, class Transport>
struct Composition {
    static_assert(evict::EvictionPolicy<Evictor> || std::same_as<Evictor, evict::Planned>,
                  "who leaves: the first parameter has to model evict::EvictionPolicy, or be evict::Planned");
    static_assert(
        prefetch::PrefetchPolicy<Prefetcher> || std::same_as<Prefetcher, prefetch::Planned>,
        "what comes next: the second parameter has to model prefetch::PrefetchPolicy, or be prefetch::Planned");
    static_assert(std::same_as<Evictor, evict::Planned> == std::same_as<Prefetcher, prefetch::Planned>,
                  "evict::Planned and prefetch::Planned read one plan: they go together or not at all");
    static_assert(std::same_as<Evictor, evict::Planned> || !pool::PlannedPool<Pool>,
                  "pool::Virtual maps a whole image by a plan: it goes with evict::Planned and prefetch::Planned");
    static_assert(pool::MemoryPool<Pool>, "where it lives: the third parameter has to model pool::MemoryPool");
    static_assert(transport::TransportPolicy<Transport, typename Pool::Device>,
                  "how it travels: the fourth parameter has to model transport::TransportPolicy for the pool's device");

    static constexpr bool is_planned = false;
    using Decider = OnlineDecider<Evictor, Prefetcher, Pool>;
    using Options = OnlineOptions<typename Decider::Config, typename Transport::Config>;
};

template <class Pool, class Transport>
struct Composition<evict::Planned, prefetch::Planned, Pool, Transport> {
    static_assert(pool::PlannedPool<Pool>,
                  "a plan places chunks at fixed addresses: evict::Planned and prefetch::Planned go with "
                  "pool::Virtual, on a device "
                  "that models VirtualMemoryDevice");
    static_assert(transport::TransportPolicy<Transport, typename Pool::Device>,
                  "how it travels: the fourth parameter has to model transport::TransportPolicy for the pool's device");

    static constexpr bool is_planned = true;
    using Decider = PlannedDecider<Pool>;
    using Options = PlannedOptions<typename Decider::Config, typename Transport::Config>;
};

}}}  // namespace residency::RESIDENCY_ABI::core
