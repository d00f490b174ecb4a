// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "residency/config.hpp"

struct CUstream_st;  // of the CUDA toolkit, where cudaStream_t is a CUstream_st*

namespace residency { inline namespace RESIDENCY_ABI {

/// A cudaStream_t that is not owned. Converts from and to cudaStream_t; from every class that has one by get() or converts to it, such as
/// cuda::stream_ref and cuda::stream of CCCL, rmm::cuda_stream_view, and PyTorch's streams; and to every reference that is made from one
/// and returns it by get(), such as cuda::stream_ref. A default-constructed one is the default stream of this translation unit's
/// mode: legacy, or per thread.
class CudaStream {
public:
    constexpr CudaStream() noexcept = default;
    /// Stands for a cudaStream_t; null: the default stream.
    constexpr CudaStream(CUstream_st* stream) noexcept : stream_{stream} {}  // NOLINT(google-explicit-constructor)
    CudaStream(std::nullptr_t) = delete;  ///< say CudaStream{} for the default stream
    CudaStream(int) = delete;

    /// Stands for a cuda::stream_ref, a cuda::stream, or another object whose get() returns a cudaStream_t.
    template <class Reference>
        requires requires(const Reference& reference) {
            { reference.get() } -> std::same_as<CUstream_st*>;
        }
    constexpr CudaStream(const Reference& reference) noexcept  // NOLINT(google-explicit-constructor)
        : stream_{reference.get()} {}
    /// Stands for an object that converts to a cudaStream_t.
    template <class Reference>
        requires(std::is_class_v<Reference> && !std::same_as<Reference, CudaStream> &&
                 !requires(const Reference& reference) { reference.get(); } &&
                 std::convertible_to<const Reference&, CUstream_st*>)
    constexpr CudaStream(const Reference& reference) noexcept  // NOLINT(google-explicit-constructor)
        : stream_{static_cast<CUstream_st*>(reference)} {}

    /// The stream as CUDA has it, or as cuda::stream_ref.
    /// @{
    [[nodiscard]] constexpr CUstream_st* get() const noexcept { return stream_; }
    constexpr operator CUstream_st*() const noexcept { return stream_; }  // NOLINT(google-explicit-constructor)

    template <class Reference>
        requires(std::constructible_from<Reference, CUstream_st*> &&
                 requires(const Reference& reference) {
                     { reference.get() } -> std::same_as<CUstream_st*>;
                 })
    constexpr operator Reference() const noexcept {  // NOLINT(google-explicit-constructor)
        return Reference{stream_};
    }
    /// @}

    /// Whether this is the stream that waits for, and is waited for by, every blocking stream of its device. It cannot be captured.
    [[nodiscard]] bool is_legacy_default() const noexcept;
    /// Whether this is a default stream, legacy or per thread. The driver takes no batch of copies on one.
    [[nodiscard]] bool is_default() const noexcept;

    /// Whether both are the same stream.
    /// @{
    friend constexpr bool operator==(CudaStream a, CudaStream b) noexcept { return a.stream_ == b.stream_; }
    friend constexpr bool operator==(CudaStream a, CUstream_st* b) noexcept { return a.stream_ == b; }
    /// @}

private:
    CUstream_st* stream_ = nullptr;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/device/impl/cuda_stream.ipp"
#endif
