// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency::inline RESIDENCY_ABI::core {

/// Measures the steps of a pass on the device: an event after a step's wait for its bytes, one at the end of its lease. The second
/// pass counts: the first one may pay for what is made on first use.
template <Device D>
class StepClock {
public:
    [[nodiscard]] Status open(D& device, std::uint32_t steps) {
        marks_.resize(steps);
        for (Mark& mark : marks_) {
            for (auto* event : {&mark.from, &mark.to}) {
                auto created = device.create_event(Timing::on);
                if (!created) {
                    close(device);
                    return created.error();
                }
                *event = *created;
                events_.push_back(*created);
            }
        }
        passes_ = attempts_ = 0;
        return {};
    }
    void close(D& device) noexcept {
        for (const auto event : events_) { static_cast<void>(device.destroy_event(event).has_value()); }
        events_.clear();
        marks_.clear();
    }

    [[nodiscard]] bool is_open() const noexcept { return !marks_.empty(); }
    [[nodiscard]] bool is_running() const noexcept { return !marks_.empty() && passes_ < passes_wanted; }
    [[nodiscard]] bool has_passes() const noexcept { return !marks_.empty() && passes_ >= passes_wanted; }

    [[nodiscard]] Status start(D& device, std::uint32_t step, typename D::Stream stream) {
        Mark& mark = marks_[step];
        mark.is_set = false;
        auto done = device.record(mark.from, stream);
        mark.is_started = static_cast<bool>(done);
        return done;
    }
    /// Nothing where the step was not started, as one whose lease was a ticket.
    [[nodiscard]] Status stop(D& device, std::uint32_t step, typename D::Stream stream) {
        Mark& mark = marks_[step];
        if (!std::exchange(mark.is_started, false)) { return {}; }
        auto done = device.record(mark.to, stream);
        mark.is_set = static_cast<bool>(done);
        return done;
    }
    void pass_ended() noexcept { ++passes_; }

    /// By step; empty while some step is not complete yet. A pass that left steps out is measured again, a few times.
    [[nodiscard]] Result<std::vector<std::chrono::nanoseconds>> read(D& device) {
        std::vector<std::chrono::nanoseconds> measured;
        if (!std::ranges::all_of(marks_, &Mark::is_set)) {
            passes_ = 0;
            if (++attempts_ == attempts_wanted) { close(device); }
            return measured;
        }
        for (const Mark& mark : marks_) {
            const auto done = device.is_complete(mark.to);
            if (!done) { return done.error(); }
            if (!*done) { return std::vector<std::chrono::nanoseconds>{}; }
            auto elapsed = device.elapsed(mark.from, mark.to);
            if (!elapsed) { return elapsed.error(); }
            measured.push_back(*elapsed);
        }
        return measured;
    }

private:
    struct Mark {
        typename D::Event from{}, to{};
        bool is_started = false;
        bool is_set = false;
    };
    static constexpr std::uint32_t passes_wanted = 2;
    static constexpr std::uint32_t attempts_wanted = 8;

    std::vector<Mark> marks_;
    std::vector<typename D::Event> events_;
    std::uint32_t passes_ = 0;
    std::uint32_t attempts_ = 0;
};

}  // namespace residency::inline RESIDENCY_ABI::core
