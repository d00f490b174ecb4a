// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/device/cuda.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/support/sanitized.hpp"

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

/// Whether there are two GPUs that have access to each other. Says so where there are not.
[[nodiscard]] inline bool has_pair() {
    int count = 0, can = 0;
    must_cuda(cudaGetDeviceCount(&count));
    if (count >= 2) { must_cuda(cudaDeviceCanAccessPeer(&can, 0, 1)); }
    if (can == 0) { MESSAGE("skipped: it takes two GPUs with peer access, here are " << count << " GPUs"); }
    return can != 0;
}

/// Runs `program(seed)` for one seed, `usual` or RESIDENCY_MODEL_SEED. With RESIDENCY_GPU_SECONDS in the environment: for as many from it
/// on as take that long. A failure names its seed.
template <class Program>
void for_seeds(unsigned usual, const Program& program) {
    using Clock = std::chrono::steady_clock;
    const auto first = static_cast<unsigned>(support::first_seed(usual));
    const auto end = Clock::now() + std::chrono::seconds{support::number_from("RESIDENCY_GPU_SECONDS", 0)};
    unsigned seed = first;
    do {
        CAPTURE(seed);
        program(seed);
        ++seed;
    } while (Clock::now() < end);
    MESSAGE("random programs: " << seed - first << ", from seed " << first);
}

/// The argument with which the test program loses its device on purpose and checks what CudaDevice says; 0 if all is right.
inline constexpr std::string_view lost_device_argument = "lose-the-device";
[[nodiscard]] int lose_device();

}  // namespace gpu
