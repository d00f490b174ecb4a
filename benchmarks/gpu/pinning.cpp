// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Pinning and filling host memory: CudaDevice against cudaHostAlloc and a copy by one thread. Argument: GiB, default 16.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/device/cuda_host_memory.hpp"

int main(int argc, char** argv) {
    using residency::CudaDevice;
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-pinning", argc, argv};
    const std::uint64_t gib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 16;
    const std::uint64_t bytes = gib << 30;

    // The source is ordinary memory, as a loader would have it in the page cache.
    auto* const source = static_cast<std::byte*>(residency::detail::map_host(bytes, true, std::nullopt));
    if (source == nullptr) { return 1; }
    residency::detail::touch_host(source, bytes, 16);
    auto write = [source](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t i = first; i + 8 <= last; i += 8) {
            const std::uint64_t word = i * 0x9E3779B97F4A7C15U;
            std::memcpy(source + i, &word, 8);
        }
    };
    residency::detail::for_blocks_in_parallel(bytes, std::uint64_t{32} << 20, 16, write);

    const auto fill = [source](std::byte* first, std::uint64_t offset, std::uint64_t count) {
        std::memcpy(first, source + offset, count);
    };
    const auto ours = [&] {
        void* at = nullptr;
        const double seconds = bench::host_seconds([&] { at = BENCH_RESULT(device.allocate_host(bytes, fill)); });
        if (std::memcmp(at, source, std::size_t{1} << 20) != 0 ||
            std::memcmp(static_cast<std::byte*>(at) + bytes - 4096, source + bytes - 4096, 4096) != 0) {
            std::fprintf(stderr, "the bytes differ\n");
            std::exit(1);
        }
        BENCH_RESULT(device.deallocate_host(at));
        return seconds;
    };
    const auto peer = [&](double& allocating) {
        void* at = nullptr;
        allocating = bench::host_seconds([&] { BENCH_CUDA(cudaHostAlloc(&at, bytes, cudaHostAllocDefault)); });
        const double seconds = allocating + bench::host_seconds([&] { std::memcpy(at, source, bytes); });
        BENCH_CUDA(cudaFreeHost(at));
        return seconds;
    };
    // A virtual machine may get its memory only now: the first round is for that, and neither side is counted.
    double allocating = 0;
    const double first_ours = ours();
    const double first_peer = peer(allocating);
    std::vector<double> our_times;
    std::vector<double> peer_times;
    std::vector<double> peer_allocating;
    for (int round = 0; round < 3; ++round) {
        our_times.push_back(ours());
        peer_times.push_back(peer(allocating));
        peer_allocating.push_back(allocating);
    }
    void* touched = nullptr;
    const double only_pinning = bench::host_seconds([&] { touched = BENCH_RESULT(device.allocate_host(bytes)); });
    BENCH_RESULT(device.deallocate_host(touched));

    const double our_seconds = bench::median(our_times);
    const double peer_seconds = bench::median(peer_times);
    const std::string name = "pinning." + std::to_string(gib) + "GiB.";
    records.add(name + "fill.device", our_seconds, "s");
    records.add(name + "fill.host_alloc_and_one_thread", peer_seconds, "s");
    records.add(name + "host_alloc", bench::median(peer_allocating), "s");
    records.add(name + "touch_and_pin.device", only_pinning, "s");
    records.add(name + "first_round.device", first_ours, "s");
    records.add(name + "first_round.host_alloc_and_one_thread", first_peer, "s");
    records.add(name + "fill.speedup", peer_seconds / our_seconds, "times", ">= 3");
    residency::detail::unmap_host(source, bytes);
    return 0;
}
