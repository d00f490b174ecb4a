// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/codec/checksum.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/codec/task.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/config.hpp"
#include "residency/model/packed_form.hpp"

// Device code of codec::Tiers: kernels that unpack and pack chunks. For files that nvcc compiles.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace tiers {

using codec::PackResult;
using codec::PackTask;
using codec::UnpackTask;

/// Raw bytes that one block of a pack kernel takes.
inline constexpr std::uint32_t most_kernel_raw_bytes = std::uint32_t{2} << 20;
inline constexpr unsigned block_threads = 1024;
/// Chunks that one launch unpacks if their tasks are its parameters, which may have 4 KiB.
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

/// Reads what S has of a lane, but for its front words.
template <class F>
__device__ __forceinline__ void load_behind_front(const std::byte* s, std::uint32_t lanes, std::uint32_t lane,
                                                  std::uint32_t (&rest)[F::rest_words]) {
    if constexpr (F::rest_words > F::front_words) {
        const uint2* const from = reinterpret_cast<const uint2*>(s + std::size_t{lanes} * F::front_words * 4);
#pragma unroll
        for (std::uint32_t i = 0; i < lane_values; i += 4) {
            const uint2 two = __ldg(from + place_of<F>(lane, i) / 4);
            rest[F::front_words + i / 2] = two.x;
            rest[F::front_words + i / 2 + 1] = two.y;
        }
    }
}
/// The words of a lane that follow one another in S.
template <class F>
using Front = std::conditional_t<F::front_words == 2, uint2, uint4>;
__device__ __forceinline__ void take_apart(uint2 front, std::uint32_t* words) {
    words[0] = front.x, words[1] = front.y;
}
__device__ __forceinline__ void take_apart(uint4 front, std::uint32_t* words) {
    words[0] = front.x, words[1] = front.y, words[2] = front.z, words[3] = front.w;
}

/// Unpacks group after group, a warp each; tasks of other forms are left alone. Compares with the raw bytes instead of writing them where
/// `compares` is set. `tasks`: an array of them, or a function object that makes one; where it does, or compares, a task without packed bytes
/// has nothing to do.
template <class F, bool compares, class Tasks>
__device__ __forceinline__ void unpack_groups(const Tasks& tasks, std::uint32_t count, std::uint32_t groups_each,
                                              unsigned long long* differing) {
    using Value = typename F::Value;
    constexpr std::uint32_t value_bytes = sizeof(Value);
    const std::uint32_t lane = threadIdx.x & 31;
    const std::uint32_t warps = (gridDim.x * blockDim.x) >> 5;
    std::uint32_t wrong = 0;
    for (std::uint32_t turn = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; turn < count * groups_each; turn += warps) {
        const UnpackTask task = tasks[turn / groups_each];
        if constexpr (compares || std::is_class_v<Tasks>) {
            if (task.packed == nullptr) { continue; }
        }
        const std::uint32_t group = turn % groups_each;
        const Header* const header = reinterpret_cast<const Header*>(task.packed);
        const std::uint32_t values = header->values;
        if (header->packed.form != static_cast<std::uint32_t>(F::form)) { continue; }
        const std::uint32_t groups = (values + group_values - 1) / group_values;
        if constexpr (value_bytes > 1) {
            const std::uint32_t behind = header->packed.raw_bytes & (value_bytes - 1);
            if (group == 0 && lane < behind) {
                const auto tail = static_cast<std::byte>(header->tail >> 8 * lane);
                if constexpr (compares) {
                    wrong += task.raw[value_bytes * std::size_t{values} + lane] != tail ? 1 : 0;
                } else {
                    task.raw[value_bytes * std::size_t{values} + lane] = tail;
                }
            }
        }
        if (group >= groups) { continue; }
        const std::uint32_t ranks[4] = {header->ranks[0], header->ranks[1], header->ranks[2], header->ranks[3]};
        const std::size_t first_lane = group * std::size_t{group_lanes} + lane;
        const Front<F>* const s = reinterpret_cast<const Front<F>*>(task.packed + packed_header_bytes) + first_lane;
        const std::uint32_t* const t0 =
            reinterpret_cast<const std::uint32_t*>(task.packed + packed_header_bytes +
                                                   std::size_t{groups} * (group_lanes * F::rest_words * 4)) +
            first_lane;
        const std::uint32_t* const index =
            reinterpret_cast<const std::uint32_t*>(task.packed + header->index_at) + 3 * group;
        const std::uint32_t* const t1 = reinterpret_cast<const std::uint32_t*>(task.packed + header->t1_at);
        const std::uint32_t* const t2 = reinterpret_cast<const std::uint32_t*>(task.packed + header->t2_at);
        const std::uint16_t* const t3 = reinterpret_cast<const std::uint16_t*>(task.packed + header->t3_at);
        std::uint32_t begin1 = index[0], begin2 = index[1], begin3 = index[2];
        std::uint32_t word0 = __ldg(t0);
        Front<F> bytes = __ldg(s);
#pragma unroll 1
        for (std::uint32_t round = 0; round < 8; ++round) {
            std::uint32_t next_word0 = 0, sum = 0;
            Front<F> next_bytes = {};
            if (round < 7) {
                next_word0 = __ldg(t0 + 32 * (round + 1));
                next_bytes = __ldg(s + 32 * (round + 1));
            }
            const std::uint32_t here = static_cast<std::uint32_t>(first_lane) + 32 * round;  // the lane in the chunk
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
            std::uint32_t rest[F::rest_words], words[F::lane_words];
            take_apart(bytes, rest);
            load_behind_front<F>(task.packed + packed_header_bytes, groups * group_lanes, here, rest);
            F::join(rest, exponents, words);
            if (place_of<F>(here, lane_values - 1) < values) {
#pragma unroll
                for (std::uint32_t word = 0; word < F::lane_words; word += 4) {
                    uint4* const out = reinterpret_cast<uint4*>(
                        task.raw + value_bytes * std::size_t{place_of<F>(here, word * (4 / value_bytes))});
                    if constexpr (compares) {
                        const uint4 a = *out;
                        wrong += (a.x != words[word]) + (a.y != words[word + 1]) + (a.z != words[word + 2]) +
                                 (a.w != words[word + 3]);
                    } else {
                        *out = make_uint4(words[word], words[word + 1], words[word + 2], words[word + 3]);
                    }
                }
            } else {
                Value* const out = reinterpret_cast<Value*>(task.raw);
                constexpr std::uint32_t in_word = 4 / value_bytes;
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const auto value = static_cast<Value>(words[i / in_word] >> 8 * value_bytes * (i % in_word));
                    const std::uint32_t place = place_of<F>(here, i);
                    if (place >= values) { continue; }
                    if constexpr (compares) {
                        wrong += out[place] != value ? 1 : 0;
                    } else {
                        out[place] = value;
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
template <class F, bool compares>
__global__ void __launch_bounds__(block_threads)
    unpack_kernel(const UnpackTask* __restrict__ tasks, std::uint32_t count, std::uint32_t groups_each,
                  unsigned long long* differing) {
    unpack_groups<F, compares>(tasks, count, groups_each, differing);
}

/// How many turns a chunk of up to `most_values` values takes.
[[nodiscard]] constexpr std::uint32_t groups_of(std::uint32_t most_values) noexcept {
    return most_values < group_values ? 1 : (most_values + group_values - 1) / group_values;
}

/// Tasks that go with a launch.
struct GivenTasks {
    UnpackTask tasks[most_given_tasks];
};
template <class F>
__global__ void __launch_bounds__(block_threads)
    unpack_given_kernel(const __grid_constant__ GivenTasks given, std::uint32_t count, std::uint32_t groups_each) {
    unpack_groups<F, false>(given.tasks, count, groups_each, nullptr);
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

/// The 16 values of a lane; zeros behind the end.
template <class F>
__device__ __forceinline__ void fetch_lane(const std::byte* raw, std::uint32_t lane, std::uint32_t values,
                                           std::uint32_t (&words)[F::lane_words]) {
    using Value = typename F::Value;
    constexpr std::uint32_t in_word = 4 / sizeof(Value);
    if (place_of<F>(lane, lane_values - 1) < values) {
#pragma unroll
        for (std::uint32_t word = 0; word < F::lane_words; word += 4) {
            take_apart(__ldg(reinterpret_cast<const uint4*>(raw + sizeof(Value) *
                                                                      std::size_t{place_of<F>(lane, word * in_word)})),
                       words + word);
        }
        return;
    }
    const Value* const in = reinterpret_cast<const Value*>(raw);
#pragma unroll
    for (std::uint32_t word = 0; word < F::lane_words; ++word) {
        words[word] = 0;
#pragma unroll
        for (std::uint32_t i = 0; i < in_word; ++i) {
            const std::uint32_t place = place_of<F>(lane, word * in_word + i);
            if (place < values) { words[word] |= std::uint32_t{in[place]} << 8 * sizeof(Value) * i; }
        }
    }
}

/// Packs chunk after chunk, a block each: ranks its exponents, counts what goes to each tier, and writes the planes. Tasks of other forms
/// are left alone. `packed_bytes`: by task, the bytes of the packed form, or 0 where there is no room for it.
template <class F>
__global__ void __launch_bounds__(block_threads)
    pack_kernel(const PackTask* __restrict__ tasks, std::uint32_t count, std::uint32_t* __restrict__ packed_bytes) {
    using Value = typename F::Value;
    constexpr std::uint32_t warps = block_threads / 32;
    constexpr std::uint32_t most_groups = most_kernel_raw_bytes / sizeof(Value) / group_values;
    constexpr std::uint32_t exponents = F::exponent_count;
    __shared__ std::uint32_t counts[warps][exponents];  // by warp and exponent
    __shared__ std::uint32_t total[exponents];
    __shared__ std::uint8_t rank[exponents], by_rank[exponents];
    __shared__ std::uint32_t begins[most_groups + 1][3];
    __shared__ std::uint32_t tiers[3];
    const std::uint32_t thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
    for (std::uint32_t turn = blockIdx.x; turn < count; turn += gridDim.x) {
        const PackTask task = tasks[turn];
        if (task.form != F::form) { continue; }
        const std::uint32_t values = task.raw_bytes / sizeof(Value);
        const std::uint32_t groups = (values + group_values - 1) / group_values;
        for (std::uint32_t i = thread; i < warps * exponents; i += block_threads) { (&counts[0][0])[i] = 0; }
        if (thread < 3) { tiers[thread] = 0; }
        __syncthreads();
        for (std::uint32_t at = thread; at < lanes_of<F>(values); at += block_threads) {
            std::uint32_t words[F::lane_words];
            fetch_lane<F>(task.raw, at, values, words);
#pragma unroll
            for (std::uint32_t i = 0; i < lane_values; ++i) {
                if (place_of<F>(at, i) < values) { atomicAdd(&counts[warp][exponent_of<F>(words, i)], 1U); }
            }
        }
        __syncthreads();
        if (thread < exponents) {
            std::uint32_t sum = 0;
            for (std::uint32_t w = 0; w < warps; ++w) { sum += counts[w][thread]; }
            total[thread] = sum;
        }
        __syncthreads();
        if (thread < exponents) {
            const std::uint32_t own = total[thread];
            std::uint32_t above = 0;
            for (std::uint32_t other = 0; other < exponents; ++other) {
                above += total[other] > own || (total[other] == own && other < thread) ? 1 : 0;
            }
            rank[thread] = static_cast<std::uint8_t>(above);
            by_rank[above] = static_cast<std::uint8_t>(thread);
            if (above >= 3) { atomicAdd(&tiers[0], own); }
            if (above >= 6) { atomicAdd(&tiers[1], own); }
            if (above >= 13) { atomicAdd(&tiers[2], own); }
        }
        __syncthreads();
        const Layout layout = layout_of<F>(values, tiers[0], tiers[1], tiers[2]);
        const bool fits = layout.bytes <= task.room_bytes;
        if (thread == 0) { packed_bytes[turn] = fits ? layout.bytes : 0; }
        if (!fits) {
            __syncthreads();
            continue;
        }
        for (std::uint32_t group = warp; group < groups; group += warps) {
            std::uint32_t n[3] = {};
            for (std::uint32_t round = 0; round < 8; ++round) {
                const std::uint32_t at = group * group_lanes + round * 32 + lane;
                std::uint32_t words[F::lane_words];
                fetch_lane<F>(task.raw, at, values, words);
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const std::uint32_t r = place_of<F>(at, i) < values ? rank[exponent_of<F>(words, i)] : 0;
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
            header.packed = {static_cast<std::uint32_t>(F::form), version, task.raw_bytes, layout.bytes};
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
                    header.ranks[word] |= std::uint32_t{by_rank[r]} << 8 * (r - first_rank[word]);
                }
            }
            for (std::uint32_t i = 0; i < task.raw_bytes % sizeof(Value); ++i) {
                header.tail |= static_cast<std::uint32_t>(task.raw[values * sizeof(Value) + i]) << 8 * i;
            }
            *reinterpret_cast<Header*>(task.packed) = header;
        }
        __syncthreads();
        std::uint32_t* const index = reinterpret_cast<std::uint32_t*>(task.packed + layout.index_at);
        for (std::uint32_t i = thread; i < 3 * (groups + 1); i += block_threads) { index[i] = begins[i / 3][i % 3]; }
        Front<F>* const s = reinterpret_cast<Front<F>*>(task.packed + packed_header_bytes);
        std::uint32_t* const t0 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t0_at);
        std::uint32_t* const t1 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t1_at);
        std::uint32_t* const t2 = reinterpret_cast<std::uint32_t*>(task.packed + layout.t2_at);
        std::uint16_t* const t3 = reinterpret_cast<std::uint16_t*>(task.packed + layout.t3_at);
        for (std::uint32_t group = warp; group < groups; group += warps) {
            std::uint32_t begin[3] = {begins[group][0], begins[group][1], begins[group][2]};
            for (std::uint32_t round = 0; round < 8; ++round) {
                const std::uint32_t at = group * group_lanes + round * 32 + lane;
                std::uint32_t words[F::lane_words], rest[F::rest_words], word0 = 0, n[3] = {}, sum = 0;
                std::uint64_t entries1 = 0, entries2 = 0;
                fetch_lane<F>(task.raw, at, values, words);
                F::split(words, rest);
                if constexpr (F::front_words == 2) {
                    s[at] = make_uint2(rest[0], rest[1]);
                } else {
                    s[at] = make_uint4(rest[0], rest[1], rest[2], rest[3]);
                }
                if constexpr (F::rest_words > F::front_words) {
                    uint2* const behind = reinterpret_cast<uint2*>(s + groups * group_lanes);
#pragma unroll
                    for (std::uint32_t i = 0; i < lane_values; i += 4) {
                        behind[place_of<F>(at, i) / 4] =
                            make_uint2(rest[F::front_words + i / 2], rest[F::front_words + i / 2 + 1]);
                    }
                }
#pragma unroll
                for (std::uint32_t i = 0; i < lane_values; ++i) {
                    const std::uint32_t r = place_of<F>(at, i) < values ? rank[exponent_of<F>(words, i)] : 0;
                    word0 |= min(r, 3U) << (4 * (i % 8) + 2 * (i / 8));
                    if (r >= 3) { entries1 |= std::uint64_t{min(r - 3, 3U)} << 2 * n[0]++; }
                    if (r >= 6) { entries2 |= std::uint64_t{min(r - 6, 7U)} << 3 * n[1]++; }
                    n[2] += r >= 13 ? 1 : 0;
                }
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
                        const std::uint32_t exponent = exponent_of<F>(words, i);
                        if (place_of<F>(at, i) < values && rank[exponent] >= 13) {
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

/// Enqueues a kernel that unpacks those of `count` chunks that have the form of F, of up to `most_values` values each. `tasks` lies in device
/// memory, or in pinned host memory. Few blocks leave the other multiprocessors to other kernels; one block fills a multiprocessor.
template <class F>
[[nodiscard]] cudaError_t enqueue_unpack(const UnpackTask* tasks, std::uint32_t count, std::uint32_t most_values,
                                         unsigned blocks, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    detail::unpack_kernel<F, false>
        <<<blocks, block_threads, 0, stream>>>(tasks, count, detail::groups_of(most_values), nullptr);
    return cudaGetLastError();
}
/// Enqueues unpacking of tasks that lie on the host: they are parameters of the launches, most_given_tasks chunks for each.
template <class F>
[[nodiscard]] cudaError_t enqueue_unpack(std::span<const UnpackTask> tasks, std::uint32_t most_values, unsigned blocks,
                                         cudaStream_t stream) {
    cudaError_t code = cudaSuccess;
    detail::GivenTasks given;
    while (!tasks.empty() && code == cudaSuccess) {
        const auto rest = static_cast<std::uint32_t>(tasks.size());
        const std::uint32_t count = rest < most_given_tasks ? rest : most_given_tasks;
        for (std::uint32_t i = 0; i < count; ++i) { given.tasks[i] = tasks[i]; }
        detail::unpack_given_kernel<F>
            <<<blocks, block_threads, 0, stream>>>(given, count, detail::groups_of(most_values));
        code = cudaGetLastError();
        tasks = tasks.subspan(count);
    }
    return code;
}
/// Enqueues a kernel that compares packed chunks of the form of F with their raw bytes, and adds the number of places that differ to
/// `differing`.
template <class F>
[[nodiscard]] cudaError_t enqueue_compare(const UnpackTask* tasks, std::uint32_t count, std::uint32_t most_values,
                                          unsigned blocks, unsigned long long* differing, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    detail::unpack_kernel<F, true>
        <<<blocks, block_threads, 0, stream>>>(tasks, count, detail::groups_of(most_values), differing);
    return cudaGetLastError();
}
/// Enqueues a kernel that packs those of `count` chunks that are to have the form of F, of up to most_kernel_raw_bytes each. The bytes are
/// those of Tiers<F>::pack. `packed_bytes`: by task of that form, what pack() returns.
template <class F>
[[nodiscard]] cudaError_t enqueue_pack(const PackTask* tasks, std::uint32_t count, std::uint32_t* packed_bytes,
                                       unsigned blocks, cudaStream_t stream) {
    if (count == 0) { return cudaSuccess; }
    detail::pack_kernel<F><<<blocks, block_threads, 0, stream>>>(tasks, count, packed_bytes);
    return cudaGetLastError();
}

/// Tasks to be packed and compared. All of it but `tasks` is device memory.
struct CheckedPack {
    std::span<const PackTask> tasks{};  ///< on the host, during the call; their forms are those of formats
    const PackTask* on_device =
        nullptr;  ///< the same, each with room for its raw bytes at `packed`, whatever room_bytes says
    PackResult* results = nullptr;            ///< by task
    unsigned long long* differing = nullptr;  ///< becomes the number of places that are not unpacked to what was packed
    std::byte* workspace = nullptr;           ///< of pack_workspace_bytes(tasks.size()), at a multiple of 16
};
/// Bytes of CheckedPack::workspace.
[[nodiscard]] constexpr std::uint64_t pack_workspace_bytes(std::uint32_t count) noexcept {
    return std::uint64_t{count} * (sizeof(UnpackTask) + sizeof(std::uint32_t));
}
/// Enqueues kernels that pack chunks of up to most_kernel_raw_bytes each, sum up what they made, unpack it again and compare: two for each
/// form that occurs, and one. A chunk that has no room becomes a copy of its raw bytes. At most `blocks` blocks a kernel.
[[nodiscard]] inline cudaError_t enqueue_checked_pack(const CheckedPack& pack, unsigned blocks, cudaStream_t stream) {
    if (pack.tasks.empty()) { return cudaSuccess; }
    const auto count = static_cast<std::uint32_t>(pack.tasks.size());
    auto* const compare = reinterpret_cast<UnpackTask*>(pack.workspace);
    auto* const sizes = reinterpret_cast<std::uint32_t*>(compare + count);
    const unsigned each = count < blocks ? count : blocks;
    cudaError_t code = cudaMemsetAsync(pack.differing, 0, sizeof *pack.differing, stream);
    const auto for_each_form = [&](auto&& enqueue) {
        for_each_format([&](auto format) {
            bool occurs = false;
            for (const PackTask& task : pack.tasks) { occurs = occurs || task.form == format.form; }
            if (occurs && code == cudaSuccess) { code = enqueue(format); }
        });
    };
    for_each_form(
        [&](auto format) { return enqueue_pack<decltype(format)>(pack.on_device, count, sizes, each, stream); });
    if (code != cudaSuccess) { return code; }
    detail::finish_kernel<><<<each, block_threads, 0, stream>>>(pack.on_device, count, sizes, pack.results, compare);
    code = cudaGetLastError();
    for_each_form([&](auto format) {
        constexpr std::uint32_t most_values = most_kernel_raw_bytes / sizeof(typename decltype(format)::Value);
        return enqueue_compare<decltype(format)>(compare, count, most_values, blocks, pack.differing, stream);
    });
    return code;
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::tiers
