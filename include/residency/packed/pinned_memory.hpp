// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/region.hpp"
#include "residency/model/host_bytes.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// Pinned memory of a device for the caller to fill before others see it. It is given back with the last owner of `bytes`: the device lives
/// that long. Blocks. Errors: the device's own.
template <Device D>
[[nodiscard]] Result<HostAllocation> try_allocate_pinned(D& device, std::uint64_t bytes) {
    auto memory = device.allocate_host(bytes);
    if (!memory) { return memory.error(); }
    auto* const data = static_cast<std::byte*>(*memory);
    auto held = HostBytes::adopt(data, bytes, HostMemory::pinned, [&device](std::byte* at) {
        static_cast<void>(device.deallocate_host(at).has_value());
    });
    return HostAllocation{std::move(held), {data, static_cast<std::size_t>(bytes)}};
}

/// Pins the pages of a region, which were touched before and keep their bytes. Where the device cannot pin them, pinned memory of its own
/// gets a copy of the bytes.
template <Device D>
[[nodiscard]] Result<HostAllocation> try_pin(D& device, std::shared_ptr<host::Region> region) {
    const std::span<std::byte> memory = region->span();
    if (!device.pin(memory.data(), memory.size())) {
        auto own = try_allocate_pinned(device, memory.size());
        if (own) { std::memcpy(own->writable.data(), memory.data(), memory.size()); }
        return own;
    }
    region->set_pinned([&device](void* at) { return device.unpin(at); });
    return HostAllocation{HostBytes::borrow(memory, HostMemory::pinned, std::move(region)), memory};
}

}}}  // namespace residency::RESIDENCY_ABI::packed
