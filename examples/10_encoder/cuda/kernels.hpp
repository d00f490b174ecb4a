// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "../operations.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace encoder {

// The operations on a GPU; enqueued on the stream.
[[nodiscard]] cudaError_t launch(const Embed& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Linear& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Attention& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const AddNormalise& o, cudaStream_t stream);
[[nodiscard]] cudaError_t launch(const Pool& o, cudaStream_t stream);

/// What unpacks weights on a GPU.
[[nodiscard]] const residency::Unpacker<residency::CudaDevice>& unpacker();

}  // namespace encoder
