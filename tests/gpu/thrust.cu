// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Thrust alone, and in C++17: nvcc takes as long for its algorithms as for the tests beside them, and up to a quarter longer in C++20.
#include "tests/gpu/thrust.hpp"

#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/mr/allocator.h>
#include <thrust/sort.h>

#include <stdexcept>

namespace {

void copy(void* to, const void* from, std::size_t bytes) {
    const cudaError_t code = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (code != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(code)}; }
}

}  // namespace

void gpu::sort_by_thrust(ThrustMemory& memory, std::uint32_t* values, std::size_t count,
                         const std::function<void()>& sorted) {
    using Allocator = thrust::mr::allocator<std::uint32_t, ThrustMemory>;
    thrust::device_vector<std::uint32_t, Allocator> on_device(count, Allocator{&memory});
    copy(on_device.data().get(), values, count * sizeof *values);
    thrust::sort(thrust::cuda::par(&memory), on_device.begin(), on_device.end());
    copy(values, on_device.data().get(), count * sizeof *values);
    sorted();
}
