// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of programs with compositions include, precompiled, and the presets, compiled once for all: the build forces this
// header on them. Without it, as with a compiler called by hand, each compiles what it uses.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/instantiate.hpp"
#include "residency/device/simulated.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/lru.hpp"
#include "residency/evict/planned.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "residency/prefetch/planned.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/transport/staged.hpp"

// PRESET_NAME(extern, D) declares what it names on device D; PRESET_NAME(, D) is its code, for one file.

#define PRESET_PARTS(EXTERN, D)                                                                                        \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                           \
    EXTERN template class residency::pool::StreamOrdered<D>;                                                           \
    EXTERN template class residency::pool::Slab<D>
// residency::Planned<D>, in three files.
#define PRESET_PLANNED_MOVES(EXTERN, D)                                                                                \
    INSTANTIATE_PLANNED_MOVES(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PRESET_PLANNED_PASSES(EXTERN, D)                                                                               \
    INSTANTIATE_PLANNED_PASSES(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PRESET_PLANNED(EXTERN, D)                                                                                      \
    INSTANTIATE_PLANNED(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                         \
    INSTANTIATE_CAPTURES(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PRESET_SCHEDULED(EXTERN, D)                                                                                    \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Scheduled, residency::prefetch::Scheduled,                            \
                       residency::pool::StreamOrdered<D>, residency::transport::Pinned<D>)
#define PRESET_CACHED(EXTERN, D)                                                                                       \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::Lru, residency::prefetch::Lookahead<4>,                               \
                       residency::pool::StreamOrdered<D>, residency::transport::Pinned<D>)
#define PRESET_EXPERTS(EXTERN, D)                                                                                      \
    INSTANTIATE_ONLINE(EXTERN, residency::evict::ExpectedUse, residency::prefetch::Hinted, residency::pool::Slab<D>,   \
                       residency::transport::Pinned<D>)
// Not a preset: Planned<D> with the transport that reads from files and pageable memory.
#define PRESET_STAGED_PARTS(EXTERN, D)                                                                                 \
    EXTERN template class residency::transport::Staged<D>;                                                             \
    EXTERN template class residency::core::Executor<D, residency::transport::Staged<D>>
#define PRESET_STAGED_MOVES(EXTERN, D)                                                                                 \
    INSTANTIATE_PLANNED_MOVES(EXTERN, residency::pool::Virtual<D>, residency::transport::Staged<D>)
#define PRESET_STAGED_PASSES(EXTERN, D)                                                                                \
    INSTANTIATE_PLANNED_PASSES(EXTERN, residency::pool::Virtual<D>, residency::transport::Staged<D>)
#define PRESET_STAGED(EXTERN, D)                                                                                       \
    INSTANTIATE_PLANNED(EXTERN, residency::pool::Virtual<D>, residency::transport::Staged<D>)

#define PRESETS(EXTERN, D)                                                                                             \
    PRESET_PARTS(EXTERN, D);                                                                                           \
    PRESET_PLANNED_MOVES(EXTERN, D);                                                                                   \
    PRESET_PLANNED_PASSES(EXTERN, D);                                                                                  \
    PRESET_PLANNED(EXTERN, D);                                                                                         \
    PRESET_SCHEDULED(EXTERN, D);                                                                                       \
    PRESET_CACHED(EXTERN, D);                                                                                          \
    PRESET_EXPERTS(EXTERN, D);                                                                                         \
    PRESET_STAGED_PARTS(EXTERN, D);                                                                                    \
    PRESET_STAGED_MOVES(EXTERN, D);                                                                                    \
    PRESET_STAGED_PASSES(EXTERN, D);                                                                                   \
    PRESET_STAGED(EXTERN, D)

PRESETS(extern, residency::SimulatedDevice);
