// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "residency/core/stall_report.hpp"
#include "residency/core/statistics.hpp"
#include "residency/interop/html_report.hpp"
#include "residency/interop/pass_timeline.hpp"
#include "residency/interop/timeline_recorder.hpp"

namespace examples {

/// The timeline of one pass, by events of the device, with its kernels by name.
template <class Device>
class Recorded {
public:
    explicit Recorded(Device& device) : recorder_{device, {.passes = 1}} {}

    /// Of what runs from now on. Between passes.
    template <class Weights>
    void begin(Weights& weights) {
        weights.observe(&recorder_);
        is_on_ = true;
    }
    /// Blocks until everything is complete.
    template <class Weights>
    void end(Weights& weights) {
        if (!std::exchange(is_on_, false)) { return; }
        weights.drain();
        timeline_ = recorder_.timeline();
        advice_.clear();
        const auto report = residency::try_report_stalls(weights);
        if (report && report->timed_passes > 0) { advice_ = report->lines(); }
        weights.observe(nullptr);
    }
    template <class Enqueue>
    void kernel(const char* name, typename Device::Stream stream, Enqueue&& enqueue) {
        if (!is_on_) { return enqueue(); }
        recorder_.kernel(name, stream, enqueue);
    }

    [[nodiscard]] const residency::PassTimeline& timeline() const noexcept { return timeline_; }
    /// Writes the timeline, and says what is in it.
    [[nodiscard]] std::string save(const std::string& path) const {
        timeline_.trace().save(path);
        const std::string gaps = recorder_.gaps().text();
        return "copies and kernels of the last pass" + (gaps.empty() ? "" : "; " + gaps);
    }
    /// Writes the page. Nothing is written for an empty path.
    void save_report(const std::string& path, std::string title, std::string device, std::string budget,
                     const residency::Statistics& statistics) const {
        if (path.empty()) { return; }
        residency::write_html_report(path, {.title = std::move(title),
                                            .device = std::move(device),
                                            .budget = std::move(budget),
                                            .statistics = statistics,
                                            .timeline = timeline_,
                                            .gaps = recorder_.gaps().text(),
                                            .advice = advice_});
    }

private:
    residency::TimelineRecorder<Device> recorder_;
    residency::PassTimeline timeline_;
    std::vector<std::string> advice_;
    bool is_on_ = false;
};

}  // namespace examples
