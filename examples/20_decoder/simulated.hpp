// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host_kernels.hpp"
#include "operations.hpp"
#include "residency/device/simulated.hpp"
#include "residency/error.hpp"

namespace decoder {

/// Runs operations as host functions under the virtual clock of a simulated GPU, and tells its checker what each reads and writes.
class SimulatedBackend {
public:
    using Device = residency::SimulatedDevice;
    static constexpr bool learns = false;  ///< kernels take exactly the times of the schedule
    static constexpr std::uint64_t scratch_bytes = 0;

    /// For a small model the device's memory comes in small pieces, so that there is something to stream.
    explicit SimulatedBackend(std::uint64_t weight_bytes);
    ~SimulatedBackend();
    SimulatedBackend(const SimulatedBackend&) = delete;
    SimulatedBackend& operator=(const SimulatedBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }

    template <class T>
    [[nodiscard]] T* allocate_host(std::size_t count) {
        return static_cast<T*>(pinned_.emplace_back(residency::unwrap(device_.allocate_host(count * sizeof(T)))));
    }
    template <class T>
    [[nodiscard]] T* allocate_device(std::size_t count) {
        return static_cast<T*>(memory_.emplace_back(residency::unwrap(device_.allocate(count * sizeof(T)))));
    }
    template <class Operation>
    void launch(std::string_view name, const Operation& operation) {
        Device::Kernel kernel{
            .name = name, .duration = roofline(operation), .reads = {}, .writes = {}, .body = [operation] {
                compute(operation);
            }};
        declare(operation, kernel);
        residency::unwrap(device_.launch(stream_, std::move(kernel)));
    }

    void begin_timeline();
    void end_timeline();
    [[nodiscard]] std::string save_timeline(const std::string& path) const;
    /// What the checker found.
    [[nodiscard]] std::vector<std::string> reports() const;

private:
    static void declare(const Upload& o, Device::Kernel& kernel);
    static void declare(const Embed& o, Device::Kernel& kernel);
    static void declare(const Normalise& o, Device::Kernel& kernel);
    static void declare(const Linear& o, Device::Kernel& kernel);
    static void declare(const Rotate& o, Device::Kernel& kernel);
    static void declare(const Attend& o, Device::Kernel& kernel);
    static void declare(const Add& o, Device::Kernel& kernel);
    static void declare(const Gate& o, Device::Kernel& kernel);
    static void declare(const Choose& o, Device::Kernel& kernel);

    Device device_;
    Device::Stream stream_;
    std::vector<void*> memory_, pinned_;
    std::vector<Device::ExecutedOperation> operations_;
    bool recording_ = false;
};

}  // namespace decoder
