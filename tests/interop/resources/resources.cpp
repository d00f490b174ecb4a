// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// MemoryResource is what today's CCCL and RMM take: `.ci/run rmm` compiles this against the newest CCCL, and with WITH_RMM against RMM
// and the CCCL that it comes with. tests/gpu/memory_resource.cpp is for the CCCL of the toolkit.
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>

#include <cstddef>
#include <type_traits>

#include "residency/device/cuda.hpp"
#ifndef WITHOUT_PROPERTY  // which makes this fail to compile
#include "residency/interop/cccl.hpp"
#endif
#include "residency/interop/memory_resource.hpp"

static_assert(CCCL_VERSION >= 3001000, "this is for the resources that CCCL has since 3.1");

using Resource = residency::MemoryResource<residency::CudaDevice>;
static_assert(cuda::mr::resource<Resource>);
static_assert(cuda::mr::resource_with<Resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::synchronous_resource_with<Resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<Resource, cuda::mr::host_accessible>);

/// The calls that both of CCCL's wrappers make.
void* through_wrappers(const Resource& resource, cuda::stream_ref stream) {
    cuda::mr::any_resource<cuda::mr::device_accessible> owner{resource};
    cuda::mr::resource_ref<cuda::mr::device_accessible> reference{owner};
    void* const at = reference.allocate(stream, 256, 256);
    reference.deallocate(stream, at, 256, 256);
    void* const blocking = owner.allocate_sync(64, 64);
    owner.deallocate_sync(blocking, 64, 64);
    return owner == reference ? at : blocking;
}

#ifdef WITH_RMM
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

static_assert(std::is_constructible_v<rmm::device_async_resource_ref, Resource&>);
static_assert(std::is_constructible_v<rmm::device_resource_ref, Resource&>);
static_assert(!std::is_constructible_v<rmm::host_resource_ref, Resource&>);

/// RMM's containers and adaptors on a broker's total.
std::size_t through_rmm(Resource& resource, cuda::stream_ref stream) {
    const rmm::device_buffer buffer{1024, stream, resource};
    const rmm::device_uvector<float> vector{1024, stream, resource};
    rmm::mr::statistics_resource_adaptor counted{resource};
    const rmm::device_buffer counted_buffer{1024, stream, counted};
    rmm::mr::set_current_device_resource(resource);
    return buffer.size() + vector.size() + counted_buffer.size();
}
#endif
