// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// As presets.hpp, for the programs with CUDA.

#include "examples/support/presets.hpp"
#include "residency/device/cuda.hpp"

PRESETS(extern, residency::CudaDevice);
