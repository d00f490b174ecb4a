// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace lab {

/// The library's, from the file that nvcc compiles.
[[nodiscard]] const residency::Unpacker<residency::CudaDevice>& gpu_unpacker();

}  // namespace lab
