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

#include "examples/support/instantiate.hpp"
#include "residency/residency.hpp"

// residency::Planned<D>, declared with `extern`, or its code, for one file each.
#define PLANNED_DECIDER(EXTERN, D)                                                                                     \
    INSTANTIATE_PLANNED_DECIDER(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)
#define PLANNED_ENGINE(EXTERN, D)                                                                                      \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                           \
    INSTANTIATE_PLANNED_ENGINE(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)

PLANNED_DECIDER(extern, residency::SimulatedDevice);
PLANNED_ENGINE(extern, residency::SimulatedDevice);
