// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/simulation/simulated_device.hpp"

namespace engine {

/// A 32nd of a GPU: a chunk of 64 KiB takes as long over its link as 2 MiB over a real one.
inline constexpr std::uint64_t simulated_chunk_bytes = std::uint64_t{64} << 10U;

/// Between gpu_open() and gpu_close().
residency::SimulatedDevice& simulated_gpu();
residency::SimulatedDevice::Stream simulated_stream();

}  // namespace engine
