// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "../operations.hpp"

// What kernels of more than one file use.
namespace decoder {

inline constexpr unsigned threads = 128;  // of a block that works on a row
inline constexpr unsigned warp = 32;
inline constexpr unsigned all_lanes = 0xFFFFFFFFU;

inline __device__ float load(const Bf16* at) { return __uint_as_float(unsigned(at->bits) << 16U); }
inline __device__ Bf16 bf16(float value) { return {__bfloat16_as_ushort(__float2bfloat16_rn(value))}; }
inline __device__ float rounded_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

// Sums in an order that does not change from run to run: every lane, every thread of the block gets them.
inline __device__ float warp_sum(float value) {
    for (unsigned width = warp / 2; width > 0; width /= 2) { value += __shfl_xor_sync(all_lanes, value, width); }
    return value;
}
inline __device__ float block_sum(float value) {
    __shared__ float sums[threads / warp];
    value = warp_sum(value);
    if (threadIdx.x % warp == 0) { sums[threadIdx.x / warp] = value; }
    __syncthreads();
    float total = 0;
    for (unsigned i = 0; i < threads / warp; ++i) { total += sums[i]; }
    __syncthreads();
    return total;
}
inline __device__ Bf16* row_of(const Control& control, const Cache& cache, unsigned layer, unsigned part, unsigned head,
                               std::uint64_t position) {
    return reinterpret_cast<Bf16*>(control.block(cache.block(position))) + cache.offset(layer, part, head, position);
}

}  // namespace decoder
