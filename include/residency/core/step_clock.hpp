// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency::inline RESIDENCY_ABI::core {

/// Measures the steps of a pass on the device: events before and after a step's wait for its bytes, and at the end of its lease. What
/// the pass does between two leases counts to the step that follows, after the last one to that. The second pass counts: the first
/// one may pay for what is made on first use.
template <Device D>
class StepClock {
public:
    [[nodiscard]] Status open(D& device, std::uint32_t steps) {
        marks_.resize(steps);
        const auto create = [&](std::initializer_list<typename D::Event*> events) -> Status {
            for (auto* event : events) {
                auto created = device.create_event(Timing::on);
                if (!created) { return created.error(); }
                *event = *created;
                events_.push_back(*created);
            }
            return {};
        };
        Status created = create({&begin_, &end_});
        for (std::size_t i = 0; i < marks_.size() && created; ++i) {
            created = create({&marks_[i].before, &marks_[i].from, &marks_[i].to});
        }
        if (!created) {
            close(device);
            return created;
        }
        passes_ = attempts_ = open_ = 0;
        last_ = std::nullopt;
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

    [[nodiscard]] Status pass_began(D& device, typename D::Stream stream) {
        auto done = device.record(begin_, stream);
        last_ = done && open_ == 0 ? std::optional{begin_} : std::nullopt;
        return done;
    }
    [[nodiscard]] Status pass_ended(D& device, typename D::Stream stream) {
        ++passes_;
        auto done = device.record(end_, stream);
        last_ = done && last_ ? std::optional{end_} : std::nullopt;
        return done;
    }
    /// Before the step's wait.
    [[nodiscard]] Status reach(D& device, std::uint32_t step, typename D::Stream stream) {
        Mark& mark = marks_[step];
        mark.is_set = false;
        mark.after = last_;
        return device.record(mark.before, stream);
    }
    /// After it. Precondition: it was reached.
    [[nodiscard]] Status start(D& device, std::uint32_t step, typename D::Stream stream) {
        Mark& mark = marks_[step];
        auto done = device.record(mark.from, stream);
        open_ -= std::exchange(mark.is_started, static_cast<bool>(done)) ? 1U : 0U;
        open_ += mark.is_started ? 1U : 0U;
        last_ = std::nullopt;
        return done;
    }
    /// Nothing where the step was not started, as one whose lease was a ticket.
    [[nodiscard]] Status stop(D& device, std::uint32_t step, typename D::Stream stream) {
        Mark& mark = marks_[step];
        if (!std::exchange(mark.is_started, false)) { return {}; }
        auto done = device.record(mark.to, stream);
        mark.is_set = static_cast<bool>(done);
        if (--open_ == 0 && mark.is_set) {
            last_ = mark.to;
            last_step_ = step;
        }
        return done;
    }

    /// By step; empty while some step is not complete yet. A pass that left steps out is measured again, a few times.
    [[nodiscard]] Result<std::vector<std::chrono::nanoseconds>> read(D& device) {
        std::vector<std::chrono::nanoseconds> measured;
        if (!std::ranges::all_of(marks_, &Mark::is_set)) {
            passes_ = 0;
            if (++attempts_ == attempts_wanted) { close(device); }
            return measured;
        }
        const auto ended = device.is_complete(end_);
        if (!ended) { return ended.error(); }
        if (!*ended) { return measured; }
        for (const Mark& mark : marks_) {
            const auto done = device.is_complete(mark.to);
            if (!done) { return done.error(); }
            if (!*done) { return std::vector<std::chrono::nanoseconds>{}; }
            auto elapsed = device.elapsed(mark.from, mark.to);
            if (!elapsed) { return elapsed.error(); }
            measured.push_back(*elapsed);
            if (!mark.after) { continue; }
            elapsed = device.elapsed(*mark.after, mark.before);
            if (!elapsed) { return elapsed.error(); }
            measured.back() += (std::max)(*elapsed, std::chrono::nanoseconds{});
        }
        if (last_) {
            const auto elapsed = device.elapsed(marks_[last_step_].to, end_);
            if (!elapsed) { return elapsed.error(); }
            measured[last_step_] += (std::max)(*elapsed, std::chrono::nanoseconds{});
        }
        return measured;
    }

private:
    struct Mark {
        typename D::Event before{}, from{}, to{};
        std::optional<typename D::Event> after;  // where what was measured before it ends; none where steps overlap
        bool is_started = false;
        bool is_set = false;
    };
    static constexpr std::uint32_t passes_wanted = 2;
    static constexpr std::uint32_t attempts_wanted = 8;

    std::vector<Mark> marks_;
    typename D::Event begin_{}, end_{};      // of the pass
    std::optional<typename D::Event> last_;  // none while a step is open
    std::uint32_t last_step_ = 0, open_ = 0;
    std::vector<typename D::Event> events_;
    std::uint32_t passes_ = 0;
    std::uint32_t attempts_ = 0;
};

}  // namespace residency::inline RESIDENCY_ABI::core
