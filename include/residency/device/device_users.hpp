// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Counts what a device has to outlive: Residencies, host memory that it pinned. A device has one as its last member, and gives it as
/// users(). Thread safe.
class DeviceUsers {
public:
    DeviceUsers() noexcept = default;
    DeviceUsers(const DeviceUsers&) = delete;
    DeviceUsers& operator=(const DeviceUsers&) = delete;
    ~DeviceUsers() {
        RESIDENCY_ASSERT(count_ == 0,
                         "end every Residency before its device, and every catalog whose bytes it pinned: declare the "
                         "device first");
    }

    void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }     ///< one begins
    void remove() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }  ///< one ends

private:
    std::atomic<std::uint32_t> count_{0};
};

}}  // namespace residency::RESIDENCY_ABI
