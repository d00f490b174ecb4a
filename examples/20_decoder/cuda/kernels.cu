// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cstddef>

#include "device.cuh"

namespace decoder {
namespace {

__global__ void upload(Upload o) {
    const unsigned count = o.from.count(o.tokens);
    for (unsigned i = blockIdx.x * threads + threadIdx.x; i < count; i += gridDim.x * threads) {
        o.to.words[i] = o.from.words[i];
    }
}

/// A block a token. Rows are multiples of 16 bytes, and begin at one where the table does.
__global__ void embed(Embed o) {
    const Bf16* from = o.table + o.control.id(blockIdx.x) * o.hidden;
    Bf16* to = o.out + std::size_t(blockIdx.x) * o.hidden;
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(uint4) != 0) {
        for (unsigned i = threadIdx.x; i < o.hidden; i += threads) { to[i] = from[i]; }
        return;
    }
    for (unsigned i = threadIdx.x; i < o.hidden / 8; i += threads) {
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
}

/// A block a row.
__global__ void normalise(Normalise o) {
    const Bf16* in = o.in + std::size_t(blockIdx.x) * o.width;
    Bf16* out = o.out + std::size_t(blockIdx.x) * o.width;
    float square = 0;
    for (unsigned i = threadIdx.x; i < o.width; i += threads) { square += load(in + i) * load(in + i); }
    const float factor = 1 / sqrtf(block_sum(square) / float(o.width) + o.epsilon);
    for (unsigned i = threadIdx.x; i < o.width; i += threads) {
        out[i] = bf16(load(o.scale + i) * rounded_bf16(load(in + i) * factor));
    }
}

__device__ void rotate_row(const Bf16* in, const Bf16* cosines, const Bf16* sines, unsigned half, Bf16* out) {
    for (unsigned i = threadIdx.x; i < half; i += warp) {
        const float a = load(in + i), b = load(in + i + half), cosine = load(cosines + i), sine = load(sines + i);
        // Each product is rounded by itself, as the reference does it: no fused multiply-add.
        out[i] = bf16(rounded_bf16(__fmul_rn(a, cosine)) - rounded_bf16(__fmul_rn(b, sine)));
        out[i + half] = bf16(rounded_bf16(__fmul_rn(b, cosine)) + rounded_bf16(__fmul_rn(a, sine)));
    }
}

/// A warp a row: block (token, head); first the heads of the queries, then those of the keys, then those of the values.
__global__ void rotate(Rotate o) {
    const unsigned token = blockIdx.x, width = o.cache.width, half = width / 2;
    const std::uint64_t position = o.control.position() + token;
    const Bf16 *cosines = o.cosines + position * half, *sines = o.sines + position * half;
    unsigned head = blockIdx.y;
    if (head < o.heads) {
        Bf16* row = o.query + (std::size_t(token) * o.heads + head) * width;
        return rotate_row(row, cosines, sines, half, row);
    }
    head -= o.heads;
    if (head < o.cache.heads) {
        return rotate_row(o.key + (std::size_t(token) * o.cache.heads + head) * width, cosines, sines, half,
                          row_of(o.control, o.cache, o.layer, 0, head, position));
    }
    head -= o.cache.heads;
    const Bf16* value = o.value + (std::size_t(token) * o.cache.heads + head) * width;
    Bf16* row = row_of(o.control, o.cache, o.layer, 1, head, position);
    for (unsigned i = threadIdx.x; i < width; i += warp) { row[i] = value[i]; }
}

__global__ void add(Add o) {
    for (std::uint64_t i = std::uint64_t(blockIdx.x) * threads + threadIdx.x; i < o.count; i += gridDim.x * threads) {
        o.state[i] = bf16(load(o.state + i) + load(o.in + i));
    }
}

__global__ void swiglu(Gate o) {
    for (std::uint64_t i = std::uint64_t(blockIdx.x) * threads + threadIdx.x; i < o.count; i += gridDim.x * threads) {
        const float gate = load(o.gate + i);
        o.gate[i] = bf16(rounded_bf16(gate / (1 + expf(-gate))) * load(o.up + i));
    }
}

__global__ void spread(const Bf16* bias, Bf16* out, unsigned width) {
    for (unsigned i = threadIdx.x; i < width; i += threads) { out[std::size_t(blockIdx.x) * width + i] = bias[i]; }
}

constexpr unsigned choosing = 1024;  // threads of the one block that does

__global__ void choose(Choose o) {
    __shared__ float best[choosing];
    __shared__ unsigned at[choosing];
    float value = -INFINITY;
    unsigned index = 0;
    for (unsigned i = threadIdx.x; i < o.words; i += choosing) {
        if (o.logits[i] > value) {
            value = o.logits[i];
            index = i;
        }
    }
    best[threadIdx.x] = value;
    at[threadIdx.x] = index;
    __syncthreads();
    for (unsigned width = choosing / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            const unsigned other = threadIdx.x + width;
            const bool better =
                best[other] > best[threadIdx.x] || (best[other] == best[threadIdx.x] && at[other] < at[threadIdx.x]);
            if (better) {
                best[threadIdx.x] = best[other];
                at[threadIdx.x] = at[other];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) { *o.out = at[0]; }
}

unsigned blocks_for(std::uint64_t count) {
    const std::uint64_t needed = (count + threads - 1) / threads;
    return unsigned(needed < 4096 ? needed : 4096);
}

}  // namespace

cudaError_t launch(const Upload& o, cudaStream_t stream) {
    upload<<<blocks_for(o.from.count(o.tokens)), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Embed& o, cudaStream_t stream) {
    embed<<<o.tokens, threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Normalise& o, cudaStream_t stream) {
    normalise<<<o.rows, threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Rotate& o, cudaStream_t stream) {
    rotate<<<dim3(o.tokens, o.heads + 2 * o.cache.heads), warp, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Add& o, cudaStream_t stream) {
    add<<<blocks_for(o.count), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Gate& o, cudaStream_t stream) {
    swiglu<<<blocks_for(o.count), threads, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Choose& o, cudaStream_t stream) {
    choose<<<1, choosing, 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch_spread(const Bf16* bias, Bf16* out, std::uint32_t rows, std::uint32_t width, cudaStream_t stream) {
    spread<<<rows, threads, 0, stream>>>(bias, out, width);
    return cudaGetLastError();
}

}  // namespace decoder
