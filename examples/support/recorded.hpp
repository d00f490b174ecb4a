// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/core/measure/stall_report.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/timeline/html_report.hpp"
#include "residency/timeline/pass_timeline.hpp"
#include "residency/timeline/timeline_recorder.hpp"

namespace examples {

/// The timeline of the last passes, by events of the device, with their kernels by name.
template <class Device>
class Recorded {
public:
    explicit Recorded(Device& device, std::uint32_t passes = 1)
        : recorder_{device, {.passes = passes}}, passes_{passes} {}

    /// Whether what runs now is recorded.
    [[nodiscard]] bool is_on() const noexcept { return is_on_; }
    /// Of what runs from now on. Between passes.
    template <class Weights>
    void begin(Weights& weights) {
        weights.observe(&recorder_);
        is_on_ = true;
    }
    /// Blocks until everything is complete. `name`: begins each line of advice, where passes of several kinds are recorded.
    template <class Weights>
    void end(Weights& weights, const std::string& name = {}) {
        if (!std::exchange(is_on_, false)) { return; }
        weights.drain();
        timeline_ = recorder_.timeline();
        if (passes_ == 1) { advice_.clear(); }
        if (const auto report = residency::try_report_stalls(weights)) {
            // Where nothing was timed, what it says of the order and of the plan.
            for (const std::string& line :
                 report->timed_passes > 0 ? report->lines() : std::vector{report->divergences, report->off_plan}) {
                if (!line.empty()) { advice_.push_back(name.empty() ? line : name + ": " + line); }
            }
        }
        weights.observe(nullptr);
    }
    template <class Enqueue>
    void kernel(std::string_view name, typename Device::Stream stream, Enqueue&& enqueue) {
        kernel_begins(name, stream);
        enqueue();
        kernel_ends(stream);
    }

    /// The same in two calls.
    /// @{
    void kernel_begins(std::string_view name, typename Device::Stream stream) {
        if (is_on_) { recorder_.kernel_begins(name, stream); }
    }
    void kernel_ends(typename Device::Stream stream) {
        if (is_on_) { recorder_.kernel_ends(stream); }
    }
    /// @}

    [[nodiscard]] const residency::PassTimeline& timeline() const noexcept { return timeline_; }
    /// Writes the timeline, and says what is in it. Throws residency::Exception where something could not be recorded or written.
    [[nodiscard]] std::string save(const std::string& path) const {
        check();
        timeline_.trace().save(path);
        const std::string gaps = recorder_.gaps().text();
        return (passes_ == 1 ? "copies and kernels of the last pass"
                             : "copies and kernels of the last " + std::to_string(passes_) + " passes") +
               (gaps.empty() ? "" : "; " + gaps);
    }
    /// Writes the page. Nothing is written for an empty path. Throws as save() does.
    void save_report(const std::string& path, std::string title, std::string device, std::string budget,
                     const residency::Statistics& statistics) const {
        if (path.empty()) { return; }
        check();
        residency::write_html_report(path, {.title = std::move(title),
                                            .device = std::move(device),
                                            .budget = std::move(budget),
                                            .statistics = statistics,
                                            .timeline = timeline_,
                                            .gaps = recorder_.gaps().text(),
                                            .advice = advice_});
    }

private:
    void check() const {
        if (recorder_.failure()) { residency::throw_error(*recorder_.failure()); }
    }

    residency::TimelineRecorder<Device> recorder_;
    std::uint32_t passes_;
    residency::PassTimeline timeline_;
    std::vector<std::string> advice_;
    bool is_on_ = false;
};

}  // namespace examples
