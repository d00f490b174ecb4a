// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// As planned_simulated.hpp, for files that use the GPU.

#include "examples/support/instantiate.hpp"
#include "residency/device/cuda.hpp"

PLANNED_DECIDER(extern, residency::CudaDevice);
PLANNED_ENGINE(extern, residency::CudaDevice);
