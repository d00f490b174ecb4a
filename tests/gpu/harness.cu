// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/harness.hpp"

#include <algorithm>

namespace gpu {
namespace {

constexpr unsigned threads = 512;

template <std::size_t Count>
struct Ranges {
    Range range[Count];
};

__device__ std::uint64_t load_word(const unsigned char* at, std::uint64_t bytes) {
    std::uint64_t word = 0;
    for (std::uint64_t i = 0; i < 8 && i < bytes; ++i) { word |= static_cast<std::uint64_t>(at[i]) << (8 * i); }
    return word;
}

// One row of blocks for each range.
template <std::size_t Count>
__global__ void __launch_bounds__(threads)
    checksum_kernel(const __grid_constant__ Ranges<Count> ranges, std::uint64_t* sum) {
    const Range range = ranges.range[blockIdx.y];
    const auto* const bytes = static_cast<const unsigned char*>(range.at);
    const std::uint64_t first = blockIdx.x * threads + threadIdx.x;
    const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * threads;
    std::uint64_t mine = 0;
    std::uint64_t done_words = 0;
    if (reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0) {
        const auto* const pairs = static_cast<const ulonglong2*>(range.at);
        const std::uint64_t count = range.bytes / 16;
        std::uint64_t i = first;
        for (; i + 3 * stride < count; i += 4 * stride) {
            // Volatile would forbid the wide loads; the addresses are read once, so nothing stale can be kept.
            const ulonglong2 a = __ldcs(pairs + i);
            const ulonglong2 b = __ldcs(pairs + i + stride);
            const ulonglong2 c = __ldcs(pairs + i + 2 * stride);
            const ulonglong2 d = __ldcs(pairs + i + 3 * stride);
            mine += checksum_term(2 * i, a.x) + checksum_term(2 * i + 1, a.y);
            mine += checksum_term(2 * (i + stride), b.x) + checksum_term(2 * (i + stride) + 1, b.y);
            mine += checksum_term(2 * (i + 2 * stride), c.x) + checksum_term(2 * (i + 2 * stride) + 1, c.y);
            mine += checksum_term(2 * (i + 3 * stride), d.x) + checksum_term(2 * (i + 3 * stride) + 1, d.y);
        }
        for (; i < count; i += stride) {
            const ulonglong2 a = __ldcs(pairs + i);
            mine += checksum_term(2 * i, a.x) + checksum_term(2 * i + 1, a.y);
        }
        done_words = 2 * count;
    }
    for (std::uint64_t i = done_words + first; i * 8 < range.bytes; i += stride) {
        mine += checksum_term(i, load_word(bytes + i * 8, range.bytes - i * 8));
    }
    for (unsigned lane = 16; lane != 0; lane /= 2) { mine += __shfl_xor_sync(~0U, mine, lane); }
    __shared__ std::uint64_t warps[threads / 32];
    if (threadIdx.x % 32 == 0) { warps[threadIdx.x / 32] = mine; }
    __syncthreads();
    if (threadIdx.x == 0) {
        std::uint64_t total = 0;
        for (const std::uint64_t warp : warps) { total += warp; }
        if (total != 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(total));
        }
    }
}

__global__ void pattern_kernel(unsigned char* at, std::uint64_t bytes, std::uint64_t seed) {
    const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * threads;
    for (std::uint64_t i = blockIdx.x * threads + threadIdx.x; i * 8 < bytes; i += stride) {
        const std::uint64_t word = pattern_word(seed, i);
        for (std::uint64_t b = 0; b < 8 && i * 8 + b < bytes; ++b) {
            at[i * 8 + b] = static_cast<unsigned char>(word >> (8 * b));
        }
    }
}

__global__ void spin_kernel(std::uint64_t nanoseconds) {
    std::uint64_t start = 0;
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}

__global__ void nothing_kernel() {}

__global__ void bad_write_kernel(unsigned char* at) { *at = 1; }

unsigned blocks_for(std::uint64_t bytes, std::size_t rows) {
    // Some four blocks for each multiprocessor of a large GPU, and no more than there is work for.
    const std::uint64_t most = std::max<std::uint64_t>(1, 1056 / rows);
    return static_cast<unsigned>(std::clamp<std::uint64_t>(bytes / (threads * 64), 1, most));
}

}  // namespace

cudaError_t launch_checksum(Range range, std::uint64_t* sum, cudaStream_t stream) {
    Ranges<1> ranges;
    ranges.range[0] = range;
    checksum_kernel<<<dim3(blocks_for(range.bytes, 1), 1), threads, 0, stream>>>(ranges, sum);
    return cudaGetLastError();
}

cudaError_t launch_checksum(std::span<const Range> ranges, std::uint64_t* sum, cudaStream_t stream) {
    if (ranges.empty()) { return cudaSuccess; }
    if (ranges.size() > most_ranges) { return cudaErrorInvalidValue; }
    Ranges<most_ranges> copied;
    std::uint64_t largest = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        copied.range[i] = ranges[i];
        largest = std::max(largest, ranges[i].bytes);
    }
    checksum_kernel<<<dim3(blocks_for(largest, ranges.size()), static_cast<unsigned>(ranges.size())), threads, 0,
                      stream>>>(copied, sum);
    return cudaGetLastError();
}

cudaError_t launch_pattern(void* at, std::uint64_t bytes, std::uint64_t seed, cudaStream_t stream) {
    if (bytes == 0) { return cudaSuccess; }
    pattern_kernel<<<blocks_for(bytes, 1), threads, 0, stream>>>(static_cast<unsigned char*>(at), bytes, seed);
    return cudaGetLastError();
}

cudaError_t launch_spin(std::chrono::nanoseconds duration, cudaStream_t stream) {
    spin_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(duration.count()));
    return cudaGetLastError();
}

cudaError_t launch_bad_write(cudaStream_t stream) {
    bad_write_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned char*>(std::uintptr_t{8}));
    return cudaGetLastError();
}

cudaError_t launch_nothing(cudaStream_t stream) {
    nothing_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}

}  // namespace gpu
