// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The library's streams and CCCL's are interchangeable where both are included.
#include <doctest/doctest.h>
#include <cuda/stream_ref>

#include <type_traits>

#include "residency/device/cuda_stream.hpp"

namespace {

/// A reference with another way to the handle, such as rmm::cuda_stream_view had.
struct View {
    cudaStream_t handle;
    operator cudaStream_t() const noexcept { return handle; }
};
struct ExplicitView {
    explicit operator cudaStream_t() const noexcept { return nullptr; }
};
/// What owns a stream, such as cuda::stream of CCCL since 3.1, is not made from a handle.
class Owner {
public:
    explicit Owner(cudaStream_t handle, int) noexcept : handle_{handle} {}
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }

private:
    cudaStream_t handle_;
};
static_assert(std::is_convertible_v<View, residency::CudaStream>);
static_assert(std::is_convertible_v<const Owner&, residency::CudaStream>);
static_assert(!std::is_convertible_v<ExplicitView, residency::CudaStream>);
static_assert(!std::is_convertible_v<int, residency::CudaStream>);
static_assert(!std::is_convertible_v<residency::CudaStream, Owner>);

}  // namespace

TEST_CASE("a stream converts to cuda::stream_ref and back") {
    static_assert(std::is_convertible_v<residency::CudaStream, cuda::stream_ref>);
    static_assert(std::is_constructible_v<residency::CudaStream, cuda::stream_ref>);
    cudaStream_t handle = nullptr;
    REQUIRE(cudaStreamCreate(&handle) == cudaSuccess);
    const residency::CudaStream ours{handle};
    const cuda::stream_ref theirs = ours;
    CHECK(theirs.get() == handle);
    CHECK(residency::CudaStream{theirs} == ours);
    CHECK(residency::CudaStream{View{handle}} == ours);
    const Owner owner{handle, 0};
    CHECK(residency::CudaStream{owner} == ours);
    CHECK(residency::CudaStream{static_cast<cudaStream_t>(ExplicitView{})} == residency::CudaStream{});
    CHECK(cudaStreamDestroy(handle) == cudaSuccess);
}
