// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/device/cuda.hpp"
#include "tests/gpu/harness.hpp"

namespace gpu {

inline constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

/// What the driver takes of the device for streams and events of its own accord, a page of 2 MiB at a time, in a test; a
/// sanitizer keeps its records there too. What the library holds is checked exactly where nothing else allocates.
inline constexpr std::uint64_t driver_own_bytes = 4 * MiB;

/// The value of a Result, or the end of the test case with its error.
template <class R>
decltype(auto) must(R&& result) {
    if (!result) { FAIL(result.error().message()); }
    if constexpr (requires { *result; }) { return *std::forward<R>(result); }
}
inline void must_cuda(cudaError_t code) {
    if (code != cudaSuccess) { FAIL(cudaGetErrorString(code)); }
}

/// A place on the device where checksums are added up.
class Sum {
public:
    explicit Sum(residency::CudaDevice& device)
        : device_{device}, at_{static_cast<std::uint64_t*>(must(device.allocate(8)))} {}
    Sum(const Sum&) = delete;
    Sum& operator=(const Sum&) = delete;
    ~Sum() { static_cast<void>(device_.deallocate(at_).has_value()); }

    [[nodiscard]] std::uint64_t* at() const noexcept { return at_; }
    /// The checksum of bytes that the device can read, in the order of the stream. Waits for it.
    [[nodiscard]] std::uint64_t of(const void* bytes, std::uint64_t count, cudaStream_t stream) const {
        must_cuda(cudaMemsetAsync(at_, 0, 8, stream));
        must_cuda(launch_checksum({bytes, count}, at_, stream));
        std::uint64_t value = 0;
        must_cuda(cudaMemcpyAsync(&value, at_, 8, cudaMemcpyDeviceToHost, stream));
        must_cuda(cudaStreamSynchronize(stream));
        return value;
    }

private:
    residency::CudaDevice& device_;
    std::uint64_t* at_;
};

[[nodiscard]] inline std::vector<std::byte> pattern(std::uint64_t bytes, std::uint64_t seed) {
    std::vector<std::byte> out(bytes);
    fill_pattern(out, seed);
    return out;
}

/// Runs `program(seed)` for `usual` seeds from `first` on. With RESIDENCY_GPU_SECONDS in the environment: for as many as take that
/// long, from RESIDENCY_GPU_SEED on if that is there. A failure names its seed.
template <class Program>
void for_seeds(unsigned first, unsigned usual, const Program& program) {
    using Clock = std::chrono::steady_clock;
    const char* const seconds = std::getenv("RESIDENCY_GPU_SECONDS");
    const char* const begin = std::getenv("RESIDENCY_GPU_SEED");
    const unsigned from =
        seconds != nullptr && begin != nullptr ? static_cast<unsigned>(std::strtoul(begin, nullptr, 10)) : first;
    const auto end = Clock::now() + std::chrono::seconds{seconds != nullptr ? std::strtol(seconds, nullptr, 10) : 0};
    unsigned seed = from;
    do {
        CAPTURE(seed);
        program(seed);
        ++seed;
    } while (seconds != nullptr ? Clock::now() < end : seed - from < usual);
    MESSAGE("random programs: " << seed - from << ", from seed " << from);
}

/// The argument with which the test program loses its device on purpose and checks what CudaDevice says; 0 if all is right.
inline constexpr std::string_view lost_device_argument = "lose-the-device";
[[nodiscard]] int lose_device();

}  // namespace gpu
