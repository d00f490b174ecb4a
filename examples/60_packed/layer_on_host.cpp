// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The kernel of a layer and the unpacker on the simulated device.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "layer.hpp"
#include "residency/error.hpp"
#include "residency/simulation/simulated_unpacker.hpp"

void launch_layer(Gpu& gpu, Gpu::Stream stream, const std::uint16_t* weights, const float* x, float* y) {
    constexpr std::uint64_t vector_bytes = size * sizeof(float);
    residency::unwrap(gpu.launch(
        stream, {.name = "layer",
                 .duration = std::chrono::microseconds{5},
                 .reads = {{weights, std::uint64_t{size} * size * sizeof *weights}, {x, vector_bytes}},
                 .writes = {{y, vector_bytes}},
                 .body = [=] {
                     for (std::uint32_t row = 0; row < size; ++row) {
                         float sum = 0;
                         for (std::uint32_t i = 0; i < size; ++i) {
                             sum += std::bit_cast<float>(std::uint32_t{weights[row * size + i]} << 16U) * x[i];
                         }
                         y[row] = std::tanh(sum);
                     }
                 }}));
}

const residency::Unpacker<Gpu>& unpacker() {
    static const residency::SimulatedUnpacker one;
    return one;
}
