// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace gpu {

/// The unpacker and the packer of the library, compiled by nvcc. As long as the program.
[[nodiscard]] const residency::Unpacker<residency::CudaDevice>& unpacker();
[[nodiscard]] const residency::Packer<residency::CudaDevice>& packer();

}  // namespace gpu
