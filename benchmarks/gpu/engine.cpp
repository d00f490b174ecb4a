// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Decode of a small engine, 24 layers of 22.5 MB and a classifier, the host waiting once per pass: passes with compute times that are
// assumed, learned after a prompt that leaves the classifier out, and declared; and the host's time in the library per step.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using residency::Catalog;
using residency::CudaDevice;
using residency::Schedule;
using residency::WeightId;
using Weights = residency::Planned<CudaDevice>;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t layer_bytes = 22553600, classifier_bytes = 65536000;
constexpr std::uint32_t layers = 24, steps = layers + 1;
constexpr std::uint64_t total_bytes = layers * layer_bytes + classifier_bytes;
constexpr std::uint64_t bytes_of(std::uint32_t step) { return step < layers ? layer_bytes : classifier_bytes; }
constexpr std::chrono::microseconds time_of(std::uint32_t step) {
    return std::chrono::microseconds{step < layers ? 29 : 60};
}

struct Model {
    std::byte* host;
    Catalog catalog;

    explicit Model(CudaDevice& device)
        : host{static_cast<std::byte*>(BENCH_RESULT(device.allocate_host(total_bytes)))} {
        const auto held = residency::HostBytes::borrow({host, total_bytes}, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::uint32_t i = 0; i < steps; ++i) {
            builder.add("w" + std::to_string(i), residency::dtype::u8, {bytes_of(i)},
                        residency::HostSource{held, i * layer_bytes});
        }
        catalog = BENCH_RESULT(builder.try_build());
    }
    [[nodiscard]] Schedule schedule(bool declares_times) const {
        residency::ScheduleBuilder builder{catalog};
        for (std::uint32_t i = 0; i < steps; ++i) {
            builder.step({WeightId{i}},
                         declares_times ? residency::ScheduleBuilder::Compute{time_of(i)} : std::nullopt);
        }
        return BENCH_RESULT(builder.try_build());
    }
};

Weights make(CudaDevice& device, const Model& model, int percent, bool declares_times, bool learn) {
    Weights::Options options;
    options.budget = residency::Budget::bytes(total_bytes / 100 * static_cast<std::uint64_t>(percent));
    options.schedule = model.schedule(declares_times);
    options.learn = learn;
    return BENCH_RESULT(Weights::try_create(device, model.catalog, std::move(options)));
}

/// Enqueues a pass of the first `count` steps, and returns the seconds that the host spent in the library.
double enqueue_pass(Weights& weights, std::uint32_t count, cudaStream_t stream) {
    Clock::duration inside{};
    const auto timed = [&](auto&& call) {
        const auto begin = Clock::now();
        auto result = call();
        inside += Clock::now() - begin;
        return result;
    };
    auto pass = BENCH_RESULT(timed([&] { return weights.try_begin(stream); }));
    for (std::uint32_t i = 0; i < count; ++i) {
        auto lease = BENCH_RESULT(timed([&] { return pass.try_acquire(weights.schedule()[i]); }));
        BENCH_CUDA(gpu::launch_spin(time_of(i), stream));
        timed([&] {
            lease.end();
            return 0;
        });
    }
    BENCH_RESULT(timed([&] { return pass.try_end(); }));
    return std::chrono::duration<double>(inside).count();
}

struct Measured {
    double milliseconds = 0;       // per pass, the host's wait included
    double microseconds_host = 0;  // per step, in the library
    residency::Statistics statistics;
};
Measured measure(Weights& weights, bool has_prompt, cudaStream_t stream) {
    const auto run = [&](std::uint32_t count) {
        const double inside = enqueue_pass(weights, count, stream);
        BENCH_CUDA(cudaStreamSynchronize(stream));
        return inside;
    };
    run(steps);
    for (int i = 0; has_prompt && i < 16; ++i) { enqueue_pass(weights, layers, stream); }
    for (int i = 0; i < 20; ++i) { run(steps); }
    std::vector<double> passes, inside;
    for (int i = 0; i < 61; ++i) {
        const auto begin = Clock::now();
        inside.push_back(run(steps) * 1e6 / steps);
        passes.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    }
    if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
    return {bench::median(passes), bench::median(inside), weights.statistics()};
}

/// Host microseconds per step of the driver calls that a step makes, beside an idle GPU: copies of `bytes` in all in `calls` calls per
/// pass, each with an event and a wait; per step a use, its event, and the questions whether a stream is captured.
double driver_alone(CudaDevice& device, const Model& model, std::uint64_t calls, std::uint64_t bytes,
                    cudaStream_t stream) {
    if (calls == 0) { return 0; }
    const auto copy_stream = BENCH_RESULT(device.create_stream());
    const std::uint64_t piece = bytes / calls;
    void* const at = BENCH_RESULT(device.allocate(piece));
    std::vector<cudaEvent_t> events(2 * (calls + steps));
    for (auto& event : events) { BENCH_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
    std::vector<double> rounds;
    for (int round = 0; round < 31; ++round) {
        std::size_t event = 0;
        std::uint64_t call = 0;
        rounds.push_back(bench::host_seconds([&] {
                             for (std::uint32_t i = 0; i < steps; ++i) {
                                 cudaStreamCaptureStatus status{};
                                 for (int k = 0; k < 3; ++k) { BENCH_CUDA(cudaStreamIsCapturing(stream, &status)); }
                                 for (; call < (i + 1) * calls / steps; ++call) {
                                     BENCH_CUDA(cudaMemcpyAsync(at, model.host, piece, cudaMemcpyDefault, copy_stream));
                                     BENCH_CUDA(cudaEventRecord(events[event++], copy_stream));
                                 }
                                 if (event > 0) { BENCH_CUDA(cudaStreamWaitEvent(stream, events[event - 1], 0)); }
                                 BENCH_CUDA(cudaEventRecord(events[event++], stream));
                                 BENCH_CUDA(cudaStreamWaitEvent(copy_stream, events[event - 1], 0));
                             }
                         }) *
                         1e6 / steps);
        BENCH_CUDA(cudaStreamSynchronize(copy_stream));
        BENCH_CUDA(cudaStreamSynchronize(stream));
    }
    for (const auto event : events) { BENCH_CUDA(cudaEventDestroy(event)); }
    BENCH_RESULT(device.deallocate(at));
    BENCH_RESULT(device.destroy_stream(copy_stream));
    return bench::median(rounds);
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-engine", argc, argv};
    const Model model{device};
    const auto stream = BENCH_RESULT(device.create_stream());
    records.add("engine.memory_rate", BENCH_RESULT(residency::try_measure_memory(device)) / 1e9, "GB/s");
    for (const int percent : {100, 90, 75, 50, 25}) {
        const std::string name = "engine." + std::to_string(percent) + "%.";
        auto with_times = make(device, model, percent, true, false);
        const Measured declared = measure(with_times, false, stream);
        auto without_times = make(device, model, percent, false, false);
        const Measured assumed = measure(without_times, false, stream);
        auto learning = make(device, model, percent, false, true);
        const Measured learned = measure(learning, true, stream);
        records.add(name + "declared.pass", declared.milliseconds, "ms");
        records.add(name + "assumed.pass", assumed.milliseconds, "ms");
        records.add(name + "learned.pass", learned.milliseconds, "ms");
        records.add(name + "assumed.over_declared", assumed.milliseconds / declared.milliseconds, "ratio");
        records.add(name + "learned.over_declared", learned.milliseconds / declared.milliseconds, "ratio", "<= 1.02");
        const auto bound_ms = [](const Measured& of) {
            return of.statistics.bound ? std::chrono::duration<double, std::milli>(*of.statistics.bound).count() : 0.0;
        };
        records.add(name + "learned.bound", bound_ms(learned), "ms");
        records.add(name + "declared.bound", bound_ms(declared), "ms");
        records.add(name + "host_per_step", declared.microseconds_host, "us", "<= 10");
        const auto& pass = declared.statistics.last_pass;
        records.add(name + "driver_alone_per_step", driver_alone(device, model, pass.calls, pass.fetched_bytes, stream),
                    "us");
        records.add(name + "copy_calls_per_pass", static_cast<double>(pass.calls), "calls");
        std::printf("%d%%: %s\n", percent, describe(learned.statistics.learning).c_str());
        for (Weights* each : {&with_times, &without_times, &learning}) { BENCH_RESULT(each->try_drain()); }
    }
    BENCH_RESULT(device.destroy_stream(stream));
    BENCH_RESULT(device.deallocate_host(model.host));
    return 0;
}
