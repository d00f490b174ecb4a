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

// PLANNED(extern, D) declares residency::Planned<D>; PLANNED(, D) is its code, for one file.
#define PLANNED(EXTERN, D)                                                                                             \
    INSTANTIATE_PARTS(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>);                           \
    INSTANTIATE_PLANNED(EXTERN, residency::pool::Virtual<D>, residency::transport::Pinned<D>)

PLANNED(extern, residency::SimulatedDevice);
