// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of programs with compositions include, precompiled, and the preset that most of them use, compiled once for all: the
// build forces this header on them. Without it, as with a compiler called by hand, each compiles what it uses.

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

#include "residency/residency.hpp"

namespace examples {

template <class D>
using PlannedEngine =
    residency::core::Engine<residency::core::Planned<residency::pool::Virtual<D>, residency::transport::Pinned<D>>,
                            residency::transport::Pinned<D>>;

}  // namespace examples

// PLANNED(extern, D) declares what residency::Planned<D> consists of; PLANNED(, D) is its code, for one file.
#define PLANNED(EXTERN, D)                                                                                             \
    EXTERN template class residency::pool::Virtual<D>;                                                                 \
    EXTERN template class residency::transport::Pinned<D>;                                                             \
    EXTERN template class residency::core::Executor<D, residency::transport::Pinned<D>>;                               \
    EXTERN template class residency::core::StepClock<D>;                                                               \
    EXTERN template class residency::core::Planned<residency::pool::Virtual<D>, residency::transport::Pinned<D>>;      \
    EXTERN template class residency::core::Engine<                                                                     \
        residency::core::Planned<residency::pool::Virtual<D>, residency::transport::Pinned<D>>,                        \
        residency::transport::Pinned<D>>;                                                                              \
    EXTERN template class residency::Lease<examples::PlannedEngine<D>>;                                                \
    EXTERN template class residency::Ticket<examples::PlannedEngine<D>>;                                               \
    EXTERN template class residency::Pass<examples::PlannedEngine<D>>;                                                 \
    EXTERN template class residency::CapturedPass<examples::PlannedEngine<D>>;                                         \
    EXTERN template class residency::Residency<residency::evict::Planned, residency::prefetch::Planned,                \
                                               residency::pool::Virtual<D>, residency::transport::Pinned<D>>;

PLANNED(extern, residency::SimulatedDevice)
