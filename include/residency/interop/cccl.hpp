// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryResource as a resource of cuda::mr: CCCL from 3.1, or before with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE. Empty
// where CCCL is not on the include path.

#include "residency/config.hpp"
#include "residency/interop/memory_resource.hpp"

#if RESIDENCY_EXCEPTIONS && __has_include(<cuda/memory_resource>)
#include <cuda/version>

#if CCCL_VERSION >= 3001000 || defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#include <cuda/memory_resource>

namespace residency { inline namespace RESIDENCY_ABI {

/// Says that kernels can read and write what the resource allocates.
template <Device D>
constexpr void get_property(const MemoryResource<D>&, ::cuda::mr::device_accessible) noexcept {}

}}  // namespace residency::RESIDENCY_ABI
#endif
#endif
