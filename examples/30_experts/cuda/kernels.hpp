// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "../mixture.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"
#include "residency/routed/routed_experts.hpp"

namespace experts {

// The operations on a GPU; enqueued on the stream. Rows of weights lie at multiples of 16 bytes. The order of sums does not change.
[[nodiscard]] cudaError_t launch(const Embed& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Route& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Choose& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Expand& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Reduce& o, cudaStream_t stream);

/// What unpacks experts on the GPU.
[[nodiscard]] const residency::Unpacker<residency::CudaDevice>& unpacker();
/// What decides about experts on the GPU, and brings them.
[[nodiscard]] const residency::routed::Server<residency::CudaDevice, residency::routed::ExpectedUse>& server();

}  // namespace experts
