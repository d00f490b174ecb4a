// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Thrust's names carry the architectures that nvcc compiles for, which g++ does not know: without them both mean the same types.
#define THRUST_DISABLE_ABI_NAMESPACE
#define THRUST_IGNORE_ABI_NAMESPACE_ERROR
#include <thrust/device_ptr.h>
#include <thrust/mr/memory_resource.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace gpu {

using ThrustMemory = thrust::mr::memory_resource<thrust::device_ptr<void>>;

/// Sorts `count` host values in a thrust::device_vector: its memory, and that of the algorithm, is of the resource. Calls `sorted` while
/// the vector is there. Throws std::bad_alloc where there is no room.
void sort_by_thrust(ThrustMemory& memory, std::uint32_t* values, std::size_t count,
                    const std::function<void()>& sorted);

}  // namespace gpu
