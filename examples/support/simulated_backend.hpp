// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/support/memory.hpp"
#include "residency/error.hpp"
#include "residency/interop/pass_timeline.hpp"
#include "residency/interop/simulated_timeline.hpp"
#include "residency/model/catalog.hpp"
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
            if (drawing_) { timeline_.add(operation); }
        });
    }
    SimulatedBackend(const SimulatedBackend&) = delete;
    SimulatedBackend& operator=(const SimulatedBackend&) = delete;

    [[nodiscard]] Device& device() noexcept { return device_; }
    [[nodiscard]] Device::Stream stream() const noexcept { return stream_; }
    [[nodiscard]] Memory<Device>& memory() noexcept { return memory_; }

    template <class Operation>
    void launch(std::string_view name, const Operation& operation) {
        Device::Kernel kernel{.name = name,
                              .group = step_,
                              .duration = roofline(operation),
                              .reads = {},
                              .writes = {},
                              .body = [operation] { compute(operation); }};
        declare(operation, kernel);
        residency::unwrap(device_.launch(stream_, std::move(kernel)));
    }

    /// Of what runs from now on: copies, named by the weights of `catalog`, and kernels by step.
    void begin_timeline(const residency::Catalog& catalog) {
        timeline_ = {};
        timeline_.name_weights(catalog);
        drawing_ = true;
    }
    void end_timeline() {
        drawing_ = false;
        step_.clear();
    }
    [[nodiscard]] bool is_drawing() const noexcept { return drawing_; }
    /// What is launched from now on belongs to this step. While a timeline is recorded.
    void begin_step(std::string name, std::uint64_t held_bytes, std::uint64_t budget_bytes) {
        step_ = std::move(name);
        timeline_.add_memory(device_.host_time().count(), held_bytes, budget_bytes);
    }
    /// Says what is in it.
    [[nodiscard]] std::string save_timeline(const std::string& path) const {
        timeline_.timeline().trace().save(path);
        return "copies and kernels of the last pass, on the virtual clock";
    }
    [[nodiscard]] const residency::PassTimeline& timeline() const noexcept { return timeline_.timeline(); }
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
    residency::SimulatedTimeline timeline_;
    std::string step_;  // that is launched now; empty where no timeline is recorded
    bool drawing_ = false;
};

}  // namespace examples
