// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "residency/plan/held_between_passes.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/streaming.hpp"

namespace planned {

using namespace streaming;
using residency::Schedule;
using residency::WeightId;
using Weights = compositions::Planned;

inline constexpr std::uint64_t chunk = 4096;

inline residency::plan::Link link_of(const residency::LinkModel& model) {
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    return {model.to_device_bytes_per_second, seconds(model.call_latency), seconds(model.node_latency)};
}
template <class Composition = Weights>
typename Composition::Options options(std::uint64_t budget, Schedule schedule = {}) {
    typename Composition::Options result;
    result.budget = residency::Budget::bytes(budget);
    result.schedule = std::move(schedule);
    result.learn = false;                                             // a plan stays in force until a test replaces it
    result.policies.options.effort = residency::plan::Effort::quick;  // any plan will do
    result.policies.pool.chunk_bytes = chunk;
    result.policies.link = link_of(residency::links::h200_measured);
    result.policies.memory_bytes_per_second = residency::plan::default_memory_bytes_per_second;
    return result;
}
inline Weights make(Device& device, const Model& model, std::uint64_t budget, Schedule schedule = {}) {
    return must(Weights::try_create(device, model.catalog, options(budget, std::move(schedule))));
}

using Steps = std::vector<std::vector<std::uint32_t>>;

inline Schedule schedule_of(const Model& model, const Steps& steps, residency::Cycle cycle = residency::Cycle::cyclic,
                            std::chrono::nanoseconds compute = std::chrono::microseconds{2}) {
    residency::ScheduleBuilder builder{model.catalog};
    for (const auto& step : steps) {
        std::vector<WeightId> ids;
        for (const auto weight : step) { ids.push_back(WeightId{weight}); }
        builder.step(std::span<const WeightId>{ids}, compute);
    }
    return must(builder.try_build(cycle));
}

inline std::uint64_t used_bytes(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}

inline std::uint64_t total_calls(const Device& device) {
    std::uint64_t total = 0;
    for (const auto calls : device.statistics().calls) { total += calls; }
    return total;
}

/// What a pass of a plan brings: its bytes without the gaps between storages.
inline std::uint64_t bytes_of(const residency::plan::Plan& plan) {
    std::uint64_t bytes = 0;
    for (std::uint32_t s = 0; s < plan.storages(); ++s) { bytes += residency::testing::copied_of(plan, s); }
    return bytes;
}

using residency::plan::held_between_passes;
/// By chunk: whether it is the first that a pass needs or brings to its slot.
inline std::vector<bool> first_of_slots(const residency::plan::Plan& plan) {
    std::vector<bool> is_first;
    for (const auto presence : residency::testing::presence_of(plan)) {
        is_first.push_back(presence != residency::plan::Presence::absent);
    }
    return is_first;
}
inline std::uint64_t in_both(const std::vector<bool>& a, const std::vector<bool>& b) {
    std::uint64_t sum = 0;
    for (std::size_t c = 0; c < a.size(); ++c) { sum += a[c] && b[c] ? 1 : 0; }
    return sum;
}

/// Leases, reads and lets go of one step.
template <class Pass>
void run_step(Device& device, const Model& model, Pass& pass, const Schedule::Step& step, Stream stream) {
    auto lease = must(pass.try_acquire(step));
    for (const auto id : step.weights) { verify(device, model, lease, id, stream); }
}

/// A body that runs every step on one stream.
inline auto plain(Device& device, const Model& model, const Weights& weights, Stream stream) {
    return [&device, &model, &weights, stream](auto& pass) {
        for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
    };
}

/// A whole pass, with the counters of it alone.
inline residency::Counters counted_pass(Weights& weights, const Model& model, Stream stream) {
    run_pass(weights, model, stream);
    return weights.statistics().last_pass;
}

/// Passes until one moves what the plan says and misses nothing: at most two.
inline void expect_back_on_plan(Weights& weights, const Model& model, Stream stream) {
    run_pass(weights, model, stream);
    run_pass(weights, model, stream);
    for (int i = 0; i < 2; ++i) {
        const auto counters = counted_pass(weights, model, stream);
        CHECK(counters.demand_misses == 0);
        CHECK(counters.divergences == 0);
        CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
        CHECK(counters.calls == weights.plan().calls().size());
    }
}

/// What a Residency holds, by its own figures and by the device's, is inside its budget.
inline void expect_inside_budget(Device& device, const Weights& weights, std::uint64_t used_before) {
    const auto statistics = weights.statistics();
    CHECK(statistics.held_bytes <= statistics.budget_bytes);
    CHECK(used_bytes(device) - used_before == statistics.held_bytes);
}

/// Storages of up to a few chunks, some of them without bytes, and steps of one to three of them.
struct Random {
    std::vector<Spec> specs;
    Steps steps;
};
inline Random random_model(std::mt19937_64& random, std::size_t most_storages = 14,
                           std::uint64_t most_bytes = 6 * chunk) {
    Random result;
    const std::size_t storages = 1 + random() % most_storages;
    for (std::size_t i = 0; i < storages; ++i) {
        Spec spec;
        spec.bytes = random() % 9 == 0 ? random() % 300 : 1 + random() % most_bytes;
        if (random() % 9 == 0) { spec.placement = residency::Placement::resident; }
        if (random() % 14 == 0) { spec.placement = residency::Placement::host; }
        result.specs.push_back(spec);
    }
    const std::size_t steps = 1 + random() % 12;
    for (std::size_t i = 0; i < steps; ++i) {
        std::vector<std::uint32_t> step;
        for (std::uint64_t k = 1 + random() % 3; k > 0; --k) {
            const auto next = random() % 4 == 0 ? random() % storages : (i + k) % storages;
            step.push_back(static_cast<std::uint32_t>(next));
        }
        result.steps.push_back(std::move(step));
    }
    return result;
}

}  // namespace planned
