// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "residency/device/cuda_stream.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE bool CudaStream::is_legacy_default() const noexcept {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
    return stream_ == cudaStreamLegacy;
#else
    return stream_ == nullptr || stream_ == cudaStreamLegacy;
#endif
}

RESIDENCY_INLINE bool CudaStream::is_default() const noexcept {
    return stream_ == nullptr || stream_ == cudaStreamLegacy || stream_ == cudaStreamPerThread;
}

}}  // namespace residency::RESIDENCY_ABI
