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

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Measures the compute time of each step: from the end of the step's wait for its bytes to the end of its lease, plus the gap since the
/// step before (the gap after the last step counts to the last). Waits for bytes do not count. Of the second and the third pass, the
/// smaller time of each step is taken; the first pass may include work that happens once.
template <Device D>
class StepClock {
public:
    [[nodiscard]] Status open(D& device, std::uint32_t steps);
    void close(D& device) noexcept;

    [[nodiscard]] bool is_open() const noexcept { return !marks_.empty(); }
    [[nodiscard]] bool is_running() const noexcept { return !marks_.empty() && passes_ < passes_wanted; }
    [[nodiscard]] bool has_passes() const noexcept { return !marks_.empty() && passes_ >= passes_wanted; }

    /// Called after everything that the beginning of a pass enqueues.
    [[nodiscard]] Status pass_began(D& device, typename D::Stream stream);
    /// Called before everything that the end of a pass enqueues.
    [[nodiscard]] Status pass_ended(D& device, typename D::Stream stream);
    /// The gap that runs does not count: the pass waits in it.
    void interrupt() noexcept {
        if (is_running()) { gap_.reset(); }
    }
    /// Called before anything is enqueued for a step.
    [[nodiscard]] Status reach(D& device, std::uint32_t step, typename D::Stream stream);
    /// After its wait. Overlapping leases of one step are not timed. Precondition: it was reached.
    [[nodiscard]] Status start(D& device, std::uint32_t step, typename D::Stream stream);
    /// Called at the end of a lease if no event can be recorded.
    void drop(std::uint32_t step) noexcept { open_ -= std::exchange(marks_[step].is_started, false) ? 1U : 0U; }
    /// Called at the end of a lease. Does nothing if the step was not started, as with a ticket.
    [[nodiscard]] Status stop(D& device, std::uint32_t step, typename D::Stream stream);
    /// Called after everything that the end of a lease enqueues.
    [[nodiscard]] Status stopped(D& device, std::uint32_t step, typename D::Stream stream);

    /// By step; empty while there is nothing to read. If a pass left steps out, another one is measured, a few times.
    [[nodiscard]] Result<std::vector<std::chrono::nanoseconds>> read(D& device);

private:
    struct Mark {
        typename D::Event before{}, from{}, to{}, after{};
        std::optional<typename D::Event> gap;  // where that before it begins; none where steps overlap
        bool is_started = false;
        bool is_set = false;
    };
    static constexpr std::uint32_t passes_wanted = 2;
    static constexpr std::uint32_t attempts_wanted = 8;

    [[nodiscard]] Status begin_gap(D& device, typename D::Event event, typename D::Stream stream);

    std::vector<Mark> marks_;
    typename D::Event begin_{}, end_{};  // of the pass
    std::vector<typename D::Event> events_;
    std::vector<std::chrono::nanoseconds> first_;  // what the first of two passes took
    std::optional<typename D::Event> gap_;         // where what no step has taken yet begins
    std::optional<std::uint32_t> last_step_;       // that ended
    std::uint32_t open_ = 0;
    std::uint32_t passes_ = 0;
    std::uint32_t attempts_ = 0;
};

template <Device D>
Status StepClock<D>::open(D& device, std::uint32_t steps) {
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
        Mark& mark = marks_[i];
        created = create({&mark.before, &mark.from, &mark.to, &mark.after});
    }
    if (!created) {
        close(device);
        return created;
    }
    passes_ = attempts_ = open_ = 0;
    gap_.reset();
    return {};
}

template <Device D>
void StepClock<D>::close(D& device) noexcept {
    for (const auto event : events_) { static_cast<void>(device.destroy_event(event).has_value()); }
    events_.clear();
    marks_.clear();
    first_.clear();
}

template <Device D>
Status StepClock<D>::pass_began(D& device, typename D::Stream stream) {
    for (Mark& mark : marks_) { mark.is_set = false; }
    last_step_.reset();
    return begin_gap(device, begin_, stream);
}

template <Device D>
Status StepClock<D>::pass_ended(D& device, typename D::Stream stream) {
    ++passes_;
    auto done = device.record(end_, stream);
    if (!done || open_ > 0) { gap_.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::reach(D& device, std::uint32_t step, typename D::Stream stream) {
    Mark& mark = marks_[step];
    mark.is_set = false;
    mark.gap = open_ == 0 ? gap_ : std::nullopt;
    auto done = device.record(mark.before, stream);
    if (!done) { mark.gap.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::start(D& device, std::uint32_t step, typename D::Stream stream) {
    Mark& mark = marks_[step];
    if (mark.is_started) {  // leased twice at once, maybe on two streams: neither lease says how long the step takes
        drop(step);
        return {};
    }
    auto done = device.record(mark.from, stream);
    mark.is_started = static_cast<bool>(done);
    open_ += mark.is_started ? 1U : 0U;
    return done;
}

template <Device D>
Status StepClock<D>::stop(D& device, std::uint32_t step, typename D::Stream stream) {
    Mark& mark = marks_[step];
    if (!mark.is_started) { return {}; }
    drop(step);
    auto done = device.record(mark.to, stream);
    mark.is_set = static_cast<bool>(done);
    return done;
}

template <Device D>
Status StepClock<D>::stopped(D& device, std::uint32_t step, typename D::Stream stream) {
    if (!marks_[step].is_set) { return {}; }
    last_step_ = step;
    return begin_gap(device, marks_[step].after, stream);
}

template <Device D>
Result<std::vector<std::chrono::nanoseconds>> StepClock<D>::read(D& device) {
    std::vector<std::chrono::nanoseconds> measured;
    for (const Mark& mark : marks_) {
        if (mark.is_set) { continue; }
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
        if (!mark.gap) { continue; }
        elapsed = device.elapsed(*mark.gap, mark.before);
        if (!elapsed) { return elapsed.error(); }
        measured.back() += (std::max)(*elapsed, std::chrono::nanoseconds{});
    }
    if (gap_ && last_step_) {
        const auto elapsed = device.elapsed(*gap_, end_);
        if (!elapsed) { return elapsed.error(); }
        measured[*last_step_] += (std::max)(*elapsed, std::chrono::nanoseconds{});
    }
    if (first_.empty()) {
        first_ = std::move(measured);
        passes_ = passes_wanted - 1;
        return std::vector<std::chrono::nanoseconds>{};
    }
    for (std::size_t i = 0; i < measured.size(); ++i) { measured[i] = (std::min)(measured[i], first_[i]); }
    return measured;
}

template <Device D>
Status StepClock<D>::begin_gap(D& device, typename D::Event event, typename D::Stream stream) {
    gap_.reset();
    auto done = device.record(event, stream);
    if (done) { gap_ = event; }
    return done;
}

}}}  // namespace residency::RESIDENCY_ABI::core
