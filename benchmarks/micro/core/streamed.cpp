// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Steps of a planned pass that streams, on a device whose calls do nothing: the host's own time, and the device calls that it makes.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/planned.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace core { namespace {

/// Counts the calls of a pass.
struct CountingDevice : Device {
    [[gnu::noinline]] residency::Status record(Event event, Stream stream) {
        ++records;
        return Device::record(event, stream);
    }
    [[gnu::noinline]] residency::Status wait(Stream stream, Event event) {
        ++waits;
        return Device::wait(stream, event);
    }
    [[gnu::noinline]] residency::Result<bool> is_complete(Event event) {
        ++queries;
        return Device::is_complete(event);
    }
    [[gnu::noinline]] residency::Result<bool> is_capturing(Stream stream) {
        ++queries;
        return Device::is_capturing(stream);
    }
    [[gnu::noinline]] residency::Status copy(std::span<const residency::Copy> copies, Stream stream) {
        ++calls;
        pieces += copies.size();
        return Device::copy(copies, stream);
    }
    [[nodiscard]] std::uint64_t chunk_granularity() const { return std::uint64_t{2} << 20U; }

    std::uint64_t records = 0, waits = 0, queries = 0, calls = 0, pieces = 0;
};

using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<CountingDevice>>;

/// 24 layers of 22.5 MB and a classifier of 65.5 MB, a step each, at a budget of `percent` of them.
Planned make_planned(CountingDevice& device, std::int64_t percent) {
    constexpr std::uint64_t layer = 22553600, classifier = 65536000, layers = 24, total = layers * layer + classifier;
    static const std::byte* const nowhere =
        reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40U);  // nobody reads
    const auto host = residency::HostBytes::borrow({nowhere, total}, residency::HostMemory::pinned);
    residency::CatalogBuilder builder;
    for (std::uint64_t i = 0; i <= layers; ++i) {
        builder.add("w" + std::to_string(i), residency::dtype::u8, {i < layers ? layer : classifier},
                    residency::HostSource{host, i * layer});
    }
    const residency::Catalog catalog = builder.build();
    residency::ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i <= layers; ++i) {
        steps.step({WeightId{i}}, std::chrono::microseconds{i < layers ? 29 : 60});
    }
    Planned::Options options;
    options.budget = residency::Budget::bytes(total * static_cast<std::uint64_t>(percent) / 100);
    options.schedule = steps.build();
    options.learn = false;
    options.policies.link = residency::plan::Link{};
    return Planned{device, catalog, std::move(options)};
}

void planned_step(benchmark::State& state) {
    CountingDevice device;
    auto weights = make_planned(device, state.range(0));
    const auto steps = weights.schedule().steps();
    const auto run_pass = [&] {
        auto pass = weights.begin({});
        for (const auto& step : steps) {
            auto lease = pass.acquire(step);
            benchmark::DoNotOptimize(lease.data(step.weights[0]));
        }
    };
    for (int i = 0; i < 3; ++i) { run_pass(); }
    const CountingDevice before = device;
    std::uint64_t passes = 0;
    for (auto _ : state) {
        run_pass();
        ++passes;
    }
    const double count = static_cast<double>(passes) * static_cast<double>(steps.size());
    state.SetItemsProcessed(static_cast<std::int64_t>(count));
    const auto per_step = [&](std::uint64_t now, std::uint64_t then) {
        return static_cast<double>(now - then) / count;
    };
    state.counters["records_per_step"] = per_step(device.records, before.records);
    state.counters["waits_per_step"] = per_step(device.waits, before.waits);
    state.counters["queries_per_step"] = per_step(device.queries, before.queries);
    state.counters["copy_calls_per_step"] = per_step(device.calls, before.calls);
    state.counters["pieces_per_step"] = per_step(device.pieces, before.pieces);
}
BENCHMARK(planned_step)->Arg(100)->Arg(90)->Arg(75)->Arg(50)->Arg(25);

}}  // namespace core
