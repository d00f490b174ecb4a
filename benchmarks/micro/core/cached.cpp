// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>

#include "core.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace core { namespace {

using Cached = residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::Slab<Device>>;

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

}}  // namespace core
