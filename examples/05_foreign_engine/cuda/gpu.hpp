// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace engine {

/// On which the engine launches. After gpu_open().
cudaStream_t gpu_stream();

}  // namespace engine
