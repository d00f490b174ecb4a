// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/unpacker.hpp"

#include "residency/packed/cuda_unpacker.cuh"

namespace lab {

const residency::Unpacker<residency::CudaDevice>& gpu_unpacker() {
    static const residency::CudaUnpacker one;
    return one;
}

}  // namespace lab
