// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "recorder.hpp"
#include "residency/error.hpp"
#include "residency/interop/simulated_timeline.hpp"
#include "residency/model/catalog.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace compiled {

/// Draws runs on a simulated device: copies on its clock, and for each step a kernel of the device that takes as long as the
/// processor took, and reads what the step reads, so that the device's checker sees it.
class SimulatedRecorder {
public:
    using Device = residency::SimulatedDevice;
    using Event = residency::aoti::StepEvent;

    SimulatedRecorder(Device& device, Device::Stream stream) : device_{device}, stream_{stream} {
        device_.observe([this](const Device::ExecutedOperation& operation) {
            if (drawing_) { timeline_.add(operation); }
        });
    }
    ~SimulatedRecorder() { device_.observe({}); }
    SimulatedRecorder(const SimulatedRecorder&) = delete;
    SimulatedRecorder& operator=(const SimulatedRecorder&) = delete;

    template <class Weights>
    void begin(const Weights& weights) {
        timeline_.name_weights(weights.catalog());
        drawing_ = true;
    }
    void end() { drawing_ = false; }

    template <class Weights>
    void add(const Event& event, const Weights& weights) {
        if (!drawing_) { return; }
        if (event.kind == Event::Kind::run) { began_ = std::chrono::steady_clock::now(); }
        if (event.kind != Event::Kind::end) { return; }
        const auto statistics = weights.statistics();
        timeline_.add_memory(device_.host_time().count(), statistics.held_bytes, statistics.budget_bytes);
        const std::string step = step_text(event), name = kernels_text(event);
        Device::Kernel kernel{.name = name,
                              .group = step,
                              .duration = std::chrono::steady_clock::now() - began_,
                              .reads = {},
                              .writes = {},
                              .body = {}};
        if (event.step) {
            for (const residency::WeightId id : event.method->steps[*event.step].weights) {
                const auto& catalog = weights.catalog();
                const auto& weight = catalog.weight(id);
                kernel.reads.push_back(
                    {weights.address(id), catalog.storage(weight.storage).bytes - weight.offset_bytes});
            }
        }
        if (residency::Status launched = device_.launch(stream_, std::move(kernel)); !launched && status_) {
            status_ = std::move(launched);
        }
    }
    /// Says what is in it. Throws residency::Exception where something could not be recorded or written.
    [[nodiscard]] std::string save(const std::string& path) const {
        if (!status_) { residency::throw_error(status_.error()); }
        timeline_.timeline().trace().save(path);
        return "copies on the virtual clock, kernels as long as the processor took";
    }

private:
    Device& device_;
    Device::Stream stream_;
    residency::SimulatedTimeline timeline_;
    std::chrono::steady_clock::time_point began_;
    residency::Status status_;  // of the first launch that failed
    bool drawing_ = false;
};

}  // namespace compiled
