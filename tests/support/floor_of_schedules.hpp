// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random models at the floor of their schedules (C9), on any device.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"

namespace support {

/// Eight weights of 1 to 90 MiB, as a transformer's, and eight steps that read one to three of them.
struct FloorModel {
    static constexpr std::size_t weights = 8, steps = 8;
    static constexpr std::uint64_t unit_bytes = std::uint64_t{1} << 20U, largest_bytes = 90 * unit_bytes;

    residency::Catalog catalog;
    residency::Schedule schedule;

    /// `host` holds weights * largest_bytes bytes.
    [[nodiscard]] static residency::Result<FloorModel> try_make(const std::shared_ptr<const residency::HostBytes>& host,
                                                                std::uint64_t seed) {
        std::mt19937_64 random{seed};
        residency::CatalogBuilder builder;
        std::uint64_t offset = 0;
        for (std::size_t i = 0; i < weights; ++i) {
            const std::uint64_t bytes = (1 + random() % 90) * unit_bytes;
            residency::StorageOptions options;
            options.source = residency::HostSource{host, offset};
            offset += bytes;
            builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {bytes},
                               builder.add_storage(bytes, options));
        }
        auto catalog = builder.try_build();
        if (!catalog) { return catalog.error(); }
        residency::ScheduleBuilder order{*catalog};
        const auto any = [&] { return residency::WeightId{static_cast<std::uint32_t>(random() % weights)}; };
        for (std::size_t i = 0; i < steps; ++i) {
            const auto a = any(), b = any(), c = any();
            order.step({a, b, c});
        }
        auto schedule = order.try_build();
        if (!schedule) { return schedule.error(); }
        return FloorModel{std::move(*catalog), std::move(*schedule)};
    }
};

/// Runs `passes` passes of a model at the floor of its budget, nothing leased beside a step. Empty, or what was refused.
/// `read(lease, step)` is called for each step.
template <class Weights, class Read>
[[nodiscard]] std::string run_at_floor(typename Weights::Device& device, const FloorModel& model,
                                       typename Weights::Stream stream, int passes, Read&& read) {
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(0);
    options.schedule = model.schedule;
    auto made = Weights::try_create(device, model.catalog, std::move(options));
    if (!made) { return "construction: " + made.error().message(); }
    if (made->budget().bytes != made->budget().floor_bytes) { return "the budget is not the floor"; }
    for (int i = 0; i < passes; ++i) {
        auto pass = made->try_begin(stream);
        if (!pass) { return "begin: " + pass.error().message(); }
        for (const residency::Schedule::Step& step : made->schedule()) {
            auto lease = pass->try_acquire(step);
            if (!lease) { return "step " + std::to_string(step.position) + ": " + lease.error().message(); }
            read(*lease, step);
        }
        if (auto ended = pass->try_end(); !ended) { return "end: " + ended.error().message(); }
    }
    if (auto drained = made->try_drain(); !drained) { return "drain: " + drained.error().message(); }
    return {};
}

}  // namespace support
