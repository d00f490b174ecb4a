// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Attention: of one token over parts of the cache, of many on tensor cores.
#include <cuda_bf16.h>

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "device.cuh"
#include "kernels.hpp"

namespace decoder {
namespace {

// The largest, for every lane, for every thread of the block.
__device__ float warp_max(float value) {
    for (unsigned width = warp / 2; width > 0; width /= 2) {
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, width));
    }
    return value;
}
__device__ float block_max(float value) {
    __shared__ float largest[threads / warp];
    value = warp_max(value);
    if (threadIdx.x % warp == 0) { largest[threadIdx.x / warp] = value; }
    __syncthreads();
    value = largest[0];
    for (unsigned i = 1; i < threads / warp; ++i) { value = fmaxf(value, largest[i]); }
    __syncthreads();
    return value;
}

// ---- Attention of one token: parts of the cache in parallel, then put together ---------------------------------------

/// Of a head, what one part of the cache comes to: an output that is not yet divided, the largest score, and the sum of the shares.
struct Part {
    float* at;
    unsigned width;
    __device__ Part(const Attend& o, unsigned head, unsigned part)
        : at{o.partial + (std::size_t(part) * o.heads + head) * (o.cache.width + 2)}, width{o.cache.width} {}
    __device__ float& output(unsigned i) const { return at[i]; }
    __device__ float& largest() const { return at[width]; }
    __device__ float& sum() const { return at[width + 1]; }
};

/// Block (part, head). A warp computes a score at a time, then each thread an element of the output.
__global__ void attend_part(Attend o) {
    __shared__ float scores[part_positions];
    __shared__ float query[256];
    const unsigned width = o.cache.width, head = blockIdx.y, shared_head = head / (o.heads / o.cache.heads);
    const std::uint64_t length = o.control.position() + 1, first = std::uint64_t(blockIdx.x) * part_positions;
    if (first >= length) { return; }
    const unsigned count = unsigned(min(length - first, std::uint64_t{part_positions}));
    for (unsigned i = threadIdx.x; i < width; i += threads) { query[i] = load(o.query + head * width + i); }
    __syncthreads();

    const float factor = 1 / sqrtf(float(width));
    float largest = -INFINITY;
    for (unsigned u = threadIdx.x / warp; u < count; u += threads / warp) {
        const Bf16* key = row_of(o.control, o.cache, o.layer, 0, shared_head, first + u);
        float sum = 0;
        for (unsigned i = threadIdx.x % warp * 2; i < width; i += warp * 2) {
            const float2 both = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(key + i));
            sum += query[i] * both.x + query[i + 1] * both.y;
        }
        sum = warp_sum(sum) * factor;
        if (threadIdx.x % warp == 0) { scores[u] = sum; }
        largest = fmaxf(largest, sum);
    }
    largest = block_max(largest);  // and every score is there
    float total = 0;
    for (unsigned u = threadIdx.x; u < count; u += threads) {
        scores[u] = expf(scores[u] - largest);
        total += scores[u];
    }
    total = block_sum(total);

    const Part part{o, head, blockIdx.x};
    for (unsigned i = threadIdx.x; i < width; i += threads) {
        float sum = 0;
        for (unsigned u = 0; u < count; ++u) {
            sum += scores[u] * load(row_of(o.control, o.cache, o.layer, 1, shared_head, first + u) + i);
        }
        part.output(i) = sum;
    }
    if (threadIdx.x == 0) {
        part.largest() = largest;
        part.sum() = total;
    }
}

/// A block a head.
__global__ void join_parts(Attend o) {
    const unsigned width = o.cache.width, head = blockIdx.x;
    const unsigned parts = unsigned((o.control.position() + part_positions) / part_positions);
    float largest = -INFINITY, total = 0;
    for (unsigned p = 0; p < parts; ++p) { largest = fmaxf(largest, Part{o, head, p}.largest()); }
    for (unsigned p = 0; p < parts; ++p) {
        const Part part{o, head, p};
        total += part.sum() * expf(part.largest() - largest);
    }
    for (unsigned i = threadIdx.x; i < width; i += threads) {
        float sum = 0;
        for (unsigned p = 0; p < parts; ++p) {
            const Part part{o, head, p};
            sum += part.output(i) * expf(part.largest() - largest);
        }
        o.out[head * width + i] = bf16(sum / total);
    }
}

// ---- Attention of many tokens: tiles on tensor cores, softmax on the way ---------------------------------------------
//
// After Dao, FlashAttention (2022). A block has `tile` tokens of one head, and goes through the cache `tile` positions at a time; each of
// its four warps has sixteen of the tokens. m16n8k16 products: lane l of a warp has, of a result, the rows l / 4 and l / 4 + 8, and of
// each eight columns 2 (l % 4) and the next; of the left factor the same rows, and columns 2 (l % 4) + {0, 1, 8, 9}; of the right one
// column l / 4 and these rows.

constexpr unsigned tile = 64;

__device__ unsigned pair(const __nv_bfloat16* at) { return *reinterpret_cast<const unsigned*>(at); }
__device__ unsigned pair(float low, float high) {
    return unsigned(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
           unsigned(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16U;
}
__device__ unsigned pair(const __nv_bfloat16* low, const __nv_bfloat16* high) {
    return unsigned(__bfloat16_as_ushort(*low)) | unsigned(__bfloat16_as_ushort(*high)) << 16U;
}

struct Left {
    unsigned at[4];
};
/// sum += left × right, 16 × 8 of it.
__device__ void multiply_add(float (&sum)[4], const Left& left, unsigned right_low, unsigned right_high) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right_low), "r"(right_high));
}

/// Rows of the tile in shared memory are `padded` apart, so that lanes of a warp meet different banks.
template <unsigned width>
constexpr unsigned padded = width + 8;
template <unsigned width>
constexpr unsigned tile_bytes = 2 * tile * padded<width> * sizeof(__nv_bfloat16);

template <unsigned width>
__global__ void __launch_bounds__(threads) attend_tile(Attend o) {
    extern __shared__ __align__(16) unsigned char shared[];
    auto* keys = reinterpret_cast<__nv_bfloat16*>(shared);
    auto* values = keys + tile * padded<width>;
    const unsigned head = blockIdx.y, shared_head = head / (o.heads / o.cache.heads);
    const unsigned lane = threadIdx.x % warp, row = threadIdx.x / warp * 16 + lane / 4, column = lane % 4 * 2;
    const unsigned first = (gridDim.x - 1 - blockIdx.x) * tile;  // the longest rows first
    const std::uint64_t start = o.control.position();
    const unsigned tokens[2] = {first + row, first + row + 8};  // of this lane

    Left query[width / 16];
#pragma unroll
    for (unsigned k = 0; k < width / 16; ++k) {
#pragma unroll
        for (unsigned part = 0; part < 4; ++part) {
            const unsigned token = tokens[part % 2], at = k * 16 + column + part / 2 * 8;
            const auto* from = reinterpret_cast<const __nv_bfloat16*>(o.query);
            query[k].at[part] = token < o.tokens ? pair(from + (std::size_t(token) * o.heads + head) * width + at) : 0;
        }
    }

    float out[width / 8][4] = {};
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    const float factor = 1 / sqrtf(float(width));
    const std::uint64_t end = start + min(first + tile, o.tokens);  // of the positions that any of these tokens sees
    for (std::uint64_t begin = 0; begin < end; begin += tile) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < tile * width / 8; i += threads) {
            const unsigned u = i / (width / 8), at = i % (width / 8) * 8;
            uint4 key{}, value{};
            if (begin + u < end) {
                key = *reinterpret_cast<const uint4*>(row_of(o.control, o.cache, o.layer, 0, shared_head, begin + u) +
                                                      at);
                value = *reinterpret_cast<const uint4*>(row_of(o.control, o.cache, o.layer, 1, shared_head, begin + u) +
                                                        at);
            }
            *reinterpret_cast<uint4*>(keys + u * padded<width> + at) = key;
            *reinterpret_cast<uint4*>(values + u * padded<width> + at) = value;
        }
        __syncthreads();

        float scores[tile / 8][4] = {};
        for (unsigned n = 0; n < tile / 8; ++n) {
            const __nv_bfloat16* key = keys + (n * 8 + lane / 4) * padded<width> + column;
            for (unsigned k = 0; k < width / 16; ++k) {
                multiply_add(scores[n], query[k], pair(key + k * 16), pair(key + k * 16 + 8));
            }
        }
        // The softmax of two rows; four lanes have a row together.
        for (unsigned half = 0; half < 2; ++half) {
            const std::uint64_t last = start + tokens[half];  // the last position that this token sees
            float top = largest[half];
            for (unsigned n = 0; n < tile / 8; ++n) {
                for (unsigned i = 0; i < 2; ++i) {
                    float& score = scores[n][half * 2 + i];
                    score = begin + n * 8 + column + i <= last ? score * factor : -INFINITY;
                    top = fmaxf(top, score);
                }
            }
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
            top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
            const float kept = expf(largest[half] - top);  // 0 at first: position 0 is seen by every token
            float sum = 0;
            for (unsigned n = 0; n < tile / 8; ++n) {
                for (unsigned i = 0; i < 2; ++i) {
                    float& score = scores[n][half * 2 + i];
                    score = expf(score - top);
                    sum += score;
                }
            }
            sum += __shfl_xor_sync(all_lanes, sum, 1);
            sum += __shfl_xor_sync(all_lanes, sum, 2);
            total[half] = total[half] * kept + sum;
            largest[half] = top;
            for (unsigned n = 0; n < width / 8; ++n) {
                out[n][half * 2] *= kept;
                out[n][half * 2 + 1] *= kept;
            }
        }
        for (unsigned k = 0; k < tile / 16; ++k) {
            const Left shares{{pair(scores[2 * k][0], scores[2 * k][1]), pair(scores[2 * k][2], scores[2 * k][3]),
                               pair(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                               pair(scores[2 * k + 1][2], scores[2 * k + 1][3])}};
            for (unsigned n = 0; n < width / 8; ++n) {
                const __nv_bfloat16* value = values + (k * 16 + column) * padded<width> + n * 8 + lane / 4;
                multiply_add(out[n], shares, pair(value, value + padded<width>),
                             pair(value + 8 * padded<width>, value + 9 * padded<width>));
            }
        }
    }
    for (unsigned half = 0; half < 2; ++half) {
        if (tokens[half] >= o.tokens) { continue; }
        Bf16* to = o.out + (std::size_t(tokens[half]) * o.heads + head) * width + column;
        for (unsigned n = 0; n < width / 8; ++n) {
            to[n * 8] = bf16(out[n][half * 2] / total[half]);
            to[n * 8 + 1] = bf16(out[n][half * 2 + 1] / total[half]);
        }
    }
}

/// Calls `use` with the width of a head as a constant: one of head_widths, as the configuration was checked for.
template <std::size_t i = 0, class Use>
cudaError_t with_width(unsigned wanted, Use&& use) {
    if constexpr (i < std::size(head_widths)) {
        return wanted == head_widths[i] ? use(std::integral_constant<unsigned, head_widths[i]>{})
                                        : with_width<i + 1>(wanted, use);
    } else {
        return cudaErrorInvalidValue;
    }
}

}  // namespace

cudaError_t launch(const Attend& o, cudaStream_t stream) {
    if (o.tokens == 1) {
        attend_part<<<dim3((o.length + part_positions - 1) / part_positions, o.heads), threads, 0, stream>>>(o);
        if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) { return code; }
        join_parts<<<o.heads, threads, 0, stream>>>(o);
        return cudaGetLastError();
    }
    return with_width(o.cache.width, [&](auto width) {
        constexpr unsigned bytes = tile_bytes<width.value>;
        attend_tile<width.value><<<dim3((o.tokens + tile - 1) / tile, o.heads), threads, bytes, stream>>>(o);
        return cudaGetLastError();
    });
}

cudaError_t prepare_kernels() {
    for (const unsigned width : head_widths) {
        const cudaError_t code = with_width(width, [](auto constant) {
            return cudaFuncSetAttribute(attend_tile<constant.value>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        int(tile_bytes<constant.value>));
        });
        if (code != cudaSuccess) { return code; }
    }
    return cudaSuccess;
}

}  // namespace decoder
