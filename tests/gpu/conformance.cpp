// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The rules of device.hpp on the real device.
#include "residency/conformance/device.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/device/cuda.hpp"
#include "tests/gpu/support.hpp"

namespace {

class CudaHarness {
public:
    using Device = residency::CudaDevice;

    [[nodiscard]] Device& device() noexcept { return device_; }
    void launch_checksum(const void* at, std::uint64_t bytes, std::uint64_t* sum, Device::Stream stream) {
        gpu::must_cuda(gpu::launch_checksum({at, bytes}, sum, stream));
    }
    void launch_pattern(void* at, std::uint64_t bytes, std::uint64_t seed, Device::Stream stream) {
        gpu::must_cuda(gpu::launch_pattern(at, bytes, seed, stream));
    }
    void launch_spin(std::chrono::nanoseconds duration, Device::Stream stream) {
        gpu::must_cuda(gpu::launch_spin(duration, stream));
    }
    [[nodiscard]] static std::uint64_t checksum(std::span<const std::byte> bytes) { return gpu::checksum(bytes); }
    static void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) { gpu::fill_pattern(bytes, seed); }
    void expect_findings() noexcept {}

private:
    Device device_{0};
};

}  // namespace

TEST_CASE("conformance: device") { residency::conformance::device_conformance<CudaHarness>(); }
TEST_CASE("conformance: capture") { residency::conformance::capture_conformance<CudaHarness>(); }
TEST_CASE("conformance: virtual memory") { residency::conformance::virtual_memory_conformance<CudaHarness>(); }
TEST_CASE("conformance: flags") { residency::conformance::flag_conformance<CudaHarness>(); }
