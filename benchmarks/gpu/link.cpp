// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The limits of the link and of the calls, and what CudaDevice makes of them in the same run.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using residency::Copy;
using residency::CudaDevice;
using residency::Timing;

constexpr std::uint64_t KiB = 1024, MiB = KiB * 1024, GiB = MiB * 1024;

/// The arrays of cudaMemcpyBatchAsync, made beforehand.
struct RawBatch {
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<std::size_t> bytes;

    explicit RawBatch(std::span<const Copy> copies) {
        for (const Copy& copy : copies) {
            to.push_back(copy.to);
            from.push_back(copy.from);
            bytes.push_back(copy.bytes);
        }
    }
    /// Enqueues all, `step` of them a call.
    void enqueue(std::size_t step, cudaStream_t stream) {
        cudaMemcpyAttributes attributes{};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        std::size_t attributes_from = 0;
        for (std::size_t i = 0; i < to.size(); i += step) {
            const std::size_t count = std::min(step, to.size() - i);
#if CUDART_VERSION >= 13000
            BENCH_CUDA(
                cudaMemcpyBatchAsync(&to[i], &from[i], &bytes[i], count, &attributes, &attributes_from, 1, stream));
#else
            std::size_t failed = 0;
            BENCH_CUDA(cudaMemcpyBatchAsync(&to[i], const_cast<void**>(&from[i]), &bytes[i], count, &attributes,
                                            &attributes_from, 1, &failed, stream));
#endif
        }
    }
};

/// Host nanoseconds a call, the stream's work not waited for within a round.
template <class Call>
double call_ns(cudaStream_t stream, int calls, Call&& call) {
    std::vector<double> rounds;
    for (int round = 0; round < 9; ++round) {
        rounds.push_back(bench::host_seconds([&] {
            for (int i = 0; i < calls; ++i) { call(); }
        }));
        BENCH_CUDA(cudaStreamSynchronize(stream));
    }
    return bench::median(std::move(rounds)) * 1e9 / calls;
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-link", argc, argv};
    const auto stream = BENCH_RESULT(device.create_stream());
    bench::StreamTimer timer{stream};

    const std::uint64_t bytes = 2 * GiB;
    auto* const host = static_cast<std::byte*>(BENCH_RESULT(device.allocate_host(bytes)));
    auto* const gpu_memory = static_cast<std::byte*>(BENCH_RESULT(device.allocate(bytes)));
    auto* const sum = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(8)));
    BENCH_CUDA(cudaMemset(sum, 0, 8));
    const auto gigabytes = [](std::uint64_t n, double seconds) { return static_cast<double>(n) / seconds / 1e9; };
    const auto pieces = [&](std::uint64_t piece, std::uint64_t total) {
        std::vector<Copy> copies;
        for (std::uint64_t at = 0; at < total; at += piece) { copies.push_back({gpu_memory + at, host + at, piece}); }
        return copies;
    };
    const auto raw_loop = [&](std::span<const Copy> copies) {
        for (const Copy& copy : copies) {
            BENCH_CUDA(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyHostToDevice, stream));
        }
    };

    // The bare link.
    const auto large = pieces(128 * MiB, bytes);
    const double raw_large = timer.median_seconds(7, [&] { raw_loop(large); });
    records.add("link.copy.128MiB.raw", gigabytes(bytes, raw_large), "GB/s");
    const double our_large = timer.median_seconds(7, [&] {
        for (const Copy& copy : large) { BENCH_RESULT(device.copy({&copy, 1}, stream)); }
    });
    records.add("link.copy.128MiB.device", gigabytes(bytes, our_large), "GB/s");
    records.add("link.copy.128MiB.device_over_raw_time", our_large / raw_large, "ratio", "<= 1.01");
    for (const std::uint64_t piece : {4 * MiB, 1 * MiB, 256 * KiB, 64 * KiB}) {
        const std::uint64_t total = std::min(bytes, piece * 1024);
        const std::string name = std::to_string(piece / KiB) + "KiB";
        const auto copies = pieces(piece, total);
        records.add("link.copy." + name + ".loop", gigabytes(total, timer.median_seconds(7, [&] { raw_loop(copies); })),
                    "GB/s");
        RawBatch batch{copies};
        const double raw = timer.median_seconds(7, [&] { batch.enqueue(512, stream); });
        const double ours = timer.median_seconds(7, [&] { BENCH_RESULT(device.copy(copies, stream)); });
        records.add("link.copy." + name + ".batch_raw", gigabytes(total, raw), "GB/s");
        records.add("link.copy." + name + ".batch_device", gigabytes(total, ours), "GB/s");
        records.add("link.copy." + name + ".batch_device_over_raw_time", ours / raw, "ratio", "<= 1.02");
    }
    // Batches of a step's size, one call a step.
    for (const std::size_t step : {std::size_t{4}, std::size_t{16}, std::size_t{100}}) {
        const auto copies = pieces(64 * KiB, 64 * KiB * 6400);
        const std::uint64_t total = 64 * KiB * 6400;
        RawBatch batch{copies};
        const double raw = timer.median_seconds(5, [&] { batch.enqueue(step, stream); });
        const double ours = timer.median_seconds(5, [&] {
            for (std::size_t i = 0; i < copies.size(); i += step) {
                BENCH_RESULT(device.copy(std::span{copies}.subspan(i, step), stream));
            }
        });
        const std::string name = "link.copy.64KiB.batches_of_" + std::to_string(step);
        records.add(name + ".raw", gigabytes(total, raw), "GB/s");
        records.add(name + ".device", gigabytes(total, ours), "GB/s");
    }
    {
        const auto copies = pieces(64 * KiB, 64 * KiB * 512);
        records.add("link.issue.512x64KiB.batch",
                    call_ns(stream, 4, [&] { BENCH_RESULT(device.copy(copies, stream)); }) / 1e3, "us");
        records.add("link.issue.512x64KiB.loop", call_ns(stream, 4, [&] { raw_loop(copies); }) / 1e3, "us");
    }
    // Small pieces beside large ones: one raw batch of both blocks the host until all is copied; a call of the device does not.
    for (const std::uint64_t small : {std::uint64_t{512}, 4 * KiB, 16 * KiB, 24 * KiB, 32 * KiB, 64 * KiB}) {
        auto copies = pieces(4 * MiB, 64 * MiB);
        for (std::uint64_t i = 0; i < 8; ++i) {
            copies.push_back({gpu_memory + GiB + i * MiB, host + GiB + i * MiB, small});
        }
        RawBatch batch{copies};
        const double takes = timer.median_seconds(9, [&] { BENCH_RESULT(device.copy(copies, stream)); });
        const double raw = call_ns(stream, 1, [&] { batch.enqueue(copies.size(), stream); });
        const double ours = call_ns(stream, 1, [&] { BENCH_RESULT(device.copy(copies, stream)); });
        const std::string name = "link.issue.16x4MiB_and_8x" + std::to_string(small) + "B";
        records.add(name + ".batch_raw", raw / 1e3, "us");
        records.add(name + ".device", ours / 1e3, "us");
        records.add(name + ".device_over_copy_time", ours / 1e9 / takes, "ratio", "<= 0.2");
    }
    // What a call costs beside its bytes, as a plan counts it: copies of 1 MiB, alone; as the executor makes them, each behind a wait
    // for a step and before the record of its arrival; and both as the nodes of a graph, with a kernel a copy beside them.
    {
        constexpr std::size_t count = 256, ahead = 8;
        const auto copies = pieces(1 * MiB, count * MiB);
        const auto kernels = BENCH_RESULT(device.create_stream());
        std::vector<CudaDevice::Event> arrived, used;
        for (std::size_t i = 0; i < count; ++i) {
            arrived.push_back(BENCH_RESULT(device.create_event(Timing::off)));
            used.push_back(BENCH_RESULT(device.create_event(Timing::off)));
        }
        const auto fork = BENCH_RESULT(device.create_event(Timing::off));
        const auto alone = [&] {
            for (const Copy& copy : copies) { BENCH_RESULT(device.copy({&copy, 1}, stream)); }
        };
        const auto as_steps = [&] {
            BENCH_RESULT(device.record(fork, stream));
            BENCH_RESULT(device.wait(kernels, fork));
            for (std::size_t i = 0; i < count; ++i) {
                if (i >= ahead) { BENCH_RESULT(device.wait(stream, used[i - ahead])); }
                BENCH_RESULT(device.copy({&copies[i], 1}, stream));
                BENCH_RESULT(device.record(arrived[i], stream));
                BENCH_RESULT(device.wait(kernels, arrived[i]));
                BENCH_CUDA(gpu::launch_checksum({gpu_memory + i * MiB, 64 * KiB}, sum, kernels));
                BENCH_RESULT(device.record(used[i], kernels));
            }
            BENCH_RESULT(device.wait(stream, used.back()));
        };
        const double ideal = static_cast<double>(count * MiB) / static_cast<double>(bytes) * raw_large;
        const auto microseconds = [&](double seconds) { return (seconds - ideal) / count * 1e6; };
        records.add("link.latency.copy", microseconds(timer.median_seconds(9, alone)), "us");
        records.add("link.latency.copy_between_wait_and_record", microseconds(timer.median_seconds(9, as_steps)), "us");
        const auto replayed = [&](auto&& work) {
            BENCH_RESULT(device.begin_capture(stream));
            work();
            const auto graph = BENCH_RESULT(device.end_capture(stream));
            const double seconds = timer.median_seconds(9, [&] { BENCH_RESULT(device.launch(graph, stream)); });
            BENCH_RESULT(device.destroy_graph(graph));
            return microseconds(seconds);
        };
        records.add("link.latency.node", replayed(alone), "us");
        records.add("link.latency.node_between_kernels", replayed(as_steps), "us");
        for (std::size_t i = 0; i < count; ++i) {
            BENCH_RESULT(device.destroy_event(arrived[i]));
            BENCH_RESULT(device.destroy_event(used[i]));
        }
        BENCH_RESULT(device.destroy_event(fork));
        BENCH_RESULT(device.destroy_stream(kernels));
    }
    // The same copies as a graph.
    {
        const auto copies = pieces(8 * MiB, 64 * 8 * MiB);
        BENCH_RESULT(device.begin_capture(stream));
        for (const Copy& copy : copies) { BENCH_RESULT(device.copy({&copy, 1}, stream)); }
        const auto graph = BENCH_RESULT(device.end_capture(stream));
        const double eager = timer.median_seconds(7, [&] {
            for (const Copy& copy : copies) { BENCH_RESULT(device.copy({&copy, 1}, stream)); }
        });
        const double replayed = timer.median_seconds(7, [&] { BENCH_RESULT(device.launch(graph, stream)); });
        records.add("link.graph.64x8MiB.over_eager_time", replayed / eager, "ratio", "<= 1.02");
        BENCH_RESULT(device.destroy_graph(graph));
    }
    // Kernels: the memory of the GPU, and pinned memory read in place.
    const double read =
        timer.median_seconds(9, [&] { BENCH_CUDA(gpu::launch_checksum({gpu_memory, bytes}, sum, stream)); });
    records.add("link.kernel_read.device_memory", gigabytes(bytes, read), "GB/s");
    const void* const view = BENCH_RESULT(device.device_view(host));
    const double zero_copy =
        timer.median_seconds(3, [&] { BENCH_CUDA(gpu::launch_checksum({view, bytes}, sum, stream)); });
    records.add("link.kernel_read.pinned_host", gigabytes(bytes, zero_copy), "GB/s");

    // What calls cost the host.
    const auto event = BENCH_RESULT(device.create_event(Timing::off));
    const auto other = BENCH_RESULT(device.create_stream());
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const auto per_call = [&](const char* name, auto&& raw, auto&& ours) {
        const double raw_ns = call_ns(stream, 500, raw);
        const double our_ns = call_ns(stream, 500, ours);
        records.add(std::string{"link.call."} + name + ".raw", raw_ns, "ns");
        records.add(std::string{"link.call."} + name + ".device", our_ns, "ns");
    };
    per_call(
        "record", [&] { BENCH_CUDA(cudaEventRecord(event.handle, stream)); },
        [&] { BENCH_RESULT(device.record(event, stream)); });
    per_call(
        "record_and_wait",
        [&] {
            BENCH_CUDA(cudaEventRecord(event.handle, stream));
            BENCH_CUDA(cudaStreamWaitEvent(other, event.handle, 0));
        },
        [&] {
            BENCH_RESULT(device.record(event, stream));
            BENCH_RESULT(device.wait(other, event));
        });
    per_call(
        "is_complete", [&] { BENCH_CUDA(cudaEventQuery(event.handle)); },
        [&] { static_cast<void>(BENCH_RESULT(device.is_complete(event))); });
    per_call(
        "is_capturing", [&] { BENCH_CUDA(cudaStreamIsCapturing(stream, &status)); },
        [&] { static_cast<void>(BENCH_RESULT(device.is_capturing(stream))); });
    records.add("link.call.kernel_launch.raw", call_ns(stream, 500, [&] { BENCH_CUDA(gpu::launch_nothing(stream)); }),
                "ns");
    per_call(
        "copy_4KiB", [&] { BENCH_CUDA(cudaMemcpyAsync(gpu_memory, host, 4 * KiB, cudaMemcpyHostToDevice, stream)); },
        [&] {
            const Copy copy{gpu_memory, host, 4 * KiB};
            BENCH_RESULT(device.copy({&copy, 1}, stream));
        });
    const auto pool = BENCH_RESULT(device.create_pool(256 * MiB));
    records.add("link.call.pool_allocate_deallocate.device",
                call_ns(stream, 500,
                        [&] {
                            void* const at = BENCH_RESULT(device.allocate(pool, 16 * MiB, stream));
                            BENCH_RESULT(device.deallocate(pool, at, stream));
                        }),
                "ns");
    records.add("link.call.memory.device",
                call_ns(stream, 20, [&] { static_cast<void>(BENCH_RESULT(device.memory())); }), "ns");

    // Virtual memory, a chunk of 2 MiB a call; the image is one range.
    {
        const std::uint64_t chunk_bytes = device.chunk_granularity();
        constexpr std::size_t count = 512;
        auto* const base = static_cast<std::byte*>(BENCH_RESULT(device.reserve(count * chunk_bytes)));
        std::vector<residency::Mapping<CudaDevice::Chunk>> mappings(count);
        const double create = bench::host_seconds([&] {
            for (std::size_t i = 0; i < count; ++i) {
                mappings[i] = {base + i * chunk_bytes, BENCH_RESULT(device.create_chunk(chunk_bytes))};
            }
        });
        const double map = bench::host_seconds([&] { BENCH_RESULT(device.map(mappings, chunk_bytes)); });
        const auto chunks = pieces(chunk_bytes, count * chunk_bytes);
        std::vector<Copy> copies = chunks;
        for (std::size_t i = 0; i < count; ++i) { copies[i].to = mappings[i].at; }
        const double filled = timer.median_seconds(5, [&] { BENCH_RESULT(device.copy(copies, stream)); });
        const double unmap = bench::host_seconds([&] { BENCH_RESULT(device.unmap(base, count * chunk_bytes)); });
        const double map_again = bench::host_seconds([&] { BENCH_RESULT(device.map(mappings, chunk_bytes)); });
        BENCH_RESULT(device.unmap(base, count * chunk_bytes));
        const double destroy = bench::host_seconds([&] {
            for (const auto& mapping : mappings) { BENCH_RESULT(device.destroy_chunk(mapping.chunk)); }
        });
        BENCH_RESULT(device.release(base, count * chunk_bytes));
        records.add("link.virtual.create_chunk", create * 1e6 / count, "us");
        records.add("link.virtual.map_with_access", map * 1e6 / count, "us");
        records.add("link.virtual.map_with_access_again", map_again * 1e6 / count, "us");
        records.add("link.virtual.unmap", unmap * 1e6 / count, "us");
        records.add("link.virtual.destroy_chunk", destroy * 1e6 / count, "us");
        records.add("link.virtual.copy_2MiB_chunks", gigabytes(count * chunk_bytes, filled), "GB/s");
    }
    // A stream that waits for the host.
    {
        const auto flag = BENCH_RESULT(device.create_flag());
        std::uint32_t value = 0;
        std::vector<double> times;
        for (int i = 0; i < 101; ++i) {
            BENCH_RESULT(device.wait_flag(stream, flag, ++value));
            times.push_back(bench::host_seconds([&] {
                BENCH_RESULT(device.raise_flag(flag, value));
                BENCH_CUDA(cudaStreamSynchronize(stream));
            }));
        }
        records.add("link.flag.raise_to_host_sees_stream_end", bench::median(std::move(times)) * 1e6, "us");
        BENCH_RESULT(device.destroy_flag(flag));
    }
    BENCH_RESULT(device.destroy_pool(pool));
    BENCH_RESULT(device.destroy_event(event));
    BENCH_RESULT(device.destroy_stream(other));
    BENCH_RESULT(device.destroy_stream(stream));
    BENCH_RESULT(device.deallocate(sum));
    BENCH_RESULT(device.deallocate(gpu_memory));
    BENCH_RESULT(device.deallocate_host(host));
    return 0;
}
