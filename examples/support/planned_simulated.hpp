// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the files of programs with compositions include, precompiled, and the preset that most of them use, compiled once for all: the
// build forces this header on them. Without it, as with a compiler called by hand, each compiles what it uses. No more than that: g++
// takes three times as long to write a precompiled header as to read what is in it.

#include "examples/support/instantiate.hpp"
#include "residency/simulation/simulated_device.hpp"

PLANNED_DECIDER(extern, residency::SimulatedDevice);
PLANNED_ENGINE(extern, residency::SimulatedDevice);
