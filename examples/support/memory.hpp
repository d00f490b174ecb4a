// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace examples {

/// Device and pinned memory that is given back at the end, when the device is done with it. The device outlives it.
template <residency::Device D>
class Memory {
public:
    explicit Memory(D& device) : device_{device} {}
    ~Memory() {
        static_cast<void>(device_.synchronize().has_value());
        for (void* at : on_device_) { static_cast<void>(device_.deallocate(at).has_value()); }
        for (void* at : pinned_) { static_cast<void>(device_.deallocate_host(at).has_value()); }
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    template <class T>
    [[nodiscard]] T* on_device(std::size_t count) {
        return static_cast<T*>(on_device_.emplace_back(residency::unwrap(device_.allocate(count * sizeof(T)))));
    }
    template <class T>
    [[nodiscard]] T* pinned(std::size_t count) {
        return static_cast<T*>(pinned_.emplace_back(residency::unwrap(device_.allocate_host(count * sizeof(T)))));
    }
    /// Copies between the host and the device. Blocks.
    template <class T>
    void copy(const T* from, T* to, std::size_t count, typename D::Stream stream) {
        const residency::Copy copy{to, from, count * sizeof(T)};
        residency::unwrap(device_.copy({&copy, 1}, stream));
        residency::unwrap(device_.synchronize(stream));
    }

private:
    D& device_;
    std::vector<void*> on_device_, pinned_;
};

}  // namespace examples
