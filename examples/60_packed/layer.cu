// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "layer.hpp"
#include "residency/packed/cuda_unpacker.cuh"

namespace {

__global__ void layer(const std::uint16_t* weights, const float* x, float* y) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (unsigned i = 0; i < size; ++i) { sum += __uint_as_float(unsigned{weights[row * size + i]} << 16) * x[i]; }
    y[row] = tanhf(sum);
}

}  // namespace

void launch_layer(Gpu&, Gpu::Stream stream, const std::uint16_t* weights, const float* x, float* y) {
    layer<<<size / 128, 128, 0, stream.get()>>>(weights, x, y);
}

const residency::Unpacker<Gpu>& unpacker() {
    static const residency::CudaUnpacker one;
    return one;
}
