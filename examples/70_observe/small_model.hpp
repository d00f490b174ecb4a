// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

/// Sixteen layers of 4 MiB, on a simulated device.
class SmallModel {
public:
    using Weights = residency::Planned<residency::SimulatedDevice>;

    SmallModel() {
        residency::unwrap(gpu.pin(host_.data(), host_.size()));
        const auto held = residency::HostBytes::borrow(host_, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::uint32_t i = 0; i < layers; ++i) {
            builder.add("layers." + std::to_string(i), residency::dtype::u8, {layer_bytes},
                        residency::HostSource{held, i * layer_bytes});
        }
        catalog = builder.build();
        residency::ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) {
            const residency::WeightId weight{i};
            steps.step({&weight, 1}, layer_time, "layer " + std::to_string(i));
        }
        schedule = steps.build();
    }
    SmallModel(const SmallModel&) = delete;
    SmallModel& operator=(const SmallModel&) = delete;
    ~SmallModel() {
        residency::unwrap(gpu.destroy_stream(stream));
        residency::unwrap(gpu.unpin(host_.data()));
    }

    /// Every layer, in order.
    template <class Pass>
    void run(Pass& pass) {
        for (const auto& step : schedule) {
            const auto lease = pass.acquire(step);
            const auto bytes = lease.bytes(step.weights.front());
            residency::unwrap(gpu.launch(stream, {.name = "layer",
                                                  .duration = layer_time,
                                                  .reads = {{bytes.data(), bytes.size()}},
                                                  .writes = {},
                                                  .body = {}}));
        }
    }

private:
    static constexpr std::uint32_t layers = 16;
    static constexpr std::uint64_t layer_bytes = std::uint64_t{4} << 20;
    static constexpr std::chrono::microseconds layer_time{20};

    std::vector<std::byte> host_ = std::vector<std::byte>(layers * layer_bytes);

public:
    residency::SimulatedDevice gpu;
    residency::SimulatedDevice::Stream stream = residency::unwrap(gpu.create_stream());
    residency::Catalog catalog;
    residency::Schedule schedule;
};
