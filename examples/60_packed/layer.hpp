// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/packed/packer.hpp"
#ifdef ON_CUDA
#include "residency/device/cuda.hpp"
using Gpu = residency::CudaDevice;
#else
#include "residency/simulation/simulated_device.hpp"
using Gpu = residency::SimulatedDevice;
#endif

constexpr std::uint32_t size = 1024;

// Both are in layer.cu, which nvcc compiles, and in layer_on_host.cpp.

/// Enqueues the kernel of one layer: y = tanh(W x), with a square W of `size` rows in bf16.
void launch_layer(Gpu& gpu, Gpu::Stream stream, const std::uint16_t* weights, const float* x, float* y);
/// What unpacks weights on the device.
const residency::Unpacker<Gpu>& unpacker();
