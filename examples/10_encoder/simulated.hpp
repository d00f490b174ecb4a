// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host_kernels.hpp"
#include "operations.hpp"
#include "residency/device/simulated.hpp"
#include "residency/model/catalog.hpp"

namespace encoder {

/// Runs operations as host functions under the virtual clock of a simulated GPU, and tells its checker what each reads and writes.
class SimulatedBackend {
public:
    using Device = residency::SimulatedDevice;

    SimulatedBackend();
    ~SimulatedBackend();
    SimulatedBackend(const SimulatedBackend&) = delete;
    SimulatedBackend& operator=(const SimulatedBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }

    template <class T>
    [[nodiscard]] T* allocate_host(std::size_t count) {
        return static_cast<T*>(pinned_.emplace_back(residency::unwrap(device_.allocate_host(count * sizeof(T)))));
    }
    [[nodiscard]] float* allocate_device(std::size_t count) {
        return static_cast<float*>(memory_.emplace_back(residency::unwrap(device_.allocate(count * sizeof(float)))));
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
    /// Blocks.
    void read_back(const float* from, float* to, std::size_t count);

    void begin_timeline();
    void end_timeline();
    [[nodiscard]] std::string save_timeline(const std::string& path) const;
    [[nodiscard]] std::vector<std::string> reports() const;

private:
    static void declare(const Embed& o, Device::Kernel& kernel);
    static void declare(const Linear& o, Device::Kernel& kernel);
    static void declare(const Attention& o, Device::Kernel& kernel);
    static void declare(const AddNormalise& o, Device::Kernel& kernel);
    static void declare(const Pool& o, Device::Kernel& kernel);

    Device device_;
    Device::Stream stream_;
    std::vector<void*> memory_, pinned_;
    std::vector<Device::ExecutedOperation> operations_;
    bool recording_ = false;
};

}  // namespace encoder
