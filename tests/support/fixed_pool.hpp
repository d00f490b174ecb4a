// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/pool/memory_pool.hpp"

namespace support {

/// A pool of which nothing is known but what a MemoryPool has to have: it can neither be resized nor recover.
template <residency::pool::MemoryPool Inner>
class FixedPool {
public:
    using Device = typename Inner::Device;
    using Config = typename Inner::Config;
    static constexpr bool one_range = Inner::one_range;
    static constexpr bool is_laid_out_for_steps = residency::pool::StepwisePool<Inner>;

    explicit FixedPool(Config config) : inner_{config} {}

    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept { return inner_.occupied(bytes); }
    [[nodiscard]] std::uint64_t floor_bytes(const Device& device,
                                            const residency::pool::Requirements& requirements) const {
        return inner_.floor_bytes(device, requirements);
    }
    [[nodiscard]] residency::Status open(Device& device, const residency::pool::Requirements& requirements,
                                         std::uint64_t cap_bytes) {
        return inner_.open(device, requirements, cap_bytes);
    }
    [[nodiscard]] residency::Result<void*> allocate(std::uint64_t bytes, typename Device::Stream stream) {
        return inner_.allocate(bytes, stream);
    }
    [[nodiscard]] residency::Status deallocate(void* at, std::uint64_t bytes, typename Device::Stream stream) {
        return inner_.deallocate(at, bytes, stream);
    }
    [[nodiscard]] std::uint64_t held_bytes() const { return inner_.held_bytes(); }
    [[nodiscard]] std::uint64_t requested_bytes() const { return inner_.requested_bytes(); }
    void close() noexcept { inner_.close(); }
    void abandon() noexcept { inner_.abandon(); }

private:
    Inner inner_;
};

}  // namespace support
