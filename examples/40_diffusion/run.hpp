// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "denoiser.hpp"
#include "drawing.hpp"
#include "residency/planned.hpp"

namespace diffusion {

/// The blocks in pinned memory, in the order of use.
struct Model {
    residency::Catalog catalog;
    residency::Schedule schedule;
};
template <class Backend>
Model make_model(Backend& backend, const Sizes& sizes) {
    std::size_t floats = 0;
    for (const std::uint32_t rows : inner) { floats += std::size_t{2} * rows * sizes.width; }
    const std::span<float> weights{backend.memory().template pinned<float>(floats), floats};
    std::mt19937 random{3};
    std::ranges::generate(weights, [&] { return float(random() >> 8U) / 16777216.0F - 0.5F; });
    const auto held = residency::HostBytes::borrow(std::as_bytes(weights), residency::HostMemory::pinned);
    std::uint64_t next_bytes = 0;
    residency::CatalogBuilder builder;
    for (std::size_t i = 0; i < inner.size(); ++i) {
        for (const char* name : {".up", ".down"}) {
            builder.add("block." + std::to_string(i) + name, residency::dtype::f32, {inner[i], sizes.width},
                        residency::HostSource{held, next_bytes});
            next_bytes += std::uint64_t{inner[i]} * sizes.width * sizeof(float);
        }
    }
    Model model{.catalog = builder.build(), .schedule = {}};
    residency::ScheduleBuilder blocks{model.catalog};
    for (std::uint32_t i = 0; i < inner.size(); ++i) {
        blocks.step({residency::WeightId{2 * i}, residency::WeightId{2 * i + 1}});
    }
    model.schedule = blocks.build();
    return model;
}

/// Denoises one image with a share of the weights on the device, then the same with all others.
template <class Backend>
Results run_all(Backend& backend, const Sizes& sizes) {
    using residency::WeightId;
    const Model model = make_model(backend, sizes);
    const std::size_t count = std::size_t{sizes.pixels} * sizes.width;
    auto* const image = backend.memory().template on_device<float>(count);
    auto* const between =
        backend.memory().template on_device<float>(std::size_t{sizes.pixels} * *std::ranges::max_element(inner));
    auto* const noise = backend.memory().template pinned<float>(count);
    auto* const result = backend.memory().template pinned<float>(count);
    std::mt19937 random{4};
    std::generate_n(noise, count, [&] { return float(random() >> 8U) / 16777216.0F - 0.5F; });

    Results results;
    results.device = backend.device().name();
    results.bytes = model.catalog.total_bytes();
    results.smallest_bytes = std::uint64_t{8} * inner.front() * sizes.width;
    results.largest_bytes = std::uint64_t{8} * *std::ranges::max_element(inner) * sizes.width;
    std::vector<float> expected;
    for (const std::uint32_t percent : {100U, 75U, 50U, 35U}) {
        // A budget of all weights and what the device rounds up.
        residency::Planned<typename Backend::Device> weights{
            backend.device(),
            model.catalog,
            {.budget = residency::Budget::percent_of_weights(percent == 100 ? 1000 : percent),
             .schedule = model.schedule,
             .learn = true}};
        backend.memory().copy(noise, image, count, backend.stream());
        std::vector<double> times;
        for (std::uint32_t step = 0; step < steps; ++step) {
            if (percent == 50 && step + 1 == steps) { backend.recorded().begin(weights); }
            auto pass = weights.begin(backend.stream());
            for (const auto& each : weights.schedule()) {
                const auto lease = pass.acquire(each);
                const auto up = lease.template span<float>(each.weights[0]);
                const auto down = lease.template span<float>(each.weights[1]);
                const auto rows = std::uint32_t(up.size() / sizes.width);
                backend.launch("up", Product{image, up.data(), between, sizes.pixels, sizes.width, rows, true});
                backend.launch("down", Product{between, down.data(), image, sizes.pixels, rows, sizes.width, false});
            }
            pass.end();
            residency::unwrap(backend.device().synchronize(backend.stream()));
            // The first ones measure the blocks; then the plan is made for these times.
            if (step >= steps / 2) { times.push_back(double(weights.statistics().pass_time->count()) / 1e6); }
        }
        backend.recorded().end(weights);
        if (percent == 50) { results.timeline = drawing_of(backend.recorded().timeline()); }
        backend.memory().copy(image, result, count, backend.stream());
        weights.drain();
        if (weights.failure()) { residency::throw_error(*weights.failure()); }

        if (expected.empty()) { expected.assign(result, result + count); }
        std::ranges::sort(times);
        results.outcomes.push_back(
            {percent, weights.statistics(), times[times.size() / 2],
             std::memcmp(expected.data(), result, count * sizeof(float)) == 0 &&
                 std::all_of(result, result + count, [](float value) { return std::isfinite(value); })});
    }
    results.reports = backend.reports();
    return results;
}

}  // namespace diffusion
