// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

namespace lab {

/// A kernel of one thread that takes that long.
[[nodiscard]] cudaError_t spin(std::chrono::nanoseconds duration, cudaStream_t stream);

}  // namespace lab
