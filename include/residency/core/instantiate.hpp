// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/residency.hpp"

// For a program in which many files use one composition: EXTERN is `extern` in a header that all of them include, so that none
// compiles it, and empty in the one file that does. Outside every namespace; types by their full names.
//
//     RESIDENCY_INSTANTIATE_PARTS(extern, residency::pool::Virtual<D>, residency::transport::Pinned<D>);
//     RESIDENCY_INSTANTIATE_PLANNED(extern, residency::pool::Virtual<D>, residency::transport::Pinned<D>);

// NOLINTBEGIN(bugprone-macro-parentheses): of types, and of `extern`

// A pool and a transport, as they are written in full (not aliases): once for each device.
#define RESIDENCY_INSTANTIATE_PARTS(EXTERN, POOL, TRANSPORT)                                                           \
    EXTERN template class POOL;                                                                                        \
    EXTERN template class TRANSPORT;                                                                                   \
    EXTERN template class ::residency::core::Executor<typename POOL::Device, TRANSPORT>;                               \
    EXTERN template class ::residency::core::StepClock<typename POOL::Device>

// Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>, but for the parts.
#define RESIDENCY_INSTANTIATE_ONLINE(EXTERN, EVICTOR, PREFETCHER, POOL, TRANSPORT)                                     \
    EXTERN template class ::residency::core::Online<EVICTOR, PREFETCHER, POOL, TRANSPORT>;                             \
    RESIDENCY_DETAIL_INSTANTIATE_ENGINE(EXTERN, TRANSPORT,                                                             \
                                        ::residency::core::Online<EVICTOR, PREFETCHER, POOL, TRANSPORT>);              \
    EXTERN template class ::residency::Residency<EVICTOR, PREFETCHER, POOL, TRANSPORT>

// Residency<evict::Planned, prefetch::Planned, POOL, TRANSPORT>, but for the parts.
#define RESIDENCY_INSTANTIATE_PLANNED(EXTERN, POOL, TRANSPORT)                                                         \
    EXTERN template class ::residency::core::Planned<POOL, TRANSPORT>;                                                 \
    RESIDENCY_DETAIL_INSTANTIATE_ENGINE(EXTERN, TRANSPORT, ::residency::core::Planned<POOL, TRANSPORT>);               \
    EXTERN template class ::residency::CapturedPass<                                                                   \
        ::residency::core::Engine<::residency::core::Planned<POOL, TRANSPORT>, TRANSPORT>>;                            \
    EXTERN template class ::residency::Residency<::residency::evict::Planned, ::residency::prefetch::Planned, POOL,    \
                                                 TRANSPORT>

// The rest of the arguments is the decider, with its commas.
#define RESIDENCY_DETAIL_INSTANTIATE_ENGINE(EXTERN, TRANSPORT, ...)                                                    \
    EXTERN template class ::residency::core::Engine<__VA_ARGS__, TRANSPORT>;                                           \
    EXTERN template class ::residency::Lease<::residency::core::Engine<__VA_ARGS__, TRANSPORT>>;                       \
    EXTERN template class ::residency::Ticket<::residency::core::Engine<__VA_ARGS__, TRANSPORT>>;                      \
    EXTERN template class ::residency::Pass<::residency::core::Engine<__VA_ARGS__, TRANSPORT>>

// NOLINTEND(bugprone-macro-parentheses)
