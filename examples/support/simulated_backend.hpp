// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "residency/error.hpp"
#include "residency/interop/perfetto.hpp"
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
        : device_{config}, memory_{device_}, stream_{residency::unwrap(device_.create_stream("compute"))} {
        device_.observe([this](const Device::ExecutedOperation& operation) {
            using Kind = residency::simulation::OperationKind;
            if (recording_ && (operation.kind == Kind::kernel || operation.kind == Kind::copy_to_device ||
                               operation.kind == Kind::copy_to_host)) {
                operations_.push_back(operation);
            }
        });
    }
    SimulatedBackend(const SimulatedBackend&) = delete;
    SimulatedBackend& operator=(const SimulatedBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Memory<Device>& memory() noexcept { return memory_; }

    template <class Operation>
    void launch(std::string_view name, const Operation& operation) {
        Device::Kernel kernel{
            .name = name, .duration = roofline(operation), .reads = {}, .writes = {}, .body = [operation] {
                compute(operation);
            }};
        declare(operation, kernel);
        residency::unwrap(device_.launch(stream_, std::move(kernel)));
    }

    /// Of what runs from now on: copies and kernels.
    void begin_timeline() {
        operations_.clear();
        recording_ = true;
    }
    void end_timeline() { recording_ = false; }
    /// Says what is in it.
    [[nodiscard]] std::string save_timeline(const std::string& path) const {
        residency::PerfettoTrace timeline;
        for (const auto& operation : operations_) {
            timeline.event(operation.stream_name, operation.name, std::chrono::nanoseconds{operation.start_ns},
                           std::chrono::nanoseconds{operation.end_ns}, operation.bytes);
        }
        timeline.save(path);
        return "copies and kernels of the last pass, on the virtual clock";
    }
    [[nodiscard]] const std::vector<Device::ExecutedOperation>& operations() const noexcept { return operations_; }
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
    std::vector<Device::ExecutedOperation> operations_;
    bool recording_ = false;
};

}  // namespace examples
