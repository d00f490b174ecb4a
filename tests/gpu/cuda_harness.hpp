// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/device/cuda.hpp"
#include "tests/gpu/support.hpp"

namespace gpu {

/// CudaDevice under the conformance suites of residency/conformance/device.hpp.
class CudaHarness {
public:
    using Device = residency::CudaDevice;

    [[nodiscard]] Device& device() noexcept { return device_; }
    void launch_checksum(const void* at, std::uint64_t bytes, std::uint64_t* sum, Device::Stream stream) {
        must_cuda(gpu::launch_checksum({at, bytes}, sum, stream));
    }
    void launch_pattern(void* at, std::uint64_t bytes, std::uint64_t seed, Device::Stream stream) {
        must_cuda(gpu::launch_pattern(at, bytes, seed, stream));
    }
    void launch_spin(std::chrono::nanoseconds duration, Device::Stream stream) {
        must_cuda(gpu::launch_spin(duration, stream));
    }
    [[nodiscard]] static std::uint64_t checksum(std::span<const std::byte> bytes) { return gpu::checksum(bytes); }
    static void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) { gpu::fill_pattern(bytes, seed); }
    void expect_findings() noexcept {}

private:
    Device device_{0};
};

}  // namespace gpu
