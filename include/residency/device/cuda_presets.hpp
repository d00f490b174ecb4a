// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Says that residency::compiled_cuda has the presets on this device; in header-only programs, nothing.
#include "residency/config.hpp"
#if !RESIDENCY_HEADER_ONLY

#include "residency/device/cuda.hpp"
#include "residency/impl/presets.hpp"

RESIDENCY_DETAIL_PRESETS(extern, residency::CudaDevice);

#endif
