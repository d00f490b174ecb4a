// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compositions that many test files use, compiled once, in compositions/*.cpp; or in every file, with
// RESIDENCY_TEST_COMPOSITIONS_HERE.

#include "residency/core/residency.hpp"
#include "residency/device/simulated.hpp"
#include "residency/evict/lru.hpp"
#include "residency/evict/planned.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "residency/prefetch/none.hpp"
#include "residency/prefetch/planned.hpp"

namespace compositions {

using Pinned = residency::transport::Pinned<residency::SimulatedDevice>;
using StreamOrdered = residency::pool::StreamOrdered<residency::SimulatedDevice>;
using Slab = residency::pool::Slab<residency::SimulatedDevice>;
using Virtual = residency::pool::Virtual<residency::SimulatedDevice>;

template <class Evictor, class Prefetcher, class Pool>
using DeciderOf = typename residency::core::Composition<Evictor, Prefetcher, Pool, Pinned>::Decider;
template <class Evictor, class Prefetcher, class Pool>
using EngineOf = residency::core::Engine<DeciderOf<Evictor, Prefetcher, Pool>, Pinned>;

using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::None, StreamOrdered>;
using OnDemandEngine = EngineOf<residency::evict::Lru, residency::prefetch::None, StreamOrdered>;
using OnSlab = residency::Residency<residency::evict::Lru, residency::prefetch::None, Slab>;
using OnSlabEngine = EngineOf<residency::evict::Lru, residency::prefetch::None, Slab>;
using Ahead = residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, Slab>;
using AheadEngine = EngineOf<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, Slab>;
using Hinted = residency::Residency<residency::evict::Lru, residency::prefetch::Hinted, StreamOrdered>;
using HintedEngine = EngineOf<residency::evict::Lru, residency::prefetch::Hinted, StreamOrdered>;
using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned, Virtual>;
using PlannedEngine = EngineOf<residency::evict::Planned, residency::prefetch::Planned, Virtual>;

}  // namespace compositions

#ifndef RESIDENCY_TEST_COMPOSITIONS_HERE

extern template class residency::pool::StreamOrdered<residency::SimulatedDevice>;
extern template class residency::pool::Slab<residency::SimulatedDevice>;
extern template class residency::pool::Virtual<residency::SimulatedDevice>;
extern template class residency::transport::Pinned<residency::SimulatedDevice>;
extern template class residency::core::Executor<residency::SimulatedDevice, compositions::Pinned>;
extern template class residency::core::StepClock<residency::SimulatedDevice>;

extern template class residency::core::Online<residency::evict::Lru, residency::prefetch::None,
                                              compositions::StreamOrdered, compositions::Pinned>;
extern template class residency::core::Engine<
    residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::StreamOrdered,
                            compositions::Pinned>,
    compositions::Pinned>;
extern template class residency::Lease<compositions::OnDemandEngine>;
extern template class residency::Ticket<compositions::OnDemandEngine>;
extern template class residency::Pass<compositions::OnDemandEngine>;
extern template class residency::Residency<residency::evict::Lru, residency::prefetch::None,
                                           compositions::StreamOrdered, compositions::Pinned>;

extern template class residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::Slab,
                                              compositions::Pinned>;
extern template class residency::core::Engine<
    residency::core::Online<residency::evict::Lru, residency::prefetch::None, compositions::Slab, compositions::Pinned>,
    compositions::Pinned>;
extern template class residency::Lease<compositions::OnSlabEngine>;
extern template class residency::Ticket<compositions::OnSlabEngine>;
extern template class residency::Pass<compositions::OnSlabEngine>;
extern template class residency::Residency<residency::evict::Lru, residency::prefetch::None, compositions::Slab,
                                           compositions::Pinned>;

extern template class residency::core::Online<residency::evict::Scheduled, residency::prefetch::Lookahead<2>,
                                              compositions::Slab, compositions::Pinned>;
extern template class residency::core::Engine<
    residency::core::Online<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, compositions::Slab,
                            compositions::Pinned>,
    compositions::Pinned>;
extern template class residency::Lease<compositions::AheadEngine>;
extern template class residency::Ticket<compositions::AheadEngine>;
extern template class residency::Pass<compositions::AheadEngine>;
extern template class residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>,
                                           compositions::Slab, compositions::Pinned>;

extern template class residency::core::Online<residency::evict::Lru, residency::prefetch::Hinted,
                                              compositions::StreamOrdered, compositions::Pinned>;
extern template class residency::core::Engine<
    residency::core::Online<residency::evict::Lru, residency::prefetch::Hinted, compositions::StreamOrdered,
                            compositions::Pinned>,
    compositions::Pinned>;
extern template class residency::Lease<compositions::HintedEngine>;
extern template class residency::Ticket<compositions::HintedEngine>;
extern template class residency::Pass<compositions::HintedEngine>;
extern template class residency::Residency<residency::evict::Lru, residency::prefetch::Hinted,
                                           compositions::StreamOrdered, compositions::Pinned>;

extern template class residency::core::Planned<compositions::Virtual, compositions::Pinned>;
extern template class residency::core::Engine<residency::core::Planned<compositions::Virtual, compositions::Pinned>,
                                              compositions::Pinned>;
extern template class residency::Lease<compositions::PlannedEngine>;
extern template class residency::Ticket<compositions::PlannedEngine>;
extern template class residency::Pass<compositions::PlannedEngine>;
extern template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                           compositions::Virtual, compositions::Pinned>;
extern template class residency::CapturedPass<compositions::PlannedEngine>;

#endif
