// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/plan_campaign/schedules.hpp"
#include "residency/core/engine/captured_pass.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/residency.hpp"
#include "residency/fwd.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/plan/problem.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency::campaign {

/// What a Residency knows of the compute times.
enum class Times : std::uint8_t {
    declared,  ///< all of them
    assumed,   ///< none, and it learns none
    learned,   ///< none, and it learns
};

/// Passes of a problem on a simulated device whose calls take no time, with kernels that take what the problem says.
struct Simulated {
    double seconds_per_pass = 0;
    double fetched_bytes_per_pass = 0;
    LearningReport learning;
    double bound_seconds = 0;  ///< as the Residency reports it
    std::size_t ranges = 0;    ///< of a pass, by the plan in force at the end
};

/// Passes one after another, each of the first `steps` steps.
struct Passes {
    int count = 0;
    std::uint32_t steps = UINT32_MAX;
};

/// How passes are run.
enum class Launches : std::uint8_t {
    steps,   ///< a lease and a kernel for each step
    ranges,  ///< for each range of Residency::ranges()
    graph,   ///< those that count as a graph of steps, captured after the warm-up
};

/// `warm_up`: passes before those that count. The host waits after each of them, and not in the eight that count, which have the steps of
/// the last ones.
inline Result<Simulated> simulate(const plan::Problem& problem, Times times,
                                  std::initializer_list<Passes> warm_up = {{8}}, Launches launches = Launches::steps) {
    constexpr int passes = 8;
    using Device = SimulatedDevice;
    Device::Config config;
    config.memory_bytes = std::uint64_t{1} << 42;
    config.real_bytes = config.checker = false;
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = std::chrono::nanoseconds{0};
    config.link.to_device_bytes_per_second = problem.link.bytes_per_second;
    const auto nanoseconds = [](double seconds) { return std::chrono::nanoseconds{std::llround(seconds * 1e9)}; };
    config.link.call_latency = nanoseconds(problem.link.latency_seconds);
    config.link.node_latency = nanoseconds(problem.link.node_latency_seconds);
    Device device{config};

    std::uint64_t total = 0;
    for (const std::uint64_t bytes : problem.storage_bytes) { total += bytes; }
    auto host = device.allocate_host(total);
    if (!host) { return host.error(); }
    const auto held = HostBytes::borrow({static_cast<const std::byte*>(*host), total}, HostMemory::pinned);
    CatalogBuilder builder;
    std::uint64_t offset = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        const std::uint64_t bytes = problem.storage_bytes[s];
        builder.add("w" + std::to_string(s), dtype::u8, {bytes}, HostSource{held, offset});
        offset += bytes;
    }
    auto catalog = builder.try_build();
    if (!catalog) { return catalog.error(); }
    ScheduleBuilder steps{*catalog};
    std::vector<WeightId> ids;
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        ids.clear();
        for (const std::uint32_t s : problem.reads(i)) { ids.push_back(WeightId{s}); }
        const auto compute = nanoseconds(problem.compute(i));
        steps.step(std::span<const WeightId>{ids},
                   times == Times::declared ? ScheduleBuilder::Compute{compute} : std::nullopt);
    }
    auto schedule = steps.try_build();
    if (!schedule) { return schedule.error(); }

    Simulated result;
    auto stream = device.create_stream();
    if (!stream) { return stream.error(); }
    {
        Planned<Device>::Options options;
        options.budget = Budget::bytes(problem.budget_bytes);
        options.schedule = std::move(*schedule);
        options.learn = times == Times::learned;
        options.policies.link = problem.link;
        auto weights = Planned<Device>::try_create(device, *catalog, std::move(options));
        if (!weights) { return weights.error(); }
        using Weights = Planned<Device>;
        const auto run_steps = [&](Weights::Pass& pass, std::uint32_t end) -> Status {
            std::size_t next_range = 0;
            for (std::uint32_t first = 0, last = 1; first < end; first = last++) {
                if (launches == Launches::ranges) { last = (std::min)(end, weights->ranges()[next_range++].last); }
                auto lease = launches == Launches::ranges ? pass.try_acquire(first, last)
                                                          : pass.try_acquire(weights->schedule()[first]);
                if (!lease) { return lease.error(); }
                Device::Kernel kernel;
                for (std::uint32_t i = first; i < last; ++i) { kernel.duration += nanoseconds(problem.compute(i)); }
                if (auto launched = device.launch(*stream, std::move(kernel)); !launched) { return launched; }
            }
            return {};
        };
        const auto run_pass = [&](std::uint32_t most_steps) -> Status {
            auto pass = weights->try_begin(*stream);
            if (!pass) { return pass.error(); }
            if (auto ran = run_steps(*pass, (std::min)(problem.steps(), most_steps)); !ran) { return ran; }
            return pass->try_end();
        };
        for (const Passes& some : warm_up) {
            for (int i = 0; i < some.count; ++i) {
                if (auto ran = run_pass(some.steps); !ran) { return ran.error(); }
                if (auto done = device.synchronize(*stream); !done) { return done.error(); }
            }
        }
        std::optional<CapturedPass<Device>> graph;
        if (launches == Launches::graph) {
            auto captured =
                weights->try_capture(*stream, [&](Weights::Pass& pass) { return run_steps(pass, problem.steps()); });
            if (!captured) { return captured.error(); }
            graph = std::move(*captured);
            for (int i = 0; i < 2; ++i) {
                if (auto launched = graph->try_launch(*stream); !launched) { return launched.error(); }
            }
            if (auto done = device.synchronize(*stream); !done) { return done.error(); }
        }
        const auto begin = device.host_time();
        const auto before = weights->statistics().total.fetched_bytes;
        for (int i = 0; i < passes; ++i) {
            auto ran = graph ? graph->try_launch(*stream) : run_pass(std::data(warm_up)[warm_up.size() - 1].steps);
            if (!ran) { return ran.error(); }
        }
        if (auto done = device.synchronize(*stream); !done) { return done.error(); }
        const auto statistics = weights->statistics();
        result.seconds_per_pass = std::chrono::duration<double>(device.host_time() - begin).count() / passes;
        result.fetched_bytes_per_pass = static_cast<double>(statistics.total.fetched_bytes - before) / passes;
        result.learning = statistics.learning;
        result.ranges = weights->ranges().size();
        result.bound_seconds =
            std::chrono::duration<double>(statistics.bound.value_or(std::chrono::nanoseconds{})).count();
        if (auto drained = weights->try_drain(); !drained) { return drained.error(); }
    }
    if (auto destroyed = device.destroy_stream(*stream); !destroyed) { return destroyed.error(); }
    return result;
}

}  // namespace residency::campaign
