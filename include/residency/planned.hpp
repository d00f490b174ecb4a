// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What programs with the preset Planned include: residency.hpp, and the planner. It takes several times as long to compile as
// residency.hpp, see benchmarks/compile_time.

#include "residency/core/planned/planned_decider.hpp"
#include "residency/plan/planner.hpp"
#include "residency/residency.hpp"
