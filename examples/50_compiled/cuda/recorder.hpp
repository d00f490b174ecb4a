// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../recorder.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/interop/pass_timeline.hpp"

namespace compiled {

/// Draws runs on a GPU, by events on their stream: the kernels of each step, and how long the stream waited before them.
class CudaRecorder {
public:
    using Device = residency::CudaDevice;
    using Event = residency::aoti::StepEvent;

    CudaRecorder(Device& device, Device::Stream stream) : device_{device}, stream_{stream} {}
    ~CudaRecorder() {
        for (const Point& point : points_) { static_cast<void>(device_.destroy_event(point.event).has_value()); }
    }
    CudaRecorder(const CudaRecorder&) = delete;
    CudaRecorder& operator=(const CudaRecorder&) = delete;

    template <class Weights>
    void begin(const Weights&) {
        drawing_ = true;
    }
    void end() { drawing_ = false; }

    template <class Weights>
    void add(const Event& event, const Weights& weights) {
        if (!drawing_) { return; }
        const auto statistics = weights.statistics();
        const auto at = device_.create_event(residency::Timing::on);
        if (!at) {
            if (status_) { status_ = at.error(); }
            return;
        }
        points_.push_back({event, *at, statistics.held_bytes, statistics.budget_bytes});
        if (residency::Status recorded = device_.record(*at, stream_); !recorded && status_) {
            status_ = std::move(recorded);
        }
    }
    /// Says what is in it. Precondition: what was recorded is complete. Throws residency::Exception where something could not be recorded or
    /// written.
    [[nodiscard]] std::string save(const std::string& path) {
        if (!status_) { residency::throw_error(status_.error()); }
        // Two events that follow each other are this far apart without anything between them.
        constexpr std::chrono::microseconds apart{4};
        residency::PassTimeline timeline;
        residency::PassTimeline::Time waited{}, began{};
        for (const Point& point : points_) {
            const auto at = residency::unwrap(device_.elapsed(points_.front().event, point.event));
            switch (point.step.kind) {
                case Event::Kind::wait: waited = at; break;
                case Event::Kind::run:
                    began = at;
                    timeline.add_memory(at, point.held_bytes, point.budget_bytes);
                    if (point.step.step && began - waited > apart) { timeline.add_stall(waited, began, std::nullopt); }
                    break;
                case Event::Kind::end:
                    timeline.add_kernel({step_text(point.step), kernels_text(point.step), began, at});
                    break;
            }
        }
        timeline.trace().save(path);
        return "kernels by step, and where the stream waited for copies";
    }

private:
    struct Point {
        Event step;
        Device::Event event;
        std::uint64_t held_bytes = 0, budget_bytes = 0;
    };

    Device& device_;
    Device::Stream stream_;
    std::vector<Point> points_;
    residency::Status status_;  // of the first call that failed
    bool drawing_ = false;
};

}  // namespace compiled
