// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryResource under Thrust's vectors and algorithms. Empty where Thrust is not on the include path.

#include "residency/config.hpp"
#include "residency/interop/memory_resource.hpp"

#if RESIDENCY_EXCEPTIONS && __has_include(<thrust/mr/memory_resource.h>)
#include <thrust/device_ptr.h>
#include <thrust/mr/memory_resource.h>

#include <cstddef>
#include <utility>

namespace residency { inline namespace RESIDENCY_ABI {

/// The memory of thrust::device_vector<T, thrust::mr::allocator<T, ThrustResource<CudaDevice>>>, and the temporary memory of
/// algorithms under thrust::cuda::par(&resource). Allocations and deallocations block. Throws AllocationError, a std::bad_alloc, if
/// there is no room. It must outlive what it allocated.
template <Device D>
class ThrustResource final : public ::thrust::mr::memory_resource<::thrust::device_ptr<void>> {
public:
    explicit ThrustResource(MemoryResource<D> resource) noexcept : resource_{std::move(resource)} {}

    pointer do_allocate(std::size_t bytes, std::size_t alignment) override {
        return pointer{resource_.allocate(bytes, alignment)};
    }
    void do_deallocate(pointer at, std::size_t bytes, std::size_t alignment) override {
        resource_.deallocate(at.get(), bytes, alignment);
    }

private:
    MemoryResource<D> resource_;
};

}}  // namespace residency::RESIDENCY_ABI
#endif
