// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A program with one composition: two passes over four weights, half of which fit. ON_CUDA: on a GPU, not simulated.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

#include "residency/planned.hpp"
#ifdef ON_CUDA
#include "residency/device/cuda.hpp"
#else
#include "residency/simulation/simulated_device.hpp"
#endif

int main() {
    using namespace residency;
    constexpr std::uint64_t weight_bytes = std::uint64_t{4} << 20;
#ifdef ON_CUDA
    CudaDevice device{0};
#else
    SimulatedDevice device;
#endif
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(4 * weight_bytes)));
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 4; ++i) {
        builder.add(std::to_string(i), dtype::u8, {weight_bytes}, {host + i * weight_bytes, weight_bytes},
                    HostMemory::pinned);
    }
    const Catalog catalog = builder.build();
    ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i < 4; ++i) { steps.step({WeightId{i}}); }
    const auto stream = unwrap(device.create_stream());
    {
        Planned<decltype(device)> weights{device, catalog, {.budget = Budget::parse("50%"), .schedule = steps.build()}};
        for (int token = 0; token < 2; ++token) {
            auto pass = weights.begin(stream);
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.acquire(step);
                if (lease.data(step.weights[0]) == nullptr) { return 1; }
            }
        }
        weights.drain();
        std::cout << weights.statistics().last_pass.fetched_bytes << " bytes copied in the last pass\n";
    }
    unwrap(device.destroy_stream(stream));
    unwrap(device.deallocate_host(host));
}
