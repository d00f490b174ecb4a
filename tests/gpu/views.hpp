// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/gpu/thrust.hpp"  // first: how Thrust is named here

#include <cuda_runtime_api.h>
#include <cuda/std/mdspan>

namespace gpu {

using Matrix = cuda::std::mdspan<const float, cuda::std::dextents<int, 2>, cuda::std::layout_stride>;

/// Writes to sums[row] the sum of row `row`, by a kernel that indexes the view.
[[nodiscard]] cudaError_t launch_row_sums(Matrix matrix, float* sums, cudaStream_t stream);
/// thrust::reduce on the stream, which it waits for.
[[nodiscard]] float sum_by_thrust(thrust::device_ptr<const float> begin, thrust::device_ptr<const float> end,
                                  cudaStream_t stream);

}  // namespace gpu
