// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/codec/bf16_tiers_layout.hpp"
#include "residency/codec/checksum.hpp"
#include "residency/codec/pack_task.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/unpack_task.hpp"
#include "residency/config.hpp"

// Device code of codec::Bf16Tiers: kernels that unpack and pack chunks. For files that nvcc compiles.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace bf16_tiers {

using codec::PackResult;
using codec::PackTask;
using codec::UnpackTask;

/// Raw bytes that one block of a pack kernel takes.
inline constexpr std::uint32_t most_kernel_raw_bytes = std::uint32_t{2} << 20;
inline constexpr unsigned block_threads = 1024;
/// Chunks that one launch unpacks where their tasks go with it: so many fit into the 4 KiB that its parameters may have.
inline constexpr std::uint32_t most_given_tasks = 240;

namespace detail {

constexpr std::uint32_t all_lanes = ~std::uint32_t{0};

/// 32 bits of a plane, from any bit on.
__device__ __forceinline__ std::uint32_t window(const std::uint32_t* plane, std::uint32_t bit) {
    const std::uint32_t word = bit >> 5;
    return __funnelshift_r(__ldg(plane + word), __ldg(plane + word + 1), bit & 31);
}
/// The sum over the lanes before this one; `sum`: over all.
__device__ __forceinline__ std::uint32_t sum_before(std::uint32_t value, std::uint32_t lane, std::uint32_t& sum) {
    std::uint32_t running = value;
#pragma unroll
    for (std::uint32_t distance = 1; distance < 32; distance <<= 1) {
        const std::uint32_t other = __shfl_up_sync(all_lanes, running, distance);
        if (lane >= distance) { running += other; }
    }
    sum = __shfl_sync(all_lanes, running, 31);
    return running - value;
}

/// Unpacks group after group, a warp each. Compares with the raw bytes instead of writing them where `compares` is set; a task without
/// packed bytes has nothing to compare.
template <bool compares>
__device__ __forceinline__ void unpack_groups(const UnpackTask* __restrict__ tasks, std::uint32_t count,
                                              std::uint32_t groups_each, unsigned long long* differing) {
    const std::uint32_t lane = threadIdx.x & 31;
    const std::uint32_t warps = (gridDim.x * blockDim.x) >> 5;
    std::uint32_t wrong = 0;
    for (std::uint32_t turn = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; turn < count * groups_each; turn += warps) {
        const UnpackTask task = tasks[turn / groups_each];
        if constexpr (compares) {
            if (task.packed == nullptr) { continue; }
        }
        const std::uint32_t group = turn % groups_each;
        const Header* const header = reinterpret_cast<const Header*>(task.packed);
        const std::uint32_t values = header->values;
        const std::uint32_t groups = (values + group_values - 1) / group_values;
        if (group == 0 && lane == 0 && (header->packed.raw_bytes & 1) != 0) {
            const auto tail = static_cast<std::byte>(header->tail);
            if constexpr (compares) {
                wrong += task.raw[2 * std::size_t{values}] != tail ? 1 : 0;
            } else {
                task.raw[2 * std::size_t{values}] = tail;
            }
        }
        if (group >= groups) { continue; }
        const std::uint32_t ranks[4] = {header->ranks[0], header->ranks[1], header->ranks[2], header->ranks[3]};
        const std::size_t first_lane = group * std::size_t{group_lanes} + lane;
        const uint4* const s = reinterpret_cast<const uint4*>(task.packed + packed_header_bytes) + first_lane;
        const std::uint32_t* const t0 = reinterpret_cast<const std::uint32_t*>(task.packed + packed_header_bytes +
                                                                               std::size_t{groups} * group_values) +
                                        first_lane;
        const std::uint32_t* const index =
            reinterpret_cast<const std::uint32_t*>(task.packed + header->index_at) + 3 * group;
        const std::uint32_t* const t1 = reinterpret_cast<const std::uint32_t*>(task.packed + header->t1_at);
        const std::uint32_t* const t2 = reinterpret_cast<const std::uint32_t*>(task.packed + header->t2_at);
        const std::uint16_t* const t3 = reinterpret_cast<const std::uint16_t*>(task.packed + header->t3_at);
        std::uint32_t begin1 = index[0], begin2 = index[1], begin3 = index[2];
        std::uint32_t word0 = __ldg(t0);
        uint4 bytes = __ldg(s);
#pragma unroll 1
        for (std::uint32_t round = 0; round < 8; ++round) {
            std::uint32_t next_word0 = 0, sum = 0;
            uint4 next_bytes = {};
            if (round < 7) {
                next_word0 = __ldg(t0 + 32 * (round + 1));
                next_bytes = __ldg(s + 32 * (round + 1));
            }
            const std::uint32_t n1 = entries_in_t1(word0);
            const std::uint32_t word1 = window(t1, 2 * (begin1 + sum_before(n1, lane, sum)));
            begin1 += sum;
            const std::uint32_t n2 = entries_in_t2(word1, n1);
            const std::uint32_t bit2 = 3 * (begin2 + sum_before(n2, lane, sum));
            begin2 += sum;
            const std::uint32_t low2 = window(t2, bit2), high2 = n2 > 10 ? window(t2, bit2 + 32) : 0;
            const std::uint64_t word2 = std::uint64_t{high2} << 32 | low2;
            std::uint32_t exponents[4];
            exponents_of_lane(word0, word1, word2, ranks, exponents);
            const std::uint32_t n3 = __popcll(sent_to_t3(word2, n2));
            if (__any_sync(all_lanes, n3 != 0)) {
                const std::uint32_t at3 = begin3 + sum_before(n3, lane, sum);
                begin3 += sum;
                for (std::uint32_t i = 0; i < n3; ++i) {
                    const std::uint32_t entry = __ldg(t3 + at3 + i), place = entry >> 8, shift = 8 * (place & 3);
#pragma unroll
                    for (std::uint32_t word = 0; word < 4; ++word) {  // no index that is known at run time only
                        const std::uint32_t mask = place >> 2 == word ? 255U << shift : 0U;
                        exponents[word] = (exponents[word] & ~mask) | (entry << shift & mask);
                    }
                }
            }
            const std::uint32_t mantissas[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
            std::uint32_t pairs[8];
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                pairs[2 * word] = rotate_back(__byte_perm(mantissas[word], exponents[word], 0x5140));
                pairs[2 * word + 1] = rotate_back(__byte_perm(mantissas[word], exponents[word], 0x7362));
            }
            const std::uint32_t first = group * group_values + (round * 32 + lane) * lane_values;
            if (first + lane_values <= values) {
                uint4* const out = reinterpret_cast<uint4*>(task.raw + 2 * std::size_t{first});
                if constexpr (compares) {
                    const uint4 a = out[0], b = out[1];
                    wrong += (a.x != pairs[0]) + (a.y != pairs[1]) + (a.z != pairs[2]) + (a.w != pairs[3]) +
                             (b.x != pairs[4]) + (b.y != pairs[5]) + (b.z != pairs[6]) + (b.w != pairs[7]);
                } else {
                    out[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
                    out[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
                }
            } else {
                std::uint16_t* const out = reinterpret_cast<std::uint16_t*>(task.raw) + first;
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const auto value = static_cast<std::uint16_t>(pairs[i / 2] >> 16 * (i % 2));
                    if (first + i >= values) { continue; }
                    if constexpr (compares) {
                        wrong += out[i] != value ? 1 : 0;
                    } else {
                        out[i] = value;
                    }
                }
            }
            word0 = next_word0;
            bytes = next_bytes;
        }
    }
    if constexpr (compares) {
        if (wrong != 0) { atomicAdd(differing, wrong); }
    }
}
template <bool compares>
__global__ void __launch_bounds__(block_threads)
    unpack_kernel(const UnpackTask* __restrict__ tasks, std::uint32_t count, std::uint32_t groups_each,
                  unsigned long long* differing) {
    unpack_groups<compares>(tasks, count, groups_each, differing);
}

/// Tasks that go with a launch.
struct GivenTasks {
    UnpackTask tasks[most_given_tasks];
};
template <class Tasks = GivenTasks>
__global__ void __launch_bounds__(block_threads)
    unpack_given_kernel(const __grid_constant__ Tasks given, std::uint32_t count, std::uint32_t groups_each) {
    unpack_groups<false>(given.tasks, count, groups_each, nullptr);
}

/// ORs bits into a plane of zeros that other threads write too.
__device__ __forceinline__ void put_bits(std::uint32_t* plane, std::uint32_t bit, std::uint64_t entries) {
    if (entries == 0) { return; }
    std::uint32_t* const word = plane + (bit >> 5);
    const std::uint32_t shift = bit & 31;
    const auto low = static_cast<std::uint32_t>(entries << shift);
    const auto middle = static_cast<std::uint32_t>(entries << shift >> 32);
    const auto high = shift == 0 ? 0 : static_cast<std::uint32_t>(entries >> (64 - shift));
    if (low != 0) { atomicOr(word, low); }
    if (middle != 0) { atomicOr(word + 1, middle); }
    if (high != 0) { atomicOr(word + 2, high); }
}

/// The 16 values of a lane as 8 pairs; zeros behind the end.
__device__ __forceinline__ void load_lane(const std::byte* raw, std::uint32_t first, std::uint32_t values,
                                          std::uint32_t (&pairs)[8]) {
    if (first + lane_values <= values) {
        const uint4* const in = reinterpret_cast<const uint4*>(raw + 2 * std::size_t{first});
        const uint4 a = __ldg(in), b = __ldg(in + 1);
        pairs[0] = a.x, pairs[1] = a.y, pairs[2] = a.z, pairs[3] = a.w;
        pairs[4] = b.x, pairs[5] = b.y, pairs[6] = b.z, pairs[7] = b.w;
        return;
    }
    const std::uint16_t* const in = reinterpret_cast<const std::uint16_t*>(raw);
#pragma unroll
    for (std::uint32_t pair = 0; pair < 8; ++pair) {
        const std::uint32_t at = first + 2 * pair;
        pairs[pair] = (at < values ? in[at] : 0U) | (at + 1 < values ? std::uint32_t{in[at + 1]} : 0U) << 16;
    }
}

/// Packs chunk after chunk, a block each: ranks its exponents, counts what goes to each tier, and writes the planes. `packed_bytes`:
/// by task, the bytes of the packed form, or 0 where there is no room for it.
template <int = 0>
__global__ void __launch_bounds__(block_threads)
    pack_kernel(const PackTask* __restrict__ tasks, std::uint32_t count, std::uint32_t* __restrict__ packed_bytes) {
    constexpr std::uint32_t warps = block_threads / 32;
    constexpr std::uint32_t most_groups = most_kernel_raw_bytes / 2 / group_values;
    __shared__ std::uint32_t counts[warps][256];  // by warp and exponent
    __shared__ std::uint32_t total[256];
    __shared__ std::uint8_t rank[256], exponent_of[256];
    __shared__ std::uint32_t begins[most_groups + 1][3];
    __shared__ std::uint32_t tiers[3];
    const std::uint32_t thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    for (std::uint32_t turn = blockIdx.x; turn < count; turn += gridDim.x) {
        const PackTask task = tasks[turn];
        const std::uint32_t values = task.raw_bytes / 2;
        const std::uint32_t groups = (values + group_values - 1) / group_values;
        for (std::uint32_t i = thread; i < warps * 256; i += block_threads) { (&counts[0][0])[i] = 0; }
        if (thread < 3) { tiers[thread] = 0; }
        __syncthreads();
        for (std::uint32_t at = thread; at * lane_values < values; at += block_threads) {
            std::uint32_t pairs[8];
            load_lane(task.raw, at * lane_values, values, pairs);
#pragma unroll
            for (std::uint32_t i = 0; i < lane_values; ++i) {
                if (at * lane_values + i < values) {
                    atomicAdd(&counts[warp][pairs[i / 2] >> (16 * (i % 2) + 7) & 255], 1U);
                }
            }
        }
        __syncthreads();
        if (thread < 256) {
            std::uint32_t sum = 0;
            for (std::uint32_t w = 0; w < warps; ++w) { sum += counts[w][thread]; }
            total[thread] = sum;
        }
        __syncthreads();
        if (thread < 256) {
            const std::uint32_t own = total[thread];
            std::uint32_t above = 0;
            for (std::uint32_t other = 0; other < 256; ++other) {
                above += total[other] > own || (total[other] == own && other < thread) ? 1 : 0;
            }
            rank[thread] = static_cast<std::uint8_t>(above);
            exponent_of[above] = static_cast<std::uint8_t>(thread);
            if (above >= 3) { atomicAdd(&tiers[0], own); }
            if (above >= 6) { atomicAdd(&tiers[1], own); }
            if (above >= 13) { atomicAdd(&tiers[2], own); }
        }
        __syncthreads();
        const Layout layout = layout_of(values, tiers[0], tiers[1], tiers[2]);
        const bool fits = layout.bytes <= task.room_bytes;
        if (thread == 0) { packed_bytes[turn] = fits ? layout.bytes : 0; }
        if (!fits) {
            __syncthreads();
            continue;
        }
        for (std::uint32_t group = warp; group < groups; group += warps) {
            std::uint32_t n[3] = {};
            for (std::uint32_t round = 0; round < 8; ++round) {
                const std::uint32_t first = group * group_values + (round * 32 + lane) * lane_values;
                std::uint32_t pairs[8];
                load_lane(task.raw, first, values, pairs);
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const std::uint32_t r = first + i < values ? rank[pairs[i / 2] >> (16 * (i % 2) + 7) & 255] : 0;
                    n[0] += r >= 3 ? 1 : 0;
                    n[1] += r >= 6 ? 1 : 0;
                    n[2] += r >= 13 ? 1 : 0;
                }
            }
#pragma unroll
            for (int tier = 0; tier < 3; ++tier) {
                const std::uint32_t sum = __reduce_add_sync(all_lanes, n[tier]);
                if (lane == 0) { begins[group + 1][tier] = sum; }
            }
        }
        const uint4 none = {};
        for (std::uint32_t at = layout.index_at / 16 + thread; at < layout.bytes / 16; at += block_threads) {
            reinterpret_cast<uint4*>(task.packed)[at] = none;
        }
        if (thread < packed_header_bytes / 16) { reinterpret_cast<uint4*>(task.packed)[thread] = none; }
        __syncthreads();
        if (thread < 3) {
            begins[0][thread] = 0;
            for (std::uint32_t group = 0; group < groups; ++group) {
                begins[group + 1][thread] += begins[group][thread];
            }
        }
        if (thread == 32) {
            Header header;
            header.packed = {static_cast<std::uint32_t>(PackedForm::bf16_tiers), version, task.raw_bytes, layout.bytes};
            header.values = values;
            header.index_at = layout.index_at;
            header.t1_at = layout.t1_at;
            header.t2_at = layout.t2_at;
            header.t3_at = layout.t3_at;
            header.t1_values = tiers[0];
            header.t2_values = tiers[1];
            header.t3_values = tiers[2];
            constexpr std::uint32_t first_rank[5] = {0, 3, 6, 10, 13};
            for (std::uint32_t word = 0; word < 4; ++word) {
                for (std::uint32_t r = first_rank[word]; r < first_rank[word + 1]; ++r) {
                    header.ranks[word] |= std::uint32_t{exponent_of[r]} << 8 * (r - first_rank[word]);
                }
            }
            if ((task.raw_bytes & 1) != 0) { header.tail = static_cast<std::uint32_t>(task.raw[task.raw_bytes - 1]); }
            *reinterpret_cast<Header*>(task.packed) = header;
        }
        __syncthreads();
        std::uint32_t* const index = reinterpret_cast<std::uint32_t*>(task.packed + layout.index_at);
        for (std::uint32_t i = thread; i < 3 * (groups + 1); i += block_threads) { index[i] = begins[i / 3][i % 3]; }
        uint4* const s = reinterpret_cast<uint4*>(task.packed + packed_header_bytes);
        std::uint32_t* const t0 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t0_at);
        std::uint32_t* const t1 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t1_at);
        std::uint32_t* const t2 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t2_at);
        std::uint16_t* const t3 = reinterpret_cast<std::uint16_t*>(task.packed + layout.t3_at);
        for (std::uint32_t group = warp; group < groups; group += warps) {
            std::uint32_t begin[3] = {begins[group][0], begins[group][1], begins[group][2]};
            for (std::uint32_t round = 0; round < 8; ++round) {
                const std::uint32_t at = group * group_lanes + round * 32 + lane, first = at * lane_values;
                std::uint32_t pairs[8], mantissas[4], word0 = 0, n[3] = {}, sum = 0;
                std::uint64_t entries1 = 0, entries2 = 0;
                load_lane(task.raw, first, values, pairs);
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const std::uint32_t value = pairs[i / 2] >> 16 * (i % 2) & 0xffff;
                    const std::uint32_t byte = (value << 1 | value >> 15) & 255;
                    mantissas[i / 4] = i % 4 == 0 ? byte : mantissas[i / 4] | byte << 8 * (i % 4);
                    const std::uint32_t r = first + i < values ? rank[value >> 7 & 255] : 0;
                    word0 |= min(r, 3U) << (4 * (i % 8) + 2 * (i / 8));
                    if (r >= 3) { entries1 |= std::uint64_t{min(r - 3, 3U)} << 2 * n[0]++; }
                    if (r >= 6) { entries2 |= std::uint64_t{min(r - 6, 7U)} << 3 * n[1]++; }
                    n[2] += r >= 13 ? 1 : 0;
                }
                s[at] = make_uint4(mantissas[0], mantissas[1], mantissas[2], mantissas[3]);
                t0[at] = word0;
                put_bits(t1, 2 * (begin[0] + sum_before(n[0], lane, sum)), entries1);
                begin[0] += sum;
                put_bits(t2, 3 * (begin[1] + sum_before(n[1], lane, sum)), entries2);
                begin[1] += sum;
                std::uint32_t at3 = begin[2] + sum_before(n[2], lane, sum);
                begin[2] += sum;
                if (n[2] != 0) {
#pragma unroll
                    for (std::uint32_t i = 0; i < lane_values; ++i) {
                        const std::uint32_t exponent = pairs[i / 2] >> (16 * (i % 2) + 7) & 255;
                        if (first + i < values && rank[exponent] >= 13) {
                            t3[at3++] = static_cast<std::uint16_t>(exponent | i << 8);
                        }
                    }
                }
            }
        }
        __syncthreads();  // before the next chunk takes the shared memory
    }
}

/// Chunk after chunk, a block each, after pack_kernel: the checksum of the packed form, and the task that compares it. Where there is none,
/// those of the raw bytes, which are copied to its place.
template <int = 0>
__global__ void __launch_bounds__(block_threads)
    finish_kernel(const PackTask* __restrict__ tasks, std::uint32_t count,
                  const std::uint32_t* __restrict__ packed_bytes, PackResult* __restrict__ results,
                  UnpackTask* __restrict__ compare) {
    __shared__ unsigned long long sum;
    const std::uint32_t thread = threadIdx.x;
    for (std::uint32_t turn = blockIdx.x; turn < count; turn += gridDim.x) {
        const PackTask task = tasks[turn];
        const std::uint32_t made = packed_bytes[turn];
        const bool is_packed = made != 0;
        const std::uint32_t bytes = is_packed ? made : task.raw_bytes, words = bytes / 8;
        const std::byte* const from = is_packed ? task.packed : task.raw;
        if (thread == 0) { sum = 0; }
        __syncthreads();
        std::uint64_t own = 0;
        for (std::uint32_t i = thread; i < words; i += block_threads) {
            const std::uint64_t word = reinterpret_cast<const std::uint64_t*>(from)[i];
            own += checksum_term(i, word);
            if (!is_packed) { reinterpret_cast<std::uint64_t*>(task.packed)[i] = word; }
        }
        if (thread == 0) {
            own += checksum_term(~std::uint64_t{0} - 1, bytes);
            std::uint64_t last = 0;
            for (std::uint32_t i = words * 8; i < bytes; ++i) {
                last |= static_cast<std::uint64_t>(from[i]) << 8 * (i % 8);
                if (!is_packed) { task.packed[i] = from[i]; }
            }
            if (bytes % 8 != 0) { own += checksum_term(words, last); }
        }
#pragma unroll
        for (std::uint32_t distance = 16; distance > 0; distance >>= 1) {
            own += __shfl_down_sync(all_lanes, own, distance);
        }
        if ((thread & 31) == 0) { atomicAdd(&sum, static_cast<unsigned long long>(own)); }
        __syncthreads();
        if (thread == 0) {
            results[turn] = PackResult{sum, made, 0};
            compare[turn] = UnpackTask{is_packed ? task.packed : nullptr, const_cast<std::byte*>(task.raw)};
        }
        __syncthreads();  // before the next chunk takes the sum
    }
}

}  // namespace detail

/// Enqueues a kernel that unpacks `count` chunks of up to `most_values` values each. `tasks` lies in device memory, or in pinned host
/// memory. Few blocks leave the other multiprocessors to other kernels; one block fills a multiprocessor.
[[nodiscard]] inline cudaError_t enqueue_unpack(const UnpackTask* tasks, std::uint32_t count, std::uint32_t most_values,
                                                unsigned blocks, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    const std::uint32_t groups = most_values < group_values ? 1 : (most_values + group_values - 1) / group_values;
    detail::unpack_kernel<false><<<blocks, block_threads, 0, stream>>>(tasks, count, groups, nullptr);
    return cudaGetLastError();
}
/// The same for tasks on the host, which go with the launch: one for each most_given_tasks chunks.
[[nodiscard]] inline cudaError_t enqueue_unpack(std::span<const UnpackTask> tasks, std::uint32_t most_values,
                                                unsigned blocks, cudaStream_t stream) {
    const std::uint32_t groups = most_values < group_values ? 1 : (most_values + group_values - 1) / group_values;
    cudaError_t code = cudaSuccess;
    detail::GivenTasks given;
    while (!tasks.empty() && code == cudaSuccess) {
        const auto rest = static_cast<std::uint32_t>(tasks.size());
        const std::uint32_t count = rest < most_given_tasks ? rest : most_given_tasks;
        for (std::uint32_t i = 0; i < count; ++i) { given.tasks[i] = tasks[i]; }
        detail::unpack_given_kernel<><<<blocks, block_threads, 0, stream>>>(given, count, groups);
        code = cudaGetLastError();
        tasks = tasks.subspan(count);
    }
    return code;
}
/// Enqueues a kernel that compares packed chunks with their raw bytes, and adds the number of places that differ to `differing`.
[[nodiscard]] inline cudaError_t enqueue_compare(const UnpackTask* tasks, std::uint32_t count,
                                                 std::uint32_t most_values, unsigned blocks,
                                                 unsigned long long* differing, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    const std::uint32_t groups = most_values < group_values ? 1 : (most_values + group_values - 1) / group_values;
    detail::unpack_kernel<true><<<blocks, block_threads, 0, stream>>>(tasks, count, groups, differing);
    return cudaGetLastError();
}
/// Enqueues a kernel that packs `count` chunks of up to most_kernel_raw_bytes each. The bytes are those of Bf16Tiers::pack.
/// `packed_bytes`: by task, what pack() returns.
[[nodiscard]] inline cudaError_t enqueue_pack(const PackTask* tasks, std::uint32_t count, std::uint32_t* packed_bytes,
                                              unsigned blocks, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    detail::pack_kernel<><<<blocks, block_threads, 0, stream>>>(tasks, count, packed_bytes);
    return cudaGetLastError();
}

/// Tasks to be packed and compared. All of it is device memory.
struct CheckedPack {
    const PackTask* tasks = nullptr;  ///< each with room for its raw bytes at `packed`, whatever room_bytes says
    std::uint32_t count = 0;          ///< of the tasks
    PackResult* results = nullptr;    ///< by task
    unsigned long long* differing = nullptr;  ///< becomes the number of places that are not unpacked to what was packed
    std::byte* workspace = nullptr;           ///< of pack_workspace_bytes(count), at a multiple of 16
};
/// Bytes of CheckedPack::workspace.
[[nodiscard]] constexpr std::uint64_t pack_workspace_bytes(std::uint32_t count) noexcept {
    return std::uint64_t{count} * (sizeof(UnpackTask) + sizeof(std::uint32_t));
}
/// Enqueues three kernels that pack chunks of up to most_kernel_raw_bytes each, sum up what they made, unpack it again and compare. A chunk
/// that has no room becomes a copy of its raw bytes. At most `blocks` blocks a kernel.
[[nodiscard]] inline cudaError_t enqueue_checked_pack(const CheckedPack& pack, unsigned blocks, cudaStream_t stream) {
    if (pack.count == 0) { return cudaSuccess; }
    auto* const compare = reinterpret_cast<UnpackTask*>(pack.workspace);
    auto* const sizes = reinterpret_cast<std::uint32_t*>(compare + pack.count);
    const unsigned each = pack.count < blocks ? pack.count : blocks;
    cudaError_t code = cudaMemsetAsync(pack.differing, 0, sizeof *pack.differing, stream);
    if (code != cudaSuccess) { return code; }
    code = enqueue_pack(pack.tasks, pack.count, sizes, each, stream);
    if (code != cudaSuccess) { return code; }
    detail::finish_kernel<><<<each, block_threads, 0, stream>>>(pack.tasks, pack.count, sizes, pack.results, compare);
    code = cudaGetLastError();
    if (code != cudaSuccess) { return code; }
    return enqueue_compare(compare, pack.count, most_kernel_raw_bytes / 2, blocks, pack.differing, stream);
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::bf16_tiers
