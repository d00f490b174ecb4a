// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "../operations.hpp"

namespace decoder {

// The operations on a GPU, but the matrix products; enqueued on the stream.
[[nodiscard]] cudaError_t launch(const Upload& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Embed& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Normalise& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Unpack& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Rotate& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Attend& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Add& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Gate& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Choose& o, cudaStream_t stream);
/// out = the bias in every row, for a product to be added to.
[[nodiscard]] cudaError_t launch_spread(const Bf16* bias, Bf16* out, std::uint32_t rows, std::uint32_t width,
                                        cudaStream_t stream);
/// Once for a device, before any launch: some kernels use more shared memory than is given without asking.
[[nodiscard]] cudaError_t prepare_kernels();

}  // namespace decoder
