// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef ON_CUDA
#include "residency/device/cuda.hpp"
using Gpu = residency::CudaDevice;
#else
#include "residency/simulation/simulated_device.hpp"
using Gpu = residency::SimulatedDevice;
#endif

constexpr std::uint32_t size = 512;

/// Enqueues the kernel of one layer: y = tanh(W x), with a square W of `size` rows. In layer.cu, and in layer_on_host.cpp.
void launch_layer(Gpu& gpu, Gpu::Stream stream, const float* weights, const float* x, float* y);
