// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Pinning and filling host memory: CudaDevice against cudaHostAlloc and a copy by one thread; and host bytes that processes share: made by
// the first, mapped and pinned by one that begins again. Arguments: GiB, default 16; GiB to share, default the same, 0: none.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/host/shared_bytes.hpp"

namespace {

/// As a first process, and as others that begin again while the bytes stay.
void measure_shared(bench::Records& records, residency::CudaDevice& device, const std::byte* source,
                    std::uint64_t gib) {
    namespace host = residency::host;
    const std::string name = "residency-benchmark";
    const host::SharedContents contents{gib << 30, 1, 0};
    const auto fill = [&](std::span<std::byte> to) -> residency::Status {
        auto copy = [&](std::uint64_t first, std::uint64_t last) {
            std::memcpy(&to[first], source + first, last - first);
        };
        residency::detail::for_blocks_in_parallel(to.size(), std::uint64_t{32} << 20, 16, copy);
        return {};
    };
    static_cast<void>(BENCH_RESULT(host::SharedHostBytes::try_remove(name)));
    std::vector<double> mapping, pinning, rates;
    double making = 0;
    for (int round = 0; round < 4; ++round) {
        std::optional<host::SharedHostBytes> shared;
        const double seconds = bench::host_seconds(
            [&] { shared.emplace(BENCH_RESULT(host::SharedHostBytes::try_open(name, contents, fill))); });
        if (shared->is_maker() != (round == 0)) {
            std::fprintf(stderr, "others use the shared bytes %s\n", name.c_str());
            std::exit(1);
        }
        (round == 0 ? making : mapping.emplace_back()) = seconds;
        pinning.push_back(bench::host_seconds([&] { BENCH_RESULT(shared->try_pin(device)); }));
        const auto bytes = shared->bytes()->span();
        const std::uint64_t most = std::min<std::uint64_t>(contents.bytes, std::uint64_t{1} << 30);
        void* const at = BENCH_RESULT(device.allocate(most));
        const auto stream = BENCH_RESULT(device.create_stream());
        bench::StreamTimer timer{stream.get()};
        const double copying = timer.median_seconds(
            3, [&] { BENCH_RESULT(device.copy({{at, bytes.data() + (contents.bytes - most), most}}, stream)); });
        rates.push_back(static_cast<double>(most) / copying / 1e9);
        std::vector<std::byte> back(std::size_t{1} << 20);
        BENCH_CUDA(cudaMemcpy(back.data(), static_cast<std::byte*>(at) + most - back.size(), back.size(),
                              cudaMemcpyDeviceToHost));
        if (std::memcmp(back.data(), source + contents.bytes - back.size(), back.size()) != 0) {
            std::fprintf(stderr, "the shared bytes differ\n");
            std::exit(1);
        }
        BENCH_RESULT(device.destroy_stream(stream));
        BENCH_RESULT(device.deallocate(at));
    }
    static_cast<void>(BENCH_RESULT(host::SharedHostBytes::try_remove(name)));
    const std::string prefix = "pinning." + std::to_string(gib) + "GiB.shared.";
    records.add(prefix + "make", making, "s");
    records.add(prefix + "map", bench::median(mapping), "s", "<= 0.1");
    records.add(prefix + "pin", bench::median(pinning), "s");
    records.add(prefix + "copy", bench::median(rates), "GB/s");
}

}  // namespace

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
    const std::uint64_t shared_gib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : gib;
    if (shared_gib > 0) { measure_shared(records, device, source, std::min(shared_gib, gib)); }
    residency::detail::unmap_host(source, bytes);
    return 0;
}
