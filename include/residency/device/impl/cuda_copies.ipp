// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_state.hpp"

// CudaDevice: copies and fills.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Status CudaDevice::copy(std::span<const Copy> copies, Stream stream) {
    const detail::CudaState::Scope scope{*state_};
    // Pieces are passed in blocks from the stack: no allocation, and few enough calls that their latency does not count.
    constexpr std::size_t block = 512;
    // A batch with an entry of 24 KiB or less beside larger ones blocks the host until all of it is copied, if the stream is idle: 1.25 ms
    // for 64 MiB on an H100. A batch of the small ones behind one of the others takes 10 us (CUDA 13.0, H100 and H200: gpu_link).
    constexpr std::size_t small_bytes = std::size_t{32} << 10;
    void* to[block];
    const void* from[block];
    std::size_t bytes[block];
    bool batches = copies.size() > 1 && state_->has_batches && !stream.is_default();
    if (batches) {
        const Result<bool> capturing = is_capturing(stream);
        if (!capturing) { return capturing.error(); }
        batches = !*capturing;
    }
    const auto enqueue = [&](std::size_t first, std::size_t count) -> Status {
#if CUDART_VERSION >= 12080
        if (count > 1 && batches) {
            cudaMemcpyAttributes attributes{};
            attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
            std::size_t attributes_from = 0;
#if CUDART_VERSION >= 13000
            const cudaError_t code = cudaMemcpyBatchAsync(to + first, from + first, bytes + first, count, &attributes,
                                                          &attributes_from, 1, stream.get());
#else
            std::size_t failed = 0;
            const cudaError_t code =
                cudaMemcpyBatchAsync(to + first, const_cast<void**>(from + first), bytes + first, count, &attributes,
                                     &attributes_from, 1, &failed, stream.get());
#endif
            return code == cudaSuccess ? Status{} : state_->runtime_failure(code, "cudaMemcpyBatchAsync");
        }
#endif
        for (std::size_t i = first; i < first + count; ++i) {
            Status copied = state_->checked(cudaMemcpyAsync(to[i], from[i], bytes[i], cudaMemcpyDefault, stream.get()),
                                            "cudaMemcpyAsync", bytes[i]);
            if (!copied) { return copied; }
        }
        return {};
    };
    std::size_t next = 0;
    while (next < copies.size()) {
        std::size_t larger = 0;           // from the front
        std::size_t first_small = block;  // to the end
        for (; next < copies.size() && larger < first_small; ++next) {
            const Copy& piece = copies[next];
            if (piece.bytes == 0) { continue; }
            const std::size_t at = piece.bytes < small_bytes ? --first_small : larger++;
            to[at] = piece.to;
            from[at] = piece.from;
            bytes[at] = piece.bytes;
        }
        if (Status enqueued = enqueue(0, larger); !enqueued) { return enqueued; }
        if (Status enqueued = enqueue(first_small, block - first_small); !enqueued) { return enqueued; }
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
