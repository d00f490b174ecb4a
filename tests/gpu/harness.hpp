// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

/// The kernels of the GPU tests and benchmarks, callable from plain C++.
namespace gpu {

struct Range {
    const void* at = nullptr;
    std::uint64_t bytes = 0;
};

inline constexpr std::size_t most_ranges = 128;

/// What one 8-byte word, the `index`-th of its range, adds to a checksum. Bytes past the end count as zero.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr std::uint64_t
    checksum_term(std::uint64_t index, std::uint64_t word) {
    const std::uint64_t mixed = (word + (index + 1) * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
    return mixed ^ (mixed >> 32);
}

/// The checksum of host bytes: the sum of the terms of its words. A range of bytes at another address has the same one.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i * 8, bytes.size() - i * 8 < 8 ? bytes.size() - i * 8 : 8);
        sum += checksum_term(i, word);
    }
    return sum;
}

/// Adds the checksums of the ranges, 128 at most, to *sum, which the device can write. One kernel that reads at the speed of
/// the memory.
[[nodiscard]] cudaError_t launch_checksum(std::span<const Range> ranges, std::uint64_t* sum, cudaStream_t stream);
/// The same kernel for one range.
[[nodiscard]] cudaError_t launch_checksum(Range range, std::uint64_t* sum, cudaStream_t stream);
/// Writes byte i of the range as pattern(seed, i); see pattern_word.
[[nodiscard]] cudaError_t launch_pattern(void* at, std::uint64_t bytes, std::uint64_t seed, cudaStream_t stream);
/// Keeps one thread busy for that long.
[[nodiscard]] cudaError_t launch_spin(std::chrono::nanoseconds duration, cudaStream_t stream);
/// Writes where nothing is: the device is lost for this process.
[[nodiscard]] cudaError_t launch_bad_write(cudaStream_t stream);
/// Does nothing.
[[nodiscard]] cudaError_t launch_nothing(cudaStream_t stream);

/// The 8 bytes of word `index` of the pattern of a seed.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr std::uint64_t
    pattern_word(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t x = seed * 0xD1342543DE82EF95U + index * 0x9E3779B97F4A7C15U + 1;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    return x ^ (x >> 27);
}
/// Fills host bytes with the pattern of a seed.
inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
    for (std::size_t i = 0; i * 8 < bytes.size(); ++i) {
        const std::uint64_t word = pattern_word(seed, i);
        std::memcpy(bytes.data() + i * 8, &word, bytes.size() - i * 8 < 8 ? bytes.size() - i * 8 : 8);
    }
}

}  // namespace gpu
