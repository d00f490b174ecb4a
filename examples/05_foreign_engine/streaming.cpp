// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What the engine gained: weights inside a budget. The one file of the program that needs C++20.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "residency/host/loading.hpp"
#include "residency/planned.hpp"
#ifdef ON_CUDA
#include "cuda/gpu.hpp"
#include "residency/device/cuda.hpp"
#else
#include "simulated/gpu.hpp"
#endif

namespace engine {
namespace {

using namespace residency;
#ifdef ON_CUDA
using Gpu = CudaDevice;
#else
using Gpu = SimulatedDevice;
#endif
using Weights = Planned<Gpu>;

struct Streaming {
#ifdef ON_CUDA
    Gpu device = unwrap(Gpu::try_open(0));
    Gpu& gpu = device;
    Gpu::Stream stream = gpu_stream();
#else
    Gpu& gpu = simulated_gpu();
    Gpu::Stream stream = simulated_stream();
#endif
    std::optional<Weights> weights;
};
std::optional<Streaming> streaming;

}  // namespace

void weights_open(const char* path, const WeightPlace* places, std::uint32_t count, std::uint32_t steps) {
    streaming.emplace();
    CatalogBuilder builder;
    std::vector<std::vector<WeightId>> reads(steps);
    std::vector<WeightId> on_host;
    for (const WeightPlace& place : std::span{places, count}) {
        const WeightId id = builder.add(place.name, path, place.offset, place.bytes);
        reads[place.step].push_back(id);
        if (place.on_host) { on_host.push_back(id); }
    }
    Catalog catalog = unwrap(unwrap(builder.try_build()).try_with_placement(on_host, Placement::host));
    catalog = unwrap(host::try_load(streaming->gpu, catalog)).catalog;

    ScheduleBuilder schedule{catalog};
    for (const auto& step : reads) { schedule.step(step); }
    Weights::Options options;
    options.budget = Budget::percent_of_weights(100);
    options.schedule = unwrap(schedule.try_build());
#ifndef ON_CUDA
    options.policies.pool.chunk_bytes = simulated_chunk_bytes;
#endif
    streaming->weights.emplace(unwrap(Weights::try_create(streaming->gpu, catalog, std::move(options))));
}

void weights_close() { streaming.reset(); }

void weights_set_budget(const char* text) {
    static_cast<void>(unwrap(streaming->weights->try_set_budget(unwrap(Budget::try_parse(text)))));
}

BudgetFigures weights_figures() {
    const Weights& weights = *streaming->weights;
    const Statistics statistics = weights.statistics();
    return {statistics.budget_bytes,
            statistics.held_bytes,
            statistics.last_pass.fetched_bytes,
            weights.plan().bound_seconds(),
            weights.plan().latency_floor_seconds(),
            static_cast<std::uint32_t>(weights.ranges().size())};
}

void* weights_address(std::uint32_t weight) { return streaming->weights->address(WeightId{weight}); }
std::uint64_t weights_generation() { return streaming->weights->generation(); }

void weights_pass(std::uint32_t steps, void (*run)(void* context, std::uint32_t first, std::uint32_t last),
                  void* context) {
    auto pass = unwrap(streaming->weights->try_begin(streaming->stream));
    for (const StepRange range : streaming->weights->ranges()) {
        if (range.first >= steps) { break; }
        const std::uint32_t last = std::min(range.last, steps);  // a prompt's tokens end before the classifier
        const auto lease = unwrap(pass.try_acquire(range.first, last));
        run(context, range.first, last);
    }
    unwrap(pass.try_end());
}

}  // namespace engine
