// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <utility>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// A cudaStream_t that is not owned. Converts from and to cudaStream_t, and to every stream reference that is made from
/// one and gives it back by get(), such as cuda::stream_ref. A default one is the default stream of this translation
/// unit's mode: legacy, or per thread.
class CudaStream {
public:
    constexpr CudaStream() noexcept = default;
    constexpr CudaStream(cudaStream_t stream) noexcept : stream_{stream} {}  // NOLINT(google-explicit-constructor)
    CudaStream(std::nullptr_t) = delete;  ///< say CudaStream{} for the default stream
    CudaStream(int) = delete;

    template <class Reference>
        requires(std::constructible_from<cudaStream_t, decltype(std::declval<const Reference&>().get())> &&
                 std::constructible_from<Reference, cudaStream_t>)
    constexpr CudaStream(const Reference& reference) noexcept  // NOLINT(google-explicit-constructor)
        : stream_{reference.get()} {}

    [[nodiscard]] constexpr cudaStream_t get() const noexcept { return stream_; }
    constexpr operator cudaStream_t() const noexcept { return stream_; }  // NOLINT(google-explicit-constructor)

    template <class Reference>
        requires(std::constructible_from<Reference, cudaStream_t> &&
                 requires(const Reference& reference) {
                     { reference.get() } -> std::same_as<cudaStream_t>;
                 })
    constexpr operator Reference() const noexcept {  // NOLINT(google-explicit-constructor)
        return Reference{stream_};
    }

    /// The stream that waits for, and is waited for by, every blocking stream of its device. It cannot be captured.
    [[nodiscard]] bool is_legacy_default() const noexcept {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
        return stream_ == cudaStreamLegacy;
#else
        return stream_ == nullptr || stream_ == cudaStreamLegacy;
#endif
    }

    /// A default stream, legacy or per-thread: the driver takes no batches of copies on one.
    [[nodiscard]] bool is_default() const noexcept {
        return stream_ == nullptr || stream_ == cudaStreamLegacy || stream_ == cudaStreamPerThread;
    }

    friend constexpr bool operator==(CudaStream a, CudaStream b) noexcept { return a.stream_ == b.stream_; }
    friend constexpr bool operator==(CudaStream a, cudaStream_t b) noexcept { return a.stream_ == b; }

private:
    cudaStream_t stream_ = nullptr;
};

}}  // namespace residency::RESIDENCY_ABI
