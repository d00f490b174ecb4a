// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What the core itself costs on the host, on a device whose calls do nothing: acquire + end of a storage that is there, beside
// the bare calls that it makes; the same with many storages; and an access that has to evict and to fetch.
#include "core.hpp"

#include <benchmark/benchmark.h>

namespace core { namespace {

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

}}  // namespace core

BENCHMARK_MAIN();
