// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Host bytes that processes share, pinned by a driver: the pages of a file in memory that is mapped read-only.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "residency/device/cuda.hpp"
#include "residency/host/share.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/support.hpp"
#include "tests/support/processes.hpp"

namespace shared_on_gpu {

using gpu::must;
using gpu::must_cuda;
using residency::CudaDevice;

TEST_CASE("bytes that the first process made are pinned by every process, and come to the device as they are") {
    if (support::lacks_shared_memory()) { return; }
    CudaDevice device{0};
    constexpr std::uint32_t layers = 6;
    constexpr std::uint64_t layer_bytes = 4 * gpu::MiB + 512;
    std::vector<std::byte> own(layers * layer_bytes);
    gpu::fill_pattern(own, 5);
    residency::CatalogBuilder builder;
    const auto host = residency::HostBytes::borrow(own, residency::HostMemory::pageable);
    for (std::uint32_t i = 0; i < layers; ++i) {
        const auto storage = builder.add_storage(layer_bytes, {.source = residency::HostSource{host, i * layer_bytes}});
        builder.add_weight("layer." + std::to_string(i), residency::dtype::u8, {layer_bytes}, storage);
    }
    const residency::Catalog catalog = builder.build();
    const support::MemoryFolder folder;
    residency::host::SharedOptions shared_options;
    shared_options.folder = folder.folder();
    shared_options.tier = residency::host::Tier::pinned;
    auto* const sums = static_cast<std::uint64_t*>(must(device.allocate(layers * 8)));
    const auto stream = must(device.create_stream());
    for (const bool is_maker : {true, false, false}) {
        CAPTURE(is_maker);
        const auto shared = must(residency::host::try_share(device, catalog, "model", shared_options));
        CHECK(shared.is_maker == is_maker);
        CHECK(shared.tier == residency::host::Tier::pinned);
        residency::Planned<CudaDevice>::Options options;
        residency::ScheduleBuilder steps{shared.catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({residency::WeightId{i}}); }
        options.schedule = steps.build();
        options.budget = residency::Budget::bytes(16 * gpu::MiB);
        auto weights = must(residency::Planned<CudaDevice>::try_create(device, shared.catalog, options));
        for (int turn = 0; turn < 3; ++turn) {
            must_cuda(cudaMemset(sums, 0, layers * 8));
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t i = 0; i < layers; ++i) {
                const auto lease = must(pass.try_acquire(weights.schedule()[i]));
                must_cuda(
                    gpu::launch_checksum({lease.data(residency::WeightId{i}), layer_bytes}, sums + i, stream.get()));
            }
            must(pass.try_end());
            must(weights.try_drain());
            std::vector<std::uint64_t> got(layers);
            must_cuda(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
            for (std::uint32_t i = 0; i < layers; ++i) {
                CHECK(got[i] == gpu::checksum({own.data() + i * layer_bytes, layer_bytes}));
            }
        }
    }
    must(device.deallocate(sums));
    must(device.destroy_stream(stream));
}

}  // namespace shared_on_gpu
