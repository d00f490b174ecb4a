// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cstddef>

namespace experts {
namespace {

constexpr unsigned threads = 256, warps = threads / 32;

/// The same for all lanes.
__device__ float warp_sum(float value) {
    for (unsigned lane = 16; lane != 0; lane /= 2) { value += __shfl_xor_sync(~0U, value, lane); }
    return value;
}
/// A row of weights with x: each lane takes eight at a time.
__device__ float dot(const Bf16* weights, const float* x, unsigned count) {
    float sum = 0;
    for (unsigned i = threadIdx.x % 32 * 8; i < count; i += 256) {
        const uint4 eight = __ldcs(reinterpret_cast<const uint4*>(weights + i));
        const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
            sum += __uint_as_float(pairs[k] << 16U) * x[i + 2 * k];
            sum += __uint_as_float(pairs[k] & 0xFFFF0000U) * x[i + 2 * k + 1];
        }
    }
    return warp_sum(sum);
}
/// One over the length of x, by the whole block.
__device__ float inverse_length(const float* x, unsigned count) {
    __shared__ float sums[warps];
    float square = 0;
    for (unsigned i = threadIdx.x; i < count; i += threads) { square += x[i] * x[i]; }
    square = warp_sum(square);
    if (threadIdx.x % 32 == 0) { sums[threadIdx.x / 32] = square; }
    __syncthreads();
    float total = 1e-6F;
    for (const float each : sums) { total += each; }
    return rsqrtf(total);
}

__global__ void embed(Embed o) {
    const unsigned i = blockIdx.x * threads + threadIdx.x;
    if (i < o.hidden) { o.x[i] = embedding(o.token, i); }
}
/// A warp for each score.
__global__ void route(Route o) {
    const float scale = 0.6F * unit * inverse_length(o.x, o.hidden);
    const unsigned score = blockIdx.x * warps + threadIdx.x / 32;
    if (score >= 2 * experts_a_layer) { return; }
    const Bf16* router = score < experts_a_layer ? o.here : o.next;
    const float sum = dot(router + std::size_t{score % experts_a_layer} * o.hidden, o.x, o.hidden);
    if (threadIdx.x % 32 == 0) { o.scores[score] = scale * sum; }
}
/// A warp for each value; the experts in the grid's second dimension.
__global__ void __launch_bounds__(threads) expand(const __grid_constant__ Expand o) {
    const float scale = unit * inverse_length(o.x, o.hidden);
    const unsigned i = blockIdx.x * warps + threadIdx.x / 32, e = blockIdx.y;
    if (i >= o.inner) { return; }
    const std::size_t row = std::size_t{i} * o.hidden;
    const float gate = scale * dot((e == 0 ? o.gate.front() : o.gate.back()) + row, o.x, o.hidden);
    const float up = scale * dot((e == 0 ? o.up.front() : o.up.back()) + row, o.x, o.hidden);
    if (threadIdx.x % 32 == 0) {
        const float share = e == 0 ? o.shares.front() : o.shares.back();
        o.values[std::size_t{e} * o.inner + i] = share * gate / (1 + __expf(-gate)) * up;
    }
}
/// A warp for each number of x.
__global__ void __launch_bounds__(threads) reduce(const __grid_constant__ Reduce o) {
    const unsigned k = blockIdx.x * warps + threadIdx.x / 32;
    if (k >= o.hidden) { return; }
    const std::size_t row = std::size_t{k} * o.inner;
    const float sum =
        dot(o.down.front() + row, o.values, o.inner) + dot(o.down.back() + row, o.values + o.inner, o.inner);
    if (threadIdx.x % 32 == 0) { o.x[k] += 0.1F * unit * rsqrtf(float(o.inner)) * sum; }
}
static_assert(chosen == 2);

[[nodiscard]] unsigned blocks(std::uint32_t count, unsigned each) { return (count + each - 1) / each; }

}  // namespace

cudaError_t launch(const Embed& o, cudaStream_t stream) {
    embed<<<blocks(o.hidden, threads), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Route& o, cudaStream_t stream) {
    route<<<blocks(2 * experts_a_layer, warps), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Expand& o, cudaStream_t stream) {
    expand<<<dim3(blocks(o.inner, warps), chosen), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Reduce& o, cudaStream_t stream) {
    reduce<<<blocks(o.hidden, warps), threads, 0, stream>>>(o);
    return cudaGetLastError();
}

}  // namespace experts
