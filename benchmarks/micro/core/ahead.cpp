// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstddef>

#include "core.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/scheduled.hpp"

namespace core { namespace {

using Ahead =
    residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, residency::pool::Slab<Device>>;

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

}}  // namespace core
