// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compositions that many test files use, compiled once, in compositions/*.cpp; or in every file, with
// RESIDENCY_TEST_COMPOSITIONS_HERE.

#include "examples/support/instantiate.hpp"
#include "residency/core/residency.hpp"
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
#include "residency/simulation/simulated_device.hpp"

namespace compositions {

using Pinned = residency::transport::Pinned<residency::SimulatedDevice>;
using StreamOrdered = residency::pool::StreamOrdered<residency::SimulatedDevice>;
using Slab = residency::pool::Slab<residency::SimulatedDevice>;
using Virtual = residency::pool::Virtual<residency::SimulatedDevice>;

using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::None, StreamOrdered>;
using OnSlab = residency::Residency<residency::evict::Lru, residency::prefetch::None, Slab>;
using Ahead = residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, Slab>;
using Hinted = residency::Residency<residency::evict::Lru, residency::prefetch::Hinted, StreamOrdered>;
using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned, Virtual>;

}  // namespace compositions

// Each with `extern`, or the code, for one file.
#define COMPOSITION_PARTS(EXTERN)                                                                                      \
    EXTERN template class residency::pool::StreamOrdered<residency::SimulatedDevice>;                                  \
    EXTERN template class residency::pool::Slab<residency::SimulatedDevice>;                                           \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<residency::SimulatedDevice>,                                    \
                      residency::transport::Pinned<residency::SimulatedDevice>)
#define COMPOSITION_ON_DEMAND(EXTERN)                                                                                  \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Lru, residency::prefetch::None, compositions::StreamOrdered,          \
                       compositions::Pinned)
#define COMPOSITION_ON_SLAB(EXTERN)                                                                                    \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Lru, residency::prefetch::None, compositions::Slab,                   \
                       compositions::Pinned)
#define COMPOSITION_AHEAD(EXTERN)                                                                                      \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Scheduled, residency::prefetch::Lookahead<2>, compositions::Slab,     \
                       compositions::Pinned)
#define COMPOSITION_HINTED(EXTERN)                                                                                     \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Lru, residency::prefetch::Hinted, compositions::StreamOrdered,        \
                       compositions::Pinned)
#define COMPOSITION_PLANNED(EXTERN)                                                                                    \
    INSTANTIATE_PLANNED_DECIDER(EXTERN, compositions::Virtual, compositions::Pinned);                                  \
    INSTANTIATE_PLANNED_ENGINE(EXTERN, compositions::Virtual, compositions::Pinned)

#ifndef RESIDENCY_TEST_COMPOSITIONS_HERE
COMPOSITION_PARTS(extern);
COMPOSITION_ON_DEMAND(extern);
COMPOSITION_ON_SLAB(extern);
COMPOSITION_AHEAD(extern);
COMPOSITION_HINTED(extern);
COMPOSITION_PLANNED(extern);
#endif
