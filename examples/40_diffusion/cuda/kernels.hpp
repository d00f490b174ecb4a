// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "../denoiser.hpp"

namespace diffusion {

/// The product on a GPU; enqueued on the stream. Extents are multiples of 64. The order of its sums does not change.
[[nodiscard]] cudaError_t launch(const Product& o, cudaStream_t stream);

}  // namespace diffusion
