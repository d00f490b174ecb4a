// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_state.hpp"

// CudaDevice: copies and fills.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Status CudaDevice::copy(std::span<const Copy> copies, Stream stream) {
    const detail::CudaState::Scope scope{*state_};
    // Pieces are passed in blocks from the stack: no allocation, and few enough calls that their latency does not count.
    constexpr std::size_t block = 512;
    void* to[block];
    const void* from[block];
    std::size_t bytes[block];
    bool batches = copies.size() > 1 && state_->has_batches && !stream.is_default();
    if (batches) {
        const Result<bool> capturing = is_capturing(stream);
        if (!capturing) { return capturing.error(); }
        batches = !*capturing;
    }
    std::size_t next = 0;
    while (next < copies.size()) {
        std::size_t count = 0;
        for (; next < copies.size() && count < block; ++next) {
            const Copy& piece = copies[next];
            if (piece.bytes == 0) { continue; }
            to[count] = piece.to;
            from[count] = piece.from;
            bytes[count++] = piece.bytes;
        }
        if (count == 0) { break; }
#if CUDART_VERSION >= 12080
        if (count > 1 && batches) {
            cudaMemcpyAttributes attributes{};
            attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
            std::size_t attributes_from = 0;
#if CUDART_VERSION >= 13000
            const cudaError_t code =
                cudaMemcpyBatchAsync(to, from, bytes, count, &attributes, &attributes_from, 1, stream.get());
#else
            std::size_t failed = 0;
            const cudaError_t code = cudaMemcpyBatchAsync(to, const_cast<void**>(from), bytes, count, &attributes,
                                                          &attributes_from, 1, &failed, stream.get());
#endif
            if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMemcpyBatchAsync"); }
            continue;
        }
#endif
        for (std::size_t i = 0; i < count; ++i) {
            Status copied = state_->checked(cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream.get()),
                                            "cudaMemcpyAsync", bytes[i]);
            if (!copied) { return copied; }
        }
    }
    return {};
}

RESIDENCY_INLINE Status CudaDevice::fill(void* at, std::byte value, std::uint64_t bytes, Stream stream) {
    if (bytes == 0) { return {}; }
    const detail::CudaState::Scope scope{*state_};
    return state_->checked(cudaMemsetAsync(at, std::to_integer<int>(value), bytes, stream.get()), "cudaMemsetAsync",
                           bytes);
}

}}  // namespace residency::RESIDENCY_ABI
