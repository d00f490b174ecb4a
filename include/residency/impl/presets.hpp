// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The presets of fwd.hpp on one device D, for programs that link residency::compiled: RESIDENCY_DETAIL_PRESETS(extern, D) says that
// they are compiled elsewhere, RESIDENCY_DETAIL_PRESETS(, D) compiles them. At global scope.

#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/fwd.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/transport/pinned.hpp"

// What all compositions on a device have in common; the decider of a composition; the composition.
// NOLINTBEGIN(bugprone-macro-parentheses): types cannot be in parentheses
#define RESIDENCY_DETAIL_PRESETS(EXTERN, D)                                                                            \
    EXTERN template class residency::core::Session<D>;                                                                 \
    EXTERN template class residency::core::LeaseKeeper<D>;                                                             \
    EXTERN template class residency::core::CopyScheduler<D>;                                                           \
    EXTERN template class residency::core::MarkLog<D>;                                                                 \
    EXTERN template class residency::core::TransportAdapter<D, residency::transport::Pinned<D>>;                       \
    EXTERN template class residency::transport::Pinned<D>;                                                             \
    EXTERN template class residency::pool::Slab<D>;                                                                    \
    EXTERN template class residency::pool::StreamOrdered<D>;                                                           \
    EXTERN template class residency::pool::Virtual<D>;                                                                 \
    EXTERN template class residency::core::PlanPlayer<D>;                                                              \
    EXTERN template class residency::core::PlannedDecider<D>;                                                          \
    EXTERN template class residency::core::OnlineDecider<residency::evict::Scheduled, residency::prefetch::Scheduled,  \
                                                         residency::pool::StreamOrdered<D>>;                           \
    EXTERN template class residency::core::OnlineDecider<residency::evict::Lru, residency::prefetch::Lookahead<4>,     \
                                                         residency::pool::StreamOrdered<D>>;                           \
    EXTERN template class residency::core::OnlineDecider<residency::evict::ExpectedUse, residency::prefetch::Hinted,   \
                                                         residency::pool::Slab<D>>;                                    \
    EXTERN template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned,                \
                                               residency::pool::Virtual<D>, residency::transport::Pinned<D>>;          \
    EXTERN template class residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled,            \
                                               residency::pool::StreamOrdered<D>, residency::transport::Pinned<D>>;    \
    EXTERN template class residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<4>,               \
                                               residency::pool::StreamOrdered<D>, residency::transport::Pinned<D>>;    \
    EXTERN template class residency::Residency<residency::evict::ExpectedUse, residency::prefetch::Hinted,             \
                                               residency::pool::Slab<D>, residency::transport::Pinned<D>>
// NOLINTEND(bugprone-macro-parentheses)
