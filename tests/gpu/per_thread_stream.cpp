// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// This translation unit has per-thread default streams; the others of the program have the legacy one. What the program has
// compiled apart is theirs, so this one has the definitions in it.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#undef RESIDENCY_HEADER_ONLY
#define RESIDENCY_HEADER_ONLY 1
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <string>
#include <typeinfo>
#include <vector>

#include "residency/device/cuda.hpp"

using residency::Copy;
using residency::CudaDevice;

TEST_CASE("per-thread default streams: other types, and a default stream that copies in order and captures") {
    CHECK(std::string{typeid(CudaDevice).name()}.find("_ptds") != std::string::npos);
    CHECK_FALSE(CudaDevice::Stream{}.is_legacy_default());
    CHECK(CudaDevice::Stream{cudaStreamLegacy}.is_legacy_default());
    CudaDevice device{0};
    const CudaDevice::Stream stream{};
    constexpr std::uint64_t bytes = 1 << 20;
    auto host = device.allocate_host(3 * bytes);
    auto there = device.allocate(2 * bytes);
    auto flag = device.create_flag();
    auto event = device.create_event(residency::Timing::off);
    REQUIRE((host && there && flag && event));
    auto* const from = static_cast<std::byte*>(*host);
    auto* const to = static_cast<std::byte*>(*there);
    for (std::uint64_t i = 0; i < bytes; ++i) { from[i] = static_cast<std::byte>(i * 7); }
    // The flag's wait goes to this thread's stream too: copies behind it do not run before.
    CHECK(device.wait_flag(stream, *flag, 1));
    const Copy up[] = {{to, from, bytes / 2}, {to + bytes / 2, from + bytes / 2, bytes / 2}};
    CHECK(device.copy(up, stream));
    CHECK(device.record(*event, stream));
    auto complete = device.is_complete(*event);
    REQUIRE(complete);
    CHECK_FALSE(*complete);
    CHECK(device.raise_flag(*flag, 1));
    const Copy down{from + bytes, to, bytes};
    CHECK(device.copy({&down, 1}, stream));
    CHECK(device.synchronize(stream));
    CHECK(std::vector<std::byte>(from, from + bytes) == std::vector<std::byte>(from + bytes, from + 2 * bytes));
    CHECK(device.begin_capture(stream));
    CHECK(device.copy(up, stream));
    auto graph = device.end_capture(stream);
    REQUIRE(graph);
    CHECK(device.launch(*graph, stream));
    CHECK(device.synchronize(stream));
    CHECK(device.destroy_graph(*graph));
    CHECK(device.destroy_event(*event));
    CHECK(device.destroy_flag(*flag));
    CHECK(device.deallocate(*there));
    CHECK(device.deallocate_host(*host));
}
