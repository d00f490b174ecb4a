// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/unpacker.hpp"

#include "residency/packed/cuda_packer.cuh"
#include "residency/packed/cuda_unpacker.cuh"

namespace gpu {

const residency::Unpacker<residency::CudaDevice>& unpacker() {
    static const residency::CudaUnpacker unpacker;
    return unpacker;
}
const residency::Packer<residency::CudaDevice>& packer() {
    static const residency::CudaPacker packer;
    return packer;
}

}  // namespace gpu
