// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "benchmarks/lab/measure.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/model/catalog.hpp"
#include "residency/packed/pinned_memory.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/timeline/perfetto.hpp"
#include "residency/timeline/simulated_timeline.hpp"

namespace lab {

/// A simulated GPU with a card's link and no real bytes.
class Simulated {
public:
    explicit Simulated(const RunJob& job) : device_{config_of(job)} {}

    [[nodiscard]] residency::SimulatedDevice& device() { return device_; }
    [[nodiscard]] residency::Result<std::shared_ptr<const residency::HostBytes>> host(std::uint64_t bytes) {
        auto memory = residency::packed::try_allocate_pinned(device_, std::max<std::uint64_t>(bytes, 1));
        if (!memory) { return memory.error(); }
        return std::move(memory->bytes);
    }
    [[nodiscard]] residency::Status launch(residency::SimulatedDevice::Stream stream, std::string_view name,
                                           std::chrono::nanoseconds duration) {
        residency::SimulatedDevice::Kernel kernel;
        kernel.name = name;
        kernel.group = step_;
        kernel.duration = duration;
        return device_.launch(stream, std::move(kernel));
    }
    void observe(const residency::Catalog& catalog) {
        timeline_.name_weights(catalog);
        device_.observe(
            [this](const residency::SimulatedDevice::ExecutedOperation& operation) { timeline_.add(operation); });
    }
    void begin_step(std::string name, const residency::Statistics& statistics) {
        step_ = std::move(name);
        timeline_.add_memory(device_.host_time().count(), statistics.held_bytes, statistics.budget_bytes);
    }
    [[nodiscard]] residency::PerfettoTrace end_observing() {
        device_.observe({});
        return timeline_.timeline().trace();
    }

private:
    [[nodiscard]] static residency::SimulatedDevice::Config config_of(const RunJob& job) {
        residency::SimulatedDevice::Config config;
        config.link = job.card.link;
        config.memory_bytes = job.work.total_bytes() + (std::uint64_t{4} << 30);
        config.real_bytes = false;
        config.checker = false;
        return config;
    }

    residency::SimulatedDevice device_;
    residency::SimulatedTimeline timeline_;
    std::string step_;  // while it is observed
};

/// measure() on the simulated device.
template <class Weights, class Configure>
residency::Result<RunCounts> simulate(const RunJob& job, Configure configure) {
    Simulated machine{job};
    return measure<Weights>(job, machine, std::move(configure));
}

}  // namespace lab
