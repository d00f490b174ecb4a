// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
//
// Simulated operations a second, on one core. The items counted are what the device executed.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/simulation/simulated_device.hpp"

namespace {

using residency::Copy;
using residency::SimulatedDevice;
using residency::Timing;

SimulatedDevice::Config config(benchmark::State& state) {
    SimulatedDevice::Config result;
    result.memory_bytes = std::uint64_t{64} << 20U;
    result.allocation_granularity = 4096;
    result.pool_granularity = 1 << 20;
    result.chunk_granularity = 4096;
    result.checker = state.range(0) != 0;
    return result;
}

void count(benchmark::State& state, const SimulatedDevice& device, std::uint64_t before) {
    const auto done = device.statistics().operations - before;
    state.SetItemsProcessed(static_cast<std::int64_t>(done));
    if (device.report_count() != 0) { state.SkipWithError("the checker has findings"); }
}

/// A streamed step: the copy stream waits for the last use of a slot, copies, records; the compute stream waits, runs, records.
void streamed_steps(benchmark::State& state) {
    SimulatedDevice device{config(state)};
    constexpr std::size_t slots = 16;
    constexpr std::uint64_t bytes = 256;
    const auto copies = *device.create_stream("copy");
    const auto compute = *device.create_stream("compute");
    auto* const host = static_cast<std::byte*>(*device.allocate_host(slots * bytes));
    auto* const there = static_cast<std::byte*>(*device.allocate(slots * bytes));
    std::vector<SimulatedDevice::Event> arrived, used;
    for (std::size_t i = 0; i < slots; ++i) {
        arrived.push_back(*device.create_event(Timing::off));
        used.push_back(*device.create_event(Timing::off));
    }
    std::uint64_t sum = 0;
    const auto before = device.statistics().operations;
    for (auto _ : state) {
        for (std::size_t i = 0; i < slots; ++i) {
            auto* const slot = there + i * bytes;
            const Copy copy{slot, host + i * bytes, bytes};
            benchmark::DoNotOptimize(device.wait(copies, used[i]).has_value());
            benchmark::DoNotOptimize(device.copy({&copy, 1}, copies).has_value());
            benchmark::DoNotOptimize(device.record(arrived[i], copies).has_value());
            benchmark::DoNotOptimize(device.wait(compute, arrived[i]).has_value());
            benchmark::DoNotOptimize(
                device
                    .launch(compute, {.name = "step",
                                      .duration = std::chrono::nanoseconds{3000},
                                      .reads = {{slot, bytes}},
                                      .writes = {},
                                      .body = [slot, &sum] { sum += static_cast<std::uint64_t>(*slot); }})
                    .has_value());
            benchmark::DoNotOptimize(device.record(used[i], compute).has_value());
        }
        benchmark::DoNotOptimize(device.synchronize(compute).has_value());
    }
    benchmark::DoNotOptimize(sum);
    count(state, device, before);
}
BENCHMARK(streamed_steps)->ArgName("checker")->Arg(1)->Arg(0);

/// The same with blocks of a stream-ordered pool.
void pooled_steps(benchmark::State& state) {
    SimulatedDevice device{config(state)};
    constexpr std::uint64_t bytes = 512;
    const auto copies = *device.create_stream("copy");
    const auto compute = *device.create_stream("compute");
    const auto pool = *device.create_pool(1 << 20);
    auto* const host = *device.allocate_host(bytes);
    const auto arrived = *device.create_event(Timing::off);
    const auto used = *device.create_event(Timing::off);
    const auto before = device.statistics().operations;
    for (auto _ : state) {
        for (int i = 0; i < 16; ++i) {
            void* const at = *device.allocate(pool, bytes, copies);
            const Copy copy{at, host, bytes};
            benchmark::DoNotOptimize(device.copy({&copy, 1}, copies).has_value());
            benchmark::DoNotOptimize(device.record(arrived, copies).has_value());
            benchmark::DoNotOptimize(device.wait(compute, arrived).has_value());
            benchmark::DoNotOptimize(
                device.launch(compute, {.name = "step", .reads = {{at, bytes}}, .writes = {}, .body = {}}).has_value());
            benchmark::DoNotOptimize(device.record(used, compute).has_value());
            benchmark::DoNotOptimize(device.wait(copies, used).has_value());
            benchmark::DoNotOptimize(device.deallocate(pool, at, copies).has_value());
        }
        benchmark::DoNotOptimize(device.synchronize(copies).has_value());
    }
    count(state, device, before);
}
BENCHMARK(pooled_steps)->ArgName("checker")->Arg(1)->Arg(0);

/// A captured step, replayed: 8 copies, 8 kernels, fork and join.
void replayed_steps(benchmark::State& state) {
    SimulatedDevice device{config(state)};
    constexpr std::uint64_t bytes = 256;
    const auto copies = *device.create_stream("copy");
    const auto compute = *device.create_stream("compute");
    auto* const host = static_cast<std::byte*>(*device.allocate_host(8 * bytes));
    auto* const there = static_cast<std::byte*>(*device.allocate(8 * bytes));
    const auto event = *device.create_event(Timing::off);
    benchmark::DoNotOptimize(device.begin_capture(compute).has_value());
    benchmark::DoNotOptimize(device.record(event, compute).has_value());
    benchmark::DoNotOptimize(device.wait(copies, event).has_value());
    for (std::uint64_t i = 0; i < 8; ++i) {
        const Copy copy{there + i * bytes, host + i * bytes, bytes};
        benchmark::DoNotOptimize(device.copy({&copy, 1}, copies).has_value());
        benchmark::DoNotOptimize(device.record(event, copies).has_value());
        benchmark::DoNotOptimize(device.wait(compute, event).has_value());
        benchmark::DoNotOptimize(
            device.launch(compute, {.name = "step", .reads = {{copy.to, bytes}}, .writes = {}, .body = {}})
                .has_value());
    }
    const auto graph = *device.end_capture(compute);
    const auto before = device.statistics().operations;
    for (auto _ : state) {
        benchmark::DoNotOptimize(device.launch(graph, compute).has_value());
        benchmark::DoNotOptimize(device.synchronize(compute).has_value());
    }
    count(state, device, before);
}
BENCHMARK(replayed_steps)->ArgName("checker")->Arg(1)->Arg(0);

/// Kernels that read many ranges of mapped chunks, as a planned pass does.
void mapped_steps(benchmark::State& state) {
    SimulatedDevice device{config(state)};
    constexpr std::uint64_t chunk_bytes = 4096, chunks = 512;
    const auto copies = *device.create_stream("copy");
    const auto compute = *device.create_stream("compute");
    auto* const host = static_cast<std::byte*>(*device.allocate_host(chunk_bytes));
    auto* const range = static_cast<std::byte*>(*device.reserve(chunks * chunk_bytes));
    std::vector<residency::Mapping<SimulatedDevice::Chunk>> maps;
    std::vector<SimulatedDevice::Chunk> ring;
    for (std::uint64_t i = 0; i < 16; ++i) { ring.push_back(*device.create_chunk(chunk_bytes)); }
    for (std::uint64_t i = 0; i < chunks; ++i) { maps.push_back({range + i * chunk_bytes, ring[i % 16]}); }
    if (!device.map(maps, chunk_bytes)) { state.SkipWithError("cannot map"); }
    const auto arrived = *device.create_event(Timing::off);
    const auto used = *device.create_event(Timing::off);
    const auto before = device.statistics().operations;
    for (auto _ : state) {
        for (std::uint64_t i = 0; i < chunks; ++i) {
            auto* const at = range + i * chunk_bytes;
            const Copy copy{at, host, 128};
            benchmark::DoNotOptimize(device.wait(copies, used).has_value());
            benchmark::DoNotOptimize(device.copy({&copy, 1}, copies).has_value());
            benchmark::DoNotOptimize(device.record(arrived, copies).has_value());
            benchmark::DoNotOptimize(device.wait(compute, arrived).has_value());
            benchmark::DoNotOptimize(
                device.launch(compute, {.name = "step", .reads = {{at, 128}}, .writes = {}, .body = {}}).has_value());
            benchmark::DoNotOptimize(device.record(used, compute).has_value());
        }
        benchmark::DoNotOptimize(device.synchronize(compute).has_value());
    }
    count(state, device, before);
}
BENCHMARK(mapped_steps)->ArgName("checker")->Arg(1)->Arg(0);

}  // namespace

BENCHMARK_MAIN();
