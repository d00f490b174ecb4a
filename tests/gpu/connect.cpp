// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Leases beside other people's code: their events, their streams, their views. tests/interop/tensors/ is for tensors.
#include "tests/gpu/views.hpp"  // first: how Thrust is named here

#include <doctest/doctest.h>
#include <cuda/stream_ref>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/device/cuda.hpp"
#include "residency/evict/queues.hpp"
#include "residency/interop/cuda_array_interface.hpp"
#include "residency/interop/mdspan.hpp"
#include "residency/interop/thrust_range.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/gpu/support.hpp"

namespace connect_on_gpu {

using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::CudaDevice;
using residency::WeightId;
using Weights =
    residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::Slab<CudaDevice>>;

namespace {

constexpr std::uint32_t count = 8;

/// Weights of 2 MiB in pinned memory, each with its own bytes, and a budget for two of them.
struct Rig {
    CudaDevice device{0};
    std::byte* host = static_cast<std::byte*>(must(device.allocate_host(count * 2 * MiB)));
    std::vector<std::uint64_t> checksums;
    residency::Catalog catalog;
    CudaDevice::Stream stream = must(device.create_stream());

    Rig() {
        residency::CatalogBuilder builder;
        const auto bytes = residency::HostBytes::borrow({host, count * 2 * MiB}, residency::HostMemory::pinned);
        for (std::uint32_t w = 0; w < count; ++w) {
            auto* const at = reinterpret_cast<float*>(host + w * 2 * MiB);
            for (std::uint32_t i = 0; i < 2 * MiB / 4; ++i) { at[i] = static_cast<float>((i + w) % 97); }
            checksums.push_back(gpu::checksum({host + w * 2 * MiB, 2 * MiB}));
            residency::StorageOptions options;
            options.source = residency::HostSource{bytes, w * 2 * MiB};
            const auto storage = builder.add_storage(2 * MiB, options);
            // Every second one is a transposed matrix.
            const std::optional<residency::Strides> strides =
                w % 2 == 0 ? std::nullopt : std::optional{residency::Strides{1, 512}};
            builder.add_weight("w" + std::to_string(w), residency::dtype::f32,
                               w % 2 == 0 ? residency::Shape{1024, 512} : residency::Shape{512, 1024}, storage, 0,
                               strides);
        }
        catalog = must(builder.try_build());
    }
    Rig(const Rig&) = delete;
    Rig& operator=(const Rig&) = delete;
    ~Rig() {
        must(device.synchronize());
        must(device.destroy_stream(stream));
        must(device.deallocate_host(host));
    }
    [[nodiscard]] Weights make() {
        Weights::Options options;
        options.budget = residency::Budget::bytes(4 * MiB);
        return must(Weights::try_create(device, catalog, std::move(options)));
    }
    [[nodiscard]] float element(std::uint32_t w, std::uint64_t i) const {
        return reinterpret_cast<const float*>(host + w * 2 * MiB)[i];
    }
};

}  // namespace

TEST_CASE("events of the caller: a reader that is known by its events only reads what it should, and keeps it") {
    Rig rig;
    CudaDevice& device = rig.device;
    cudaStream_t foreign = nullptr;  // the library never hears of it
    cudaEvent_t arrived = nullptr, done = nullptr;
    must_cuda(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
    must_cuda(cudaEventCreateWithFlags(&arrived, cudaEventDisableTiming));
    must_cuda(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    auto* const sums = static_cast<std::uint64_t*>(must(device.allocate(count * 8)));
    {
        auto weights = rig.make();
        for (int round = 0; round < 20; ++round) {
            must_cuda(cudaMemsetAsync(sums, 0, count * 8, foreign));
            auto pass = must(weights.try_begin(rig.stream));
            for (std::uint32_t w = 0; w < count; ++w) {
                auto lease = must(pass.try_acquire(WeightId{w}));
                lease.record(CudaDevice::Event{arrived});
                must_cuda(cudaStreamWaitEvent(foreign, arrived, 0));
                // It starts late, so that an overwrite would come before.
                must_cuda(gpu::launch_spin(std::chrono::microseconds{200}, foreign));
                must_cuda(gpu::launch_checksum({lease.data(WeightId{w}), 2 * MiB}, sums + w, foreign));
                must_cuda(cudaEventRecord(done, foreign));
                lease.wait_for(CudaDevice::Event{done});
            }
            must(pass.try_end());
            std::vector<std::uint64_t> found(count);
            must_cuda(cudaMemcpyAsync(found.data(), sums, count * 8, cudaMemcpyDeviceToHost, foreign));
            must_cuda(cudaStreamSynchronize(foreign));
            CHECK(found == rig.checksums);
        }
        must(weights.try_drain());
    }
    must(device.deallocate(sums));
    must_cuda(cudaEventDestroy(arrived));
    must_cuda(cudaEventDestroy(done));
    must_cuda(cudaStreamDestroy(foreign));
}

TEST_CASE("views: a kernel reads a lease by cuda::std::mdspan, and an algorithm of Thrust by a range") {
    Rig rig;
    CudaDevice& device = rig.device;
    auto* const sums = static_cast<float*>(must(device.allocate(1024 * 4)));
    {
        auto weights = rig.make();
        auto pass = must(weights.try_begin(rig.stream));
        for (std::uint32_t w = 0; w < count; ++w) {
            const auto lease = must(pass.try_acquire(WeightId{w}));
            const auto matrix = residency::view<gpu::Matrix>(lease, WeightId{w});
            must_cuda(gpu::launch_row_sums(matrix, sums, rig.stream));
            std::vector<float> found(static_cast<std::size_t>(matrix.extent(0)));
            must_cuda(cudaMemcpyAsync(found.data(), sums, found.size() * 4, cudaMemcpyDeviceToHost, rig.stream));
            const auto range = residency::thrust_range<float>(lease, WeightId{w});
            CHECK(range.size() == 2 * MiB / 4);
            const float sum = gpu::sum_by_thrust(range.begin(), range.end(), rig.stream);
            must(device.synchronize(rig.stream));
            const bool is_transposed = w % 2 == 1;
            const std::uint64_t rows = found.size(), columns = 2 * MiB / 4 / rows;
            double total = 0;
            for (std::uint64_t row = 0; row < rows; ++row) {
                float expected = 0;  // whole numbers below 2^24: exact in any order
                for (std::uint64_t column = 0; column < columns; ++column) {
                    expected += rig.element(w, is_transposed ? row + column * 512 : row * columns + column);
                }
                total += expected;
                if (found[row] != expected) { FAIL_CHECK("row " << row << " of weight " << w); }
            }
            CHECK(sum == doctest::Approx(total).epsilon(1e-5));
        }
        must(pass.try_end());
        must(weights.try_drain());
    }
    must(device.deallocate(sums));
}

TEST_CASE("cuda::stream_ref goes wherever a stream goes") {
    Rig rig;
    CudaDevice& device = rig.device;
    const auto second = must(device.create_stream());
    const cuda::stream_ref own{rig.stream.get()}, other{second.get()};
    const gpu::Sum sum{device};
    {
        auto weights = rig.make();
        auto pass = weights.begin(own);
        for (std::uint32_t w = 0; w < count; ++w) {
            auto lease = w % 2 == 0 ? pass.acquire(WeightId{w}, other) : pass.request(WeightId{w}).lease(own);
            lease.use_on(other);
            CHECK(sum.of(lease.data(WeightId{w}), 2 * MiB, other.get()) == rig.checksums[w]);
        }
        must(pass.try_end());
        must(weights.try_drain());
    }
    must(device.synchronize(second));
    must(device.destroy_stream(second));
}

TEST_CASE("the CUDA array interface names address and stream of a lease") {
    Rig rig;
    auto weights = rig.make();
    auto pass = must(weights.try_begin(rig.stream));
    const auto lease = must(pass.try_acquire(WeightId{1}));
    const auto array = must(residency::cuda_array_interface(lease, WeightId{1}));
    CHECK(array.address == reinterpret_cast<std::uintptr_t>(lease.data(WeightId{1})));
    CHECK(array.stream == reinterpret_cast<std::uintptr_t>(rig.stream.get()));
    CHECK(array.typestr == "<f4");
    CHECK(array.strides_bytes == std::vector<std::int64_t>{4, 2048});
    CHECK(array.is_read_only);
    CHECK(residency::cuda_array_interface(lease, WeightId{2}).error().kind() == residency::ErrorKind::invalid_argument);
    const auto on_default = must(pass.try_acquire(WeightId{0}, CudaDevice::Stream{}));
    CHECK(must(residency::cuda_array_interface(on_default, WeightId{0})).stream ==
          (CudaDevice::Stream{}.is_legacy_default() ? 1 : 2));
}

}  // namespace connect_on_gpu
