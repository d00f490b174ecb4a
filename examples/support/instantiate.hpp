// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/residency.hpp"

// What compositions consist of, so that one file compiles them for all: EXTERN is `extern` in a header, nothing in that file. At
// global scope. Policies by their full names; as parts without aliases.

// A device's pool and transport, and what goes with them: once for each device.
#define INSTANTIATE_PARTS(EXTERN, POOL, TRANSPORT)                                                                     \
    EXTERN template class POOL;                                                                                        \
    EXTERN template class TRANSPORT;                                                                                   \
    EXTERN template class residency::core::Executor<typename POOL::Device, TRANSPORT>;                                 \
    EXTERN template class residency::core::StepClock<typename POOL::Device>

// Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>, but for the parts.
#define INSTANTIATE_ONLINE(EXTERN, EVICTOR, PREFETCHER, POOL, TRANSPORT)                                               \
    EXTERN template class residency::core::Online<EVICTOR, PREFETCHER, POOL, TRANSPORT>;                               \
    INSTANTIATE_ENGINE(EXTERN, TRANSPORT, residency::core::Online<EVICTOR, PREFETCHER, POOL, TRANSPORT>);              \
    EXTERN template class residency::Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>

// Residency<evict::Planned, prefetch::Planned, POOL, TRANSPORT>, on a device that captures, but for the parts: its decider, and what
// goes round that.
#define INSTANTIATE_PLANNED_DECIDER(EXTERN, POOL, TRANSPORT)                                                           \
    EXTERN template class residency::core::Planned<POOL, TRANSPORT>
#define INSTANTIATE_PLANNED_ENGINE(EXTERN, POOL, TRANSPORT)                                                            \
    INSTANTIATE_ENGINE(EXTERN, TRANSPORT, residency::core::Planned<POOL, TRANSPORT>);                                  \
    EXTERN template class residency::CapturedPass<                                                                     \
        residency::core::Engine<residency::core::Planned<POOL, TRANSPORT>, TRANSPORT>>;                                \
    EXTERN template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned, POOL, TRANSPORT>

// The rest of the arguments is the decider, with its commas.
#define INSTANTIATE_ENGINE(EXTERN, TRANSPORT, ...)                                                                     \
    EXTERN template class residency::core::Engine<__VA_ARGS__, TRANSPORT>;                                             \
    EXTERN template class residency::Lease<residency::core::Engine<__VA_ARGS__, TRANSPORT>>;                           \
    EXTERN template class residency::Ticket<residency::core::Engine<__VA_ARGS__, TRANSPORT>>;                          \
    EXTERN template class residency::Pass<residency::core::Engine<__VA_ARGS__, TRANSPORT>>

// The preset that most programs use, residency::Planned<D>.
#define PLANNED_DECIDER(EXTERN, D)                                                                                     \
    INSTANTIATE_PLANNED_DECIDER(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PLANNED_ENGINE(EXTERN, D)                                                                                      \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                           \
    INSTANTIATE_PLANNED_ENGINE(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
