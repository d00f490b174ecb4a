// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The library's streams and CCCL's are interchangeable where both are included.
#include <doctest/doctest.h>
#include <cuda/stream_ref>

#include <type_traits>

#include "residency/device/cuda_stream.hpp"

TEST_CASE("a stream converts to cuda::stream_ref and back") {
    static_assert(std::is_convertible_v<residency::CudaStream, cuda::stream_ref>);
    static_assert(std::is_constructible_v<residency::CudaStream, cuda::stream_ref>);
    cudaStream_t handle = nullptr;
    REQUIRE(cudaStreamCreate(&handle) == cudaSuccess);
    const residency::CudaStream ours{handle};
    const cuda::stream_ref theirs = ours;
    CHECK(theirs.get() == handle);
    CHECK(residency::CudaStream{theirs} == ours);
    CHECK(cudaStreamDestroy(handle) == cudaSuccess);
}
