// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <new>

#include "residency/config.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<HostAllocation> HostBytes::try_allocate(std::uint64_t bytes, std::size_t alignment_bytes) {
    RESIDENCY_ASSERT(alignment_bytes != 0 && (alignment_bytes & (alignment_bytes - 1)) == 0, "align to a power of two");
    const std::align_val_t alignment{alignment_bytes};
    void* data = nullptr;
    if (bytes <= static_cast<std::uint64_t>((std::numeric_limits<std::ptrdiff_t>::max)())) {
        data = ::operator new(static_cast<std::size_t>(bytes), alignment, std::nothrow);
    }
    if (data == nullptr) {
        return Error{ErrorKind::out_of_memory,
                     "the host has no " + residency::detail::in_bytes(bytes) + " of memory left",
                     DeviceFailure{0, "operator new", bytes}};
    }
    auto* first = static_cast<std::byte*>(data);
    auto held =
        adopt(first, bytes, HostMemory::pageable, [alignment](std::byte* p) { ::operator delete(p, alignment); });
    return HostAllocation{std::move(held), {first, static_cast<std::size_t>(bytes)}};
}

}}  // namespace residency::RESIDENCY_ABI
