// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What the threads of a transport call, while the host is in a call of the driver that may wait for the device.
#include "residency/transport/staged.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "tests/gpu/support.hpp"

namespace staged_on_gpu {

using namespace residency;
using gpu::KiB, gpu::MiB, gpu::must, gpu::must_cuda;

TEST_CASE("calls that may wait for the device do not keep threads from filling what it waits for") {
    CudaDevice device{0};
    const std::vector<std::byte> bytes = gpu::pattern(16 * MiB, 7);
    CatalogBuilder builder;
    builder.add("w", dtype::u8, {bytes.size()}, HostSource{HostBytes::own(std::vector<std::byte>{bytes}), 0});
    const Catalog catalog = builder.build();
    // Two slots, each filled many times, which is after an event every time but the first.
    transport::Staged<CudaDevice> staged{{.ring_bytes = 128 * KiB, .slot_bytes = 64 * KiB, .threads = 2}};
    must(staged.open(device, catalog));
    const auto stream = must(device.create_stream());
    void* const target = must(device.allocate(bytes.size()));
    const gpu::Sum sum{device};
    std::vector<std::byte> pageable(MiB);

    struct Call {
        std::string name;
        std::function<cudaError_t()> make;
    };
    const auto both = [](cudaError_t first, auto second) { return first == cudaSuccess ? second() : first; };
    const std::vector<Call> calls{
        {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
        {"cudaMalloc, cudaFree",
         [&] {
             void* at = nullptr;
             return both(cudaMalloc(&at, 64 * MiB), [&] { return cudaFree(at); });
         }},
        {"cudaMallocHost, cudaFreeHost",
         [&] {
             void* at = nullptr;
             return both(cudaMallocHost(&at, MiB), [&] { return cudaFreeHost(at); });
         }},
        {"cudaHostRegister, cudaHostUnregister",
         [&] {
             return both(cudaHostRegister(pageable.data(), pageable.size(), cudaHostRegisterDefault),
                         [&] { return cudaHostUnregister(pageable.data()); });
         }},
        {"cudaMemcpy", [&] { return cudaMemcpy(pageable.data(), target, pageable.size(), cudaMemcpyDeviceToHost); }},
        {"cudaStreamCreate, cudaStreamDestroy",
         [&] {
             cudaStream_t other = nullptr;
             return both(cudaStreamCreate(&other), [&] { return cudaStreamDestroy(other); });
         }},
        {"cudaMallocAsync, cudaFreeAsync, cudaStreamSynchronize",
         [&] {
             void* at = nullptr;
             return both(cudaMallocAsync(&at, 64 * MiB, nullptr), [&] {
                 return both(cudaFreeAsync(at, nullptr), [] { return cudaStreamSynchronize(nullptr); });
             });
         }},
    };
    for (const Call& call : calls) {
        CAPTURE(call.name);
        must_cuda(cudaMemsetAsync(target, 0, bytes.size(), stream));
        const transport::Fetch fetch{StorageId{0}, 0, bytes.size(), target, true};
        must(staged.enqueue({&fetch, 1}, stream));
        must_cuda(call.make());
        must(device.synchronize(stream));
        must(staged.status());
        CHECK(sum.of(target, bytes.size(), stream) == gpu::checksum(bytes));
    }
    staged.close();
    must(device.deallocate(target));
    must(device.destroy_stream(stream));
}

}  // namespace staged_on_gpu
