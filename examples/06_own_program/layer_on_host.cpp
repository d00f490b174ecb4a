// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "layer.hpp"

#include <chrono>
#include <cmath>

/// A kernel of the simulated device is a host function that says what it reads and writes, and how long it takes.
void launch_layer(Gpu& gpu, Gpu::Stream stream, const float* weights, const float* x, float* y) {
    constexpr std::uint64_t vector_bytes = size * sizeof(float);
    residency::unwrap(gpu.launch(stream, {.name = "layer",
                                          .duration = std::chrono::microseconds{20},
                                          .reads = {{weights, size * vector_bytes}, {x, vector_bytes}},
                                          .writes = {{y, vector_bytes}},
                                          .body = [=] {
                                              for (std::uint32_t row = 0; row < size; ++row) {
                                                  float sum = 0;
                                                  for (std::uint32_t i = 0; i < size; ++i) {
                                                      sum += weights[row * size + i] * x[i];
                                                  }
                                                  y[row] = std::tanh(sum);
                                              }
                                          }}));
}
