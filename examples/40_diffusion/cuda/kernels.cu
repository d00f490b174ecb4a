// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cstddef>

namespace diffusion {
namespace {

constexpr unsigned tile = 64, depth = 16, side = 16, each = tile / side;

/// A block of side × side threads makes tile × tile results, each thread each × each of them.
__global__ void __launch_bounds__(side* side) product(Product o) {
    __shared__ float in[depth][tile + 1], weight[depth][tile + 1];
    const std::size_t row = std::size_t{blockIdx.y} * tile, column = std::size_t{blockIdx.x} * tile;
    const unsigned thread = threadIdx.y * side + threadIdx.x;
    float sums[each][each] = {};
    for (unsigned k = 0; k < o.from; k += depth) {
        for (unsigned i = thread; i < tile * depth; i += side * side) {
            const unsigned r = i / depth, c = i % depth;
            in[c][r] = o.in[(row + r) * o.from + k + c];
            weight[c][r] = o.weight[(column + r) * o.from + k + c];
        }
        __syncthreads();
#pragma unroll
        for (unsigned c = 0; c < depth; ++c) {
#pragma unroll
            for (unsigned a = 0; a < each; ++a) {
#pragma unroll
                for (unsigned b = 0; b < each; ++b) {
                    sums[a][b] += in[c][threadIdx.y + a * side] * weight[c][threadIdx.x + b * side];
                }
            }
        }
        __syncthreads();
    }
    for (unsigned a = 0; a < each; ++a) {
        for (unsigned b = 0; b < each; ++b) {
            float* const out = o.out + (row + threadIdx.y + a * side) * o.to + column + threadIdx.x + b * side;
            const float sum = sums[a][b];
            *out = o.up ? sum / (1 + __expf(-sum)) / float(o.to) : *out + sum;
        }
    }
}

}  // namespace

cudaError_t launch(const Product& o, cudaStream_t stream) {
    product<<<dim3(o.to / tile, o.pixels / tile), dim3(side, side), 0, stream>>>(o);
    return cudaGetLastError();
}

}  // namespace diffusion
