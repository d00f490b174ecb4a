// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What the core itself costs on the host, on a device whose calls do nothing: acquire + end of a storage that is there, beside
// the bare calls that it makes; the same with many storages; and an access that has to evict and to fetch.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/evict/lru.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/none.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/support/archetypes.hpp"

namespace {

using residency::WeightId;

constexpr std::uint64_t storage_bytes = 256;

/// Takes every call out of line, as a driver's are, and does nothing.
struct Device : archetype::MappingDevice {
    [[gnu::noinline]] residency::Status record(Event, Stream) { return done(); }
    [[gnu::noinline]] residency::Status wait(Stream, Event) { return done(); }
    [[gnu::noinline]] residency::Result<bool> is_capturing(Stream) {
        benchmark::ClobberMemory();
        return false;
    }
    [[gnu::noinline]] residency::Result<bool> is_complete(Event) {
        benchmark::ClobberMemory();
        return true;
    }
    [[gnu::noinline]] residency::Status copy(std::span<const residency::Copy>, Stream) { return done(); }

private:
    static residency::Status done() {
        benchmark::ClobberMemory();
        return {};
    }
};

residency::Catalog make_catalog(std::int64_t storages) {
    static std::vector<std::byte> bytes(storage_bytes);
    const auto host = residency::HostBytes::borrow(bytes, residency::HostMemory::pinned);
    residency::CatalogBuilder builder;
    for (std::int64_t i = 0; i < storages; ++i) {
        builder.add("w" + std::to_string(i), residency::dtype::u8, {storage_bytes}, residency::HostSource{host, 0});
    }
    return builder.build();
}
template <class Weights>
Weights make_weights(Device& device, std::int64_t storages, std::int64_t places, bool scheduled) {
    const residency::Catalog catalog = make_catalog(storages);
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(static_cast<std::uint64_t>(places) * storage_bytes);
    if (scheduled) {
        residency::ScheduleBuilder builder{catalog};
        for (std::uint32_t i = 0; i < storages; ++i) { builder.step({WeightId{i}}); }
        options.schedule = builder.build();
    }
    return Weights{device, catalog, options};
}

using Cached = residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::Slab<Device>>;
using Ahead =
    residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, residency::pool::Slab<Device>>;

/// The device calls of one acquire + end.
void device_calls(benchmark::State& state) {
    Device device;
    for (auto _ : state) {
        benchmark::DoNotOptimize(device.is_capturing({}));
        benchmark::DoNotOptimize(device.is_capturing({}));
        benchmark::DoNotOptimize(device.record({}, {}));
    }
}
BENCHMARK(device_calls);

/// Storages that are there, in a budget that others have left them: a use is recorded at each end.
void acquire_end(benchmark::State& state) {
    Device device;
    auto weights = make_weights<Cached>(device, state.range(0), state.range(0) - 1, false);
    auto pass = weights.begin({});
    const auto there = static_cast<std::uint32_t>(state.range(0) - 1);
    for (std::uint32_t i = 0; i < there; ++i) { static_cast<void>(pass.acquire(WeightId{i})); }
    std::uint32_t at = 0;
    for (auto _ : state) {
        at = (at + 7919) % there;
        auto lease = pass.acquire(WeightId{at});
        benchmark::DoNotOptimize(lease.data(WeightId{at}));
    }
    if (weights.statistics().total.evictions != 0) { state.SkipWithError("something was evicted"); }
}
BENCHMARK(acquire_end)->Arg(100)->Arg(10000)->Arg(100000);

/// The steps of a schedule in order, half of which fits: what comes next is brought at each end.
void ahead(benchmark::State& state) {
    Device device;
    auto weights = make_weights<Ahead>(device, state.range(0), state.range(0) / 2, true);
    const auto steps = weights.schedule().steps();
    auto pass = weights.begin({});
    std::size_t at = 0;
    for (auto _ : state) {
        auto lease = pass.acquire(steps[at]);
        benchmark::DoNotOptimize(lease);
        at = at + 1 == steps.size() ? 0 : at + 1;
    }
}
BENCHMARK(ahead)->Arg(100)->Arg(10000)->Arg(100000);

/// Everything is there and stays: no use is recorded.
void acquire_end_resident(benchmark::State& state) {
    Device device;
    auto weights = make_weights<Cached>(device, state.range(0), state.range(0), false);
    auto pass = weights.begin({});
    const auto there = static_cast<std::uint32_t>(state.range(0));
    for (std::uint32_t i = 0; i < there; ++i) { static_cast<void>(pass.acquire(WeightId{i})); }
    std::uint32_t at = 0;
    for (auto _ : state) {
        at = (at + 7919) % there;
        auto lease = pass.acquire(WeightId{at});
        benchmark::DoNotOptimize(lease.data(WeightId{at}));
    }
}
BENCHMARK(acquire_end_resident)->Arg(100)->Arg(100000);

/// A cycle that does not fit: each access evicts one storage and fetches another.
void miss(benchmark::State& state) {
    Device device;
    auto weights = make_weights<Cached>(device, state.range(0), state.range(0) / 2, false);
    auto pass = weights.begin({});
    const auto storages = static_cast<std::uint32_t>(state.range(0));
    std::uint32_t at = 0;
    for (auto _ : state) {
        at = at + 1 == storages ? 0 : at + 1;
        auto lease = pass.acquire(WeightId{at});
        benchmark::DoNotOptimize(lease.data(WeightId{at}));
    }
}
BENCHMARK(miss)->Arg(100)->Arg(10000)->Arg(100000);

}  // namespace

BENCHMARK_MAIN();
