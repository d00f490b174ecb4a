// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// As planned.hpp, for the programs with CUDA.

#include "examples/support/planned.hpp"
#include "residency/device/cuda.hpp"

PLANNED_DECIDER(extern, residency::CudaDevice);
PLANNED_ENGINE(extern, residency::CudaDevice);
