// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "residency/core/statistics.hpp"
#include "residency/error.hpp"
#include "residency/interop/aoti.hpp"
#include "residency/interop/timeline_recorder.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace compiled {

/// The kernels of a step, as the compiler named them.
[[nodiscard]] inline std::string kernels_text(const residency::aoti::StepEvent& event) {
    if (!event.step) { return "no weights"; }
    const std::string& kernels = event.method->steps[*event.step].kernels;
    return kernels.empty() ? event.method->name : kernels;
}

/// Draws runs: copies, waits, and the kernels of each step. On the simulated device, where kernels run on the processor, a kernel of the
/// device stands for those of a step: it takes as long as the processor took, and reads what the step reads, so that the device's checker
/// sees it.
template <class Device>
class Recorder {
public:
    using Stream = typename Device::Stream;
    using Event = residency::aoti::StepEvent;

    Recorder(Device& device, Stream stream, std::size_t runs)
        : device_{device}, stream_{stream}, recorder_{device, {.passes = static_cast<std::uint32_t>(runs)}} {}

    /// Between runs.
    template <class Weights>
    void begin(Weights& weights) {
        weights.observe(&recorder_);
        is_on_ = true;
    }
    /// Blocks until what was recorded is complete.
    template <class Weights>
    void end(Weights& weights) {
        is_on_ = false;
        weights.drain();
        recorder_.collect();
        weights.observe(nullptr);
    }
    template <class Weights>
    void add(const Event& event, const Weights& weights) {
        if (!is_on_ || event.kind == Event::Kind::wait) { return; }
        const bool begins = event.kind == Event::Kind::run;
        if constexpr (std::is_same_v<Device, residency::SimulatedDevice>) {
            if (begins) {
                began_ = std::chrono::steady_clock::now();
            } else {
                launch(event, weights);
            }
        } else if (begins) {
            recorder_.kernel_begins(kernels_text(event), stream_);
        } else {
            recorder_.kernel_ends(stream_);
        }
    }
    /// Says what is in it. Throws residency::Exception where something could not be recorded or written.
    [[nodiscard]] std::string save(const std::string& path) {
        if (!status_) { residency::throw_error(status_.error()); }
        if (recorder_.failure()) { residency::throw_error(*recorder_.failure()); }
        recorder_.timeline().trace().save(path);
        const std::string gaps = recorder_.gaps().text();
        return "copies and kernels by step" + (gaps.empty() ? "" : "; " + gaps);
    }

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
        recorder_.kernel(name, stream_, [&] {
            if (residency::Status launched = device_.launch(stream_, std::move(kernel)); !launched && status_) {
                status_ = std::move(launched);
            }
        });
    }

    Device& device_;
    Stream stream_;
    residency::TimelineRecorder<Device> recorder_;
    std::chrono::steady_clock::time_point began_;
    residency::Status status_;  // of the first launch that failed
    bool is_on_ = false;
};

}  // namespace compiled
