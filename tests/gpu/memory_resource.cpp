// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Thrust and cuda::mr allocate from a broker's total.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE

#include "tests/gpu/thrust.hpp"  // first: how Thrust is named here

#include <doctest/doctest.h>
#include <cuda/stream_ref>

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/device/cuda.hpp"
#include "residency/interop/cccl.hpp"
#include "residency/interop/thrust.hpp"
#include "tests/gpu/support.hpp"

namespace memory_resource_on_gpu {

using gpu::MiB;
using gpu::must;
using residency::BudgetBroker;
using residency::CudaDevice;
using Resource = residency::MemoryResource<CudaDevice>;
using ThrustResource = residency::ThrustResource<CudaDevice>;

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<Resource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::async_resource_with<Resource, cuda::mr::device_accessible>);
#endif

TEST_CASE("memory resource: a Thrust vector and the temporary memory of an algorithm come from the broker's total") {
    CudaDevice device{0};
    BudgetBroker broker{{.total_bytes = 256 * MiB}};
    Resource resource{device, must(broker.try_add_memory({.name = "thrust"}))};
    ThrustResource thrust_resource{resource};
    constexpr std::size_t count = 8 << 20;
    std::vector<std::uint32_t> values(count);
    std::iota(values.rbegin(), values.rend(), 0U);
    gpu::sort_by_thrust(thrust_resource, values.data(), values.size(), [&] {
        CHECK(resource.requested_bytes() == count * 4);
        CHECK(resource.held_bytes() > count * 4);  // the sort had memory of its own
    });
    CHECK(std::ranges::is_sorted(values));
    CHECK(values.back() == count - 1);
    CHECK(broker.statistics().peak_granted_bytes <= 256 * MiB);
    std::vector<std::uint32_t> too_many(64 << 20);
    CHECK_THROWS_AS(gpu::sort_by_thrust(thrust_resource, too_many.data(), too_many.size(), [] {}), std::bad_alloc);
    CHECK(resource.requested_bytes() == 0);
    must(resource.try_trim());
    CHECK(resource.held_bytes() == 0);
    CHECK(resource.failure() == nullptr);
}

TEST_CASE("memory resource: in stream order, by cuda::stream_ref") {
    CudaDevice device{0};
    BudgetBroker broker{{.total_bytes = 128 * MiB}};
    Resource resource{device, must(broker.try_add_memory({.name = "stream-ordered"}))};
    const auto stream = must(device.create_stream());
    const cuda::stream_ref reference{stream.get()};
    gpu::Sum sum{device};
    for (int i = 0; i < 50; ++i) {
        void* const at = resource.allocate_async(3 * MiB, 256, reference);
        REQUIRE(cudaMemsetAsync(at, i, 3 * MiB, stream) == cudaSuccess);
        const std::vector<std::byte> expected(3 * MiB, static_cast<std::byte>(i));
        CHECK(sum.of(at, 3 * MiB, stream) == gpu::checksum(expected));
        resource.deallocate_async(at, 3 * MiB, 256, reference);
    }
    CHECK(resource.held_bytes() <= 32 * MiB);
    must(device.synchronize(stream));
    must(resource.try_trim());
    CHECK(resource.held_bytes() == 0);
    must(device.destroy_stream(stream));
}

}  // namespace memory_resource_on_gpu
