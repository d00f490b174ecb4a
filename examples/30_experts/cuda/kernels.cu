// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include "residency/packed/cuda_unpacker.cuh"
#include "residency/routed/cuda_server.cuh"

#include <cstddef>

namespace experts {
namespace {

constexpr unsigned threads = 256, warps = threads / 32, tile = 8;  // tokens that a block works on

/// The same for all lanes.
__device__ float warp_sum(float value) {
    for (unsigned lane = 16; lane != 0; lane /= 2) { value += __shfl_xor_sync(~0U, value, lane); }
    return value;
}
/// A row of weights with x of some tokens, `stride` numbers from one to the next: each lane takes eight weights at a time.
__device__ void dots(const Bf16* weights, const float* x, unsigned count, unsigned stride, unsigned tokens,
                     float (&sums)[tile]) {
    for (float& sum : sums) { sum = 0; }
    for (unsigned i = threadIdx.x % 32 * 8; i < count; i += 256) {
        const uint4 eight = __ldcs(reinterpret_cast<const uint4*>(weights + i));
        const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
        float w[8];
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
            w[2 * k] = __uint_as_float(pairs[k] << 16U);
            w[2 * k + 1] = __uint_as_float(pairs[k] & 0xFFFF0000U);
        }
#pragma unroll
        for (unsigned t = 0; t < tile; ++t) {
            if (t >= tokens) { break; }
            const auto* of = reinterpret_cast<const float4*>(x + std::size_t{t} * stride + i);
            const float4 a = of[0], b = of[1];
            sums[t] += w[0] * a.x + w[1] * a.y + w[2] * a.z + w[3] * a.w;
            sums[t] += w[4] * b.x + w[5] * b.y + w[6] * b.z + w[7] * b.w;
        }
    }
    for (float& sum : sums) { sum = warp_sum(sum); }
}
/// One over the length of x, by a warp.
__device__ float inverse_length(const float* x, unsigned count) {
    float square = 0;
    for (unsigned i = threadIdx.x % 32; i < count; i += 32) { square += x[i] * x[i]; }
    return rsqrtf(1e-6F + warp_sum(square));
}

__global__ void embed(Embed o) {
    const unsigned i = blockIdx.x * threads + threadIdx.x;
    if (i < o.hidden) { o.x[std::size_t{blockIdx.y} * o.hidden + i] = embedding(o.token + blockIdx.y, i); }
}
/// A warp for each score.
__global__ void route(Route o) {
    const unsigned score = blockIdx.x * warps + threadIdx.x / 32;
    if (score >= 2 * experts_a_layer) { return; }
    const Bf16* router = score < experts_a_layer ? o.here : o.next;
    float sums[tile];
    dots(router + std::size_t{score % experts_a_layer} * o.hidden, o.x, o.hidden, 0, 1, sums);
    const float scale = 0.6F * unit * inverse_length(o.x, o.hidden);
    if (threadIdx.x % 32 == 0) { o.scores[score] = scale * sums[0]; }
}
__global__ void choose(Choose o) {
    for (unsigned of = 0; of < 2; ++of) {
        const float* const scores = o.scores + of * experts_a_layer;
        std::int32_t* const to = o.choices + of * chosen;
        to[0] = best_of(scores, -1);
        to[1] = best_of(scores, to[0]);
    }
    const float second = __expf(o.scores[o.choices[1]] - o.scores[o.choices[0]]);
    o.shares[0] = 1 / (1 + second);
    o.shares[1] = second / (1 + second);
}
/// A warp for a value of each token of the tile; the experts in the grid's second dimension, the tiles in its third.
__global__ void __launch_bounds__(threads) expand(const __grid_constant__ Expand o) {
    __shared__ float scales[tile];
    static_assert(tile == warps);
    const unsigned first = blockIdx.z * tile, tokens = min(tile, o.batch - first), warp = threadIdx.x / 32;
    const float* x = o.x + std::size_t{first} * o.hidden;
    if (warp < tokens) { scales[warp] = unit * inverse_length(x + std::size_t{warp} * o.hidden, o.hidden); }
    __syncthreads();
    const unsigned i = blockIdx.x * warps + warp, e = blockIdx.y;
    if (i >= o.inner) { return; }
    const std::size_t row = std::size_t{i} * o.hidden;
    float gates[tile], ups[tile];
    const Bf16* const expert = o.experts[e];
    dots(expert + row, x, o.hidden, o.hidden, tokens, gates);
    dots(expert + std::size_t{o.inner} * o.hidden + row, x, o.hidden, o.hidden, tokens, ups);
    const float share = e < chosen ? o.shares[e] : 1;
#pragma unroll
    for (unsigned t = 0; t < tile; ++t) {
        if (t < tokens && threadIdx.x % 32 == t) {
            const float gate = scales[t] * gates[t], up = scales[t] * ups[t];
            o.values[(std::size_t{first + t} * read_a_layer + e) * o.inner + i] =
                share * gate / (1 + __expf(-gate)) * up;
        }
    }
}
/// A warp for a number of x of each token of the tile; the tiles in the grid's second dimension.
__global__ void __launch_bounds__(threads) reduce(const __grid_constant__ Reduce o) {
    const unsigned first = blockIdx.y * tile, tokens = min(tile, o.batch - first);
    const unsigned k = blockIdx.x * warps + threadIdx.x / 32;
    if (k >= o.hidden) { return; }
    const std::size_t row = std::size_t{k} * o.inner;
    const float* values = o.values + std::size_t{first} * read_a_layer * o.inner;
    float sums[tile], all[tile] = {};
    for (unsigned e = 0; e < read_a_layer; ++e) {
        const Bf16* const down = o.experts[e] + std::size_t{2} * o.inner * o.hidden;
        dots(down + row, values + std::size_t{e} * o.inner, o.inner, read_a_layer * o.inner, tokens, sums);
#pragma unroll
        for (unsigned t = 0; t < tile; ++t) { all[t] += sums[t]; }
    }
#pragma unroll
    for (unsigned t = 0; t < tile; ++t) {
        if (t < tokens && threadIdx.x % 32 == t) {
            o.x[std::size_t{first + t} * o.hidden + k] += 0.1F * unit * rsqrtf(float(o.inner)) * all[t];
        }
    }
}
static_assert(chosen == 2);

[[nodiscard]] unsigned blocks(std::uint32_t count, unsigned each) { return (count + each - 1) / each; }

}  // namespace

cudaError_t launch(const Embed& o, cudaStream_t stream) {
    embed<<<dim3(blocks(o.hidden, threads), o.batch), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Route& o, cudaStream_t stream) {
    route<<<blocks(2 * experts_a_layer, warps), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Choose& o, cudaStream_t stream) {
    choose<<<1, 1, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Expand& o, cudaStream_t stream) {
    expand<<<dim3(blocks(o.inner, warps), read_a_layer, blocks(o.batch, tile)), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Reduce& o, cudaStream_t stream) {
    reduce<<<dim3(blocks(o.hidden, warps), blocks(o.batch, tile)), threads, 0, stream>>>(o);
    return cudaGetLastError();
}

const residency::Unpacker<residency::CudaDevice>& unpacker() {
    static const residency::CudaUnpacker one;
    return one;
}
const residency::routed::Server<residency::CudaDevice, residency::routed::ExpectedUse>& server() {
    static const residency::CudaServer one;
    return one;
}

}  // namespace experts
