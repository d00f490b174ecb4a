// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/residency.hpp"

// What compositions consist of, so that one file compiles them for all: EXTERN is `extern` in a header, nothing in that file. At
// global scope. Policies by their full names; as parts without aliases.

// A device's session, and a pool and a transport: once for each device.
#define INSTANTIATE_PARTS(EXTERN, POOL, TRANSPORT)                                                                     \
    EXTERN template class POOL;                                                                                        \
    EXTERN template class TRANSPORT;                                                                                   \
    EXTERN template class residency::core::Session<typename POOL::Device>

// Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>, but for the parts.
#define INSTANTIATE_ONLINE(EXTERN, EVICTOR, PREFETCHER, POOL, TRANSPORT)                                               \
    EXTERN template class residency::core::OnlineDecider<EVICTOR, PREFETCHER, POOL>;                                   \
    EXTERN template class residency::Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>

// Residency<evict::Planned, prefetch::Planned, POOL, TRANSPORT>, but for the parts: its decider, and what is around it.
#define INSTANTIATE_PLANNED_DECIDER(EXTERN, POOL, TRANSPORT) EXTERN template class residency::core::PlannedDecider<POOL>
#define INSTANTIATE_PLANNED_ENGINE(EXTERN, POOL, TRANSPORT)                                                            \
    EXTERN template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned, POOL, TRANSPORT>

// The preset that most programs use, residency::Planned<D>.
#define PLANNED_DECIDER(EXTERN, D)                                                                                     \
    INSTANTIATE_PLANNED_DECIDER(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PLANNED_ENGINE(EXTERN, D)                                                                                      \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                           \
    INSTANTIATE_PLANNED_ENGINE(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
