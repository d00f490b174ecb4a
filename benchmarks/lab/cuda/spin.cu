// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/spin.hpp"

#include <cstdint>

namespace lab {

namespace {

__device__ std::uint64_t now() {
    std::uint64_t nanoseconds = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}
__global__ void spin_kernel(std::uint64_t nanoseconds) {
    const std::uint64_t begin = now();
    while (now() - begin < nanoseconds) {}
}

}  // namespace

cudaError_t spin(std::chrono::nanoseconds duration, cudaStream_t stream) {
    spin_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(duration.count()));
    return cudaGetLastError();
}

}  // namespace lab
