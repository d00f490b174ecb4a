// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What the policies themselves cost: host time per access, by number of storages. Accesses are skewed (Zipf, exponent 0.9), a
// quarter of the storages fits; a miss includes the evictions that make room for it. The counter `access` is the time of one.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/scheduled.hpp"

using namespace residency;

namespace {

struct Workload {
    std::vector<std::uint64_t> bytes;
    std::vector<std::uint32_t> layers;
    std::vector<StorageId> accesses;
    UseOrder order;
    std::uint64_t capacity = 0;

    /// `in_layers`: each layer's storages in turn, 8 accesses a layer.
    Workload(std::uint32_t storages, std::size_t count, bool in_layers) {
        constexpr std::uint32_t layer_count = 48;
        std::mt19937_64 random{storages};
        std::vector<double> cumulated(storages);
        double sum = 0;
        std::uint64_t total = 0;
        for (std::uint32_t i = 0; i < storages; ++i) {
            cumulated[i] = sum += std::pow(i + 1, -0.9);
            bytes.push_back(4096 * (1 + random() % 64));
            layers.push_back(i % layer_count);
            total += bytes.back();
        }
        capacity = total / 4;
        std::vector<std::uint32_t> names(storages);
        for (std::uint32_t i = 0; i < storages; ++i) { names[i] = i; }
        std::shuffle(names.begin(), names.end(), random);
        for (std::size_t i = 0; i < count; ++i) {
            const double u = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
            const auto found = std::lower_bound(cumulated.begin(), cumulated.end(), u) - cumulated.begin();
            const auto rank = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(found, storages - 1));
            const auto layer = static_cast<std::uint32_t>(i / 8 % layer_count);
            accesses.push_back(
                StorageId{in_layers ? std::min(rank / layer_count * layer_count + layer, storages - 1) : names[rank]});
        }
        std::vector<std::uint64_t> offsets(count + 1);
        for (std::size_t i = 0; i <= count; ++i) { offsets[i] = i; }
        order = *UseOrder::try_from(offsets, accesses, storages, Cycle::one_shot);
    }
};

template <class E>
void evictor(benchmark::State& state) {
    const Workload work{static_cast<std::uint32_t>(state.range(0)), static_cast<std::size_t>(state.range(1)),
                        std::is_same_v<E, evict::ExpectedUse>};
    std::uint64_t misses = 0;
    for (auto _ : state) {
        E policy;
        misses = lab::trace::replay_cache(work.accesses, {work.bytes, work.capacity, &work.order, work.layers}, policy)
                     ->misses;
    }
    const auto accesses = static_cast<double>(work.accesses.size());
    state.counters["access"] =
        benchmark::Counter(accesses, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
    state.counters["misses %"] = 100 * static_cast<double>(misses) / accesses;
}

/// One proposal a step on a cycle of one storage a step, everything there, as in steady state.
template <class P>
void prefetcher(benchmark::State& state) {
    const auto storages = static_cast<std::uint32_t>(state.range(0));
    const std::vector<std::uint64_t> bytes(storages, 4096);
    std::vector<std::uint64_t> offsets{0};
    std::vector<StorageId> steps;
    for (std::uint32_t i = 0; i < storages; ++i) {
        steps.push_back(StorageId{i});
        offsets.push_back(steps.size());
    }
    const UseOrder order = *UseOrder::try_from(offsets, steps, storages, Cycle::cyclic);
    P policy;
    if (!policy.attach({bytes, 4096, &order})) { return state.SkipWithError("attach"); }
    StepIndex now = 0;
    std::uint64_t offered = 0;
    for (auto _ : state) {
        if constexpr (P::interruptible) {
            prefetch::Hint hints[8];
            for (std::uint32_t i = 0; i < 8; ++i) {
                hints[i] = {StorageId{static_cast<std::uint32_t>((now * 8 + i * 7) % storages)},
                            1.0F / static_cast<float>(i + 1), now + 1};
            }
            benchmark::DoNotOptimize(policy.hint(hints).has_value());
        }
        policy.propose(now++, [&](StorageId, StepIndex) { return ++offered, true; });
    }
    benchmark::DoNotOptimize(offered);
}

void by_storages(benchmark::internal::Benchmark* it) {
    it->ArgsProduct({{1000, 10000, 100000, 1000000}, {1000000}})->Unit(benchmark::kMillisecond);
}
void long_trace(benchmark::internal::Benchmark* it) { it->Args({10000, 10000000})->Unit(benchmark::kMillisecond); }

}  // namespace

BENCHMARK(evictor<evict::Lru>)->Apply(by_storages)->Apply(long_trace);
BENCHMARK(evictor<evict::Fifo>)->Apply(by_storages);
BENCHMARK(evictor<evict::Lfu>)->Apply(by_storages);
BENCHMARK(evictor<evict::Sieve>)->Apply(by_storages)->Apply(long_trace);
BENCHMARK(evictor<evict::S3Fifo>)->Apply(by_storages)->Apply(long_trace);
BENCHMARK(evictor<evict::Gdsf>)->Apply(by_storages);
BENCHMARK(evictor<evict::ExpectedUse>)->Apply(by_storages);
BENCHMARK(evictor<evict::StaticSplit>)->Apply(by_storages);
BENCHMARK(evictor<evict::Scheduled>)->Apply(by_storages);
BENCHMARK(evictor<evict::Belady>)->Apply(by_storages);
BENCHMARK(prefetcher<prefetch::Lookahead<4>>)->RangeMultiplier(10)->Range(1000, 1000000);
BENCHMARK(prefetcher<prefetch::Scheduled>)->RangeMultiplier(10)->Range(1000, 1000000);
BENCHMARK(prefetcher<prefetch::Hinted>)->RangeMultiplier(10)->Range(1000, 1000000);

BENCHMARK_MAIN();
