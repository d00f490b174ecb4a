// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

#include "examples/support/recorded.hpp"
#include "residency/aoti/aoti.hpp"
#include "residency/error.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace compiled {

/// The kernels of a step, as the compiler named them.
[[nodiscard]] inline std::string kernels_text(const residency::aoti::StepEvent& event) {
    if (!event.step) { return "no weights"; }
    const std::string& kernels = event.method->steps[*event.step].kernels;
    return kernels.empty() ? event.method->name : kernels;
}

/// Records the kernels of each step of a compiled model. On the simulated device, where kernels run on the processor, a kernel of the
/// device stands for those of a step: it takes as long as the processor took, and reads what the step reads, so that the device's checker
/// sees it.
template <class Device>
class StepRecorder {
public:
    using Stream = typename Device::Stream;
    using Event = residency::aoti::StepEvent;

    StepRecorder(Device& device, Stream stream, examples::Recorded<Device>& recorded)
        : device_{device}, stream_{stream}, recorded_{recorded} {}

    /// What the model tells its observer.
    template <class Weights>
    void add(const Event& event, const Weights& weights) {
        if (!recorded_.is_on() || event.kind == Event::Kind::wait) { return; }
        const bool begins = event.kind == Event::Kind::run;
        if constexpr (std::is_same_v<Device, residency::SimulatedDevice>) {
            if (begins) {
                began_ = std::chrono::steady_clock::now();
            } else {
                launch(event, weights);
            }
        } else if (begins) {
            recorded_.kernel_begins(kernels_text(event), stream_);
        } else {
            recorded_.kernel_ends(stream_);
        }
    }
    /// Of the first launch that failed.
    [[nodiscard]] const residency::Status& status() const noexcept { return status_; }

private:
    template <class Weights>
    void launch(const Event& event, const Weights& weights) {
        const std::string name = kernels_text(event);
        typename Device::Kernel kernel{
            .name = name, .duration = std::chrono::steady_clock::now() - began_, .reads = {}, .writes = {}, .body = {}};
        if (event.step) {
            for (const residency::WeightId id : event.method->steps[*event.step].weights) {
                const auto& catalog = weights.catalog();
                const auto& weight = catalog.weight(id);
                kernel.reads.push_back(
                    {weights.address(id), catalog.storage(weight.storage).bytes - weight.offset_bytes});
            }
        }
        recorded_.kernel(name, stream_, [&] {
            if (residency::Status launched = device_.launch(stream_, std::move(kernel)); !launched && status_) {
                status_ = std::move(launched);
            }
        });
    }

    Device& device_;
    Stream stream_;
    examples::Recorded<Device>& recorded_;
    std::chrono::steady_clock::time_point began_;
    residency::Status status_;
};

}  // namespace compiled
