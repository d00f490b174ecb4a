// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/views.hpp"

#include <thrust/execution_policy.h>
#include <thrust/reduce.h>

namespace {

__global__ void row_sums(gpu::Matrix matrix, float* sums) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= matrix.extent(0)) { return; }
    float sum = 0;
    for (int column = 0; column < matrix.extent(1); ++column) { sum += matrix(row, column); }
    sums[row] = sum;
}

}  // namespace

cudaError_t gpu::launch_row_sums(Matrix matrix, float* sums, cudaStream_t stream) {
    const unsigned blocks = (static_cast<unsigned>(matrix.extent(0)) + 127) / 128;
    row_sums<<<blocks, 128, 0, stream>>>(matrix, sums);
    return cudaGetLastError();
}

float gpu::sum_by_thrust(thrust::device_ptr<const float> begin, thrust::device_ptr<const float> end,
                         cudaStream_t stream) {
    return thrust::reduce(thrust::cuda::par.on(stream), begin, end);
}
