// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Every schedule runs at its floor in the driver's stream-ordered pools, which fragment as the driver likes.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "residency/device/cuda.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/gpu/support.hpp"
#include "tests/support/floor_of_schedules.hpp"

namespace floor_on_gpu {

using gpu::must;
using gpu::must_cuda;
using residency::CudaDevice;
using support::FloorModel;

namespace {

using Pool = residency::pool::StreamOrdered<CudaDevice>;
using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::None, Pool>;
using Ahead = residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, Pool>;

template <class Weights>
void run_models(std::uint64_t first, std::uint64_t count) {
    CudaDevice device{0};
    const std::uint64_t bytes = FloorModel::weights * FloorModel::largest_bytes;
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
    gpu::fill_pattern({at, bytes}, first);
    const auto host = residency::HostBytes::adopt(
        at, bytes, residency::HostMemory::pinned,
        [&device](std::byte* memory) { static_cast<void>(device.deallocate_host(memory).has_value()); });
    constexpr std::size_t most = std::size_t{3} * 3 * FloorModel::steps;  // weights of three passes
    auto* const sums = static_cast<std::uint64_t*>(must(device.allocate(most * 8)));
    const auto stream = must(device.create_stream());
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        CAPTURE(seed);
        const FloorModel model = must(FloorModel::try_make(host, seed));
        must_cuda(cudaMemset(sums, 0, most * 8));
        std::vector<std::uint64_t> expected;
        const std::string refused = support::run_at_floor<Weights>(
            device, model, stream, 3, [&](const auto& lease, const residency::Schedule::Step& step) {
                for (const auto id : step.weights) {
                    const auto weight = lease.bytes(id);
                    const auto* const source = model.catalog.host_bytes(model.catalog.storage_of(id));
                    // A part of each weight: the host is slow.
                    const std::uint64_t part = 65536;
                    const std::uint64_t from = seed * 4096 % (weight.size() - part + 1);
                    must_cuda(gpu::launch_checksum({weight.data() + from, part}, sums + expected.size(), stream.get()));
                    expected.push_back(gpu::checksum({source + from, part}));
                }
            });
        CHECK_MESSAGE(refused.empty(), refused);
        std::vector<std::uint64_t> got(expected.size());
        must_cuda(cudaDeviceSynchronize());
        must_cuda(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
        CHECK(got == expected);
    }
    must(device.deallocate(sums));
    must(device.destroy_stream(stream));
}

}  // namespace

TEST_CASE("C9: every schedule runs at its floor in the driver's stream-ordered pool") {
    run_models<OnDemand>(1, 60);
    run_models<Ahead>(1, 20);
}

}  // namespace floor_on_gpu
