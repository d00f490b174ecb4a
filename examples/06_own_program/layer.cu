// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "layer.hpp"

#include <cuda_runtime.h>

__global__ void layer(const float* weights, const float* x, float* y) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (unsigned i = 0; i < size; ++i) { sum += weights[row * size + i] * x[i]; }
    y[row] = tanhf(sum);
}

void launch_layer(Gpu&, Gpu::Stream stream, const float* weights, const float* x, float* y) {
    layer<<<size / 128, 128, 0, stream.get()>>>(weights, x, y);
}
