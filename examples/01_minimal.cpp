// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A file, a budget, a loop: minimal model.safetensors 50%
#include <iostream>

#include "residency/format/open.hpp"
#include "residency/host/loading.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#ifdef ON_CUDA
#include "residency/device/cuda.hpp"
#endif

int main(int argc, char** argv) try {
    using namespace residency;
    if (argc != 3) { return std::cerr << "usage: minimal MODEL BUDGET, such as model.safetensors 50%\n", 2; }
#ifdef ON_CUDA
    CudaDevice device{0};
#else
    SimulatedDevice device;
#endif
    const Catalog catalog = host::load(device, format::read_model(argv[1]).catalog()).catalog;
    ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i < catalog.weights().size(); ++i) { steps.step({WeightId{i}}); }
    Planned<decltype(device)> weights{device, catalog, {.budget = Budget::parse(argv[2]), .schedule = steps.build()}};
    const auto stream = unwrap(device.create_stream());
    for (int token = 0; token < 10; ++token) {
        auto pass = weights.begin(stream);
        for (const auto& step : weights.schedule()) {
            const auto lease = pass.acquire(step);  // launch kernels on `stream` that read lease.data(step.weights[0])
        }
    }
    weights.drain();
    unwrap(device.destroy_stream(stream));
    const Statistics got = weights.statistics();
    std::cout << got.held_bytes << " bytes held, " << got.last_pass.fetched_bytes << " copied a pass\n";
} catch (const residency::Exception& error) { return std::cerr << "minimal: " << error.what() << '\n', 2; }
