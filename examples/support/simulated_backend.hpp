// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "examples/support/recorded.hpp"
#include "residency/error.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace examples {

template <class T>
[[nodiscard]] residency::simulation::ByteRange range(const T* at, std::size_t count) {
    return {at, count * sizeof(T)};
}

/// Runs operations under the virtual clock of a simulated GPU. Beside each kind of operation there are compute(operation), which is
/// the kernel; roofline(operation), how long it takes; and declare(operation, kernel), what it reads and writes, for the
/// device's checker.
class SimulatedBackend {
public:
    using Device = residency::SimulatedDevice;

    explicit SimulatedBackend(const Device::Config& config = {})
        : device_{config}, memory_{device_}, stream_{residency::unwrap(device_.create_stream("compute"))} {}
    SimulatedBackend(const SimulatedBackend&) = delete;
    SimulatedBackend& operator=(const SimulatedBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Memory<Device>& memory() noexcept { return memory_; }

    template <class Operation>
    void launch(const char* name, const Operation& operation) {
        launch(name, operation, [operation] { compute(operation); });
    }

protected:
    /// With another kernel.
    template <class Operation, class Body>
    void launch(const char* name, const Operation& operation, Body body) {
        Device::Kernel kernel{
            .name = name, .duration = roofline(operation), .reads = {}, .writes = {}, .body = std::move(body)};
        declare(operation, kernel);
        recorded_.kernel(name, stream_, [&] { residency::unwrap(device_.launch(stream_, std::move(kernel))); });
    }

public:
    /// What is recorded of passes, on the virtual clock.
    [[nodiscard]] Recorded<Device>& recorded() noexcept { return recorded_; }
    [[nodiscard]] const Recorded<Device>& recorded() const noexcept { return recorded_; }
    /// What the checker found.
    [[nodiscard]] std::vector<std::string> reports() const {
        std::vector<std::string> texts;
        for (const auto& report : device_.reports()) { texts.push_back(report.text); }
        return texts;
    }

private:
    Device device_;
    Memory<Device> memory_;
    Device::Stream stream_;
    Recorded<Device> recorded_{device_};
};

}  // namespace examples
