// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Measures the compute time of each step, in whichever passes run it: from the end of the step's wait for its bytes to the end of its
/// lease, plus the gap since the step before (the gap after the last step of a pass counts to that). Waits for bytes do not count. A
/// step is timed `times_wanted` times, and the smallest time is kept.
///
/// One pass at a time is measured, and read once it is complete: passes that begin meanwhile are not measured. Of a schedule of more than
/// `most_steps` steps, a pass measures a part.
template <Device D>
class StepClock {
public:
    static constexpr std::uint32_t times_wanted = 3;
    /// A step that so many measured passes in a row leased and did not time cannot be timed.
    static constexpr std::uint32_t most_misses = 8;
    static constexpr std::uint32_t most_steps = 2048;

    /// What is known of one step.
    struct StepTime {
        std::chrono::nanoseconds smallest{};  ///< of the times so far; unset while there are none
        std::uint32_t times = 0;
        std::uint32_t misses = 0;  ///< measured passes in a row that leased the step and did not time it

        [[nodiscard]] bool is_untimed() const noexcept { return times == 0 && misses >= most_misses; }
        [[nodiscard]] bool is_wanted() const noexcept { return times < times_wanted && misses < most_misses; }
    };

    [[nodiscard]] Status open(D& device, std::uint32_t steps);
    /// Forgets what was measured.
    void close(D& device) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return !steps_.empty(); }

    /// A pass is measured now.
    [[nodiscard]] bool is_running() const noexcept { return state_ == State::running; }
    /// Called after everything that the beginning of a pass enqueues. The pass is measured if the last one was read.
    [[nodiscard]] Status pass_began(D& device, typename D::Stream stream);
    /// Called before everything that the end of a pass enqueues.
    [[nodiscard]] Status pass_ended(D& device, typename D::Stream stream);
    /// The gap that runs does not count: the pass waits in it.
    void interrupt() noexcept { gap_.reset(); }
    /// A lease of the step is acquired in a way that cannot be timed.
    void miss(std::uint32_t step) noexcept {
        if (is_in_part(step)) { mark(step).was_leased = true; }
    }
    /// Called before anything is enqueued for a step.
    [[nodiscard]] Status reach(D& device, std::uint32_t step, typename D::Stream stream);
    /// After its wait. Overlapping leases of one step are not timed; leases of it one after another count as one. Precondition: it was
    /// reached.
    [[nodiscard]] Status start(D& device, std::uint32_t step, typename D::Stream stream);
    /// Called at the end of a lease if no event can be recorded.
    void drop(std::uint32_t step) noexcept {
        if (is_in_part(step)) { open_ -= std::exchange(mark(step).is_started, false) ? 1U : 0U; }
    }
    /// Called at the end of a lease. Does nothing if the step was not started, as with a ticket.
    [[nodiscard]] Status stop(D& device, std::uint32_t step, typename D::Stream stream);
    /// Called after everything that the end of a lease enqueues.
    [[nodiscard]] Status stopped(D& device, std::uint32_t step, typename D::Stream stream);

    /// Reads the pass that was measured, if it is complete. Does not block. After a failure it is not read.
    [[nodiscard]] Status collect(D& device);

    /// By step.
    [[nodiscard]] std::span<const StepTime> steps() const noexcept { return steps_; }
    /// Passes in a row that were read and timed nothing.
    [[nodiscard]] std::uint32_t idle_passes() const noexcept { return idle_passes_; }

private:
    enum class State : std::uint8_t {
        idle,
        running,  // a pass is measured
        ended,    // it has ended, and is to be read
    };
    struct Mark {
        typename D::Event before{}, from{}, to{}, after{};
        std::optional<typename D::Event> gap;  // where that before it begins; none where steps overlap
        std::uint64_t pass = 0;                // that started it
        bool was_leased = false;               // in the pass that is measured
        bool is_started = false;
        bool is_continued = false;  // by another lease in the same pass, right after the one before
        bool is_set = false;
    };

    [[nodiscard]] bool is_in_part(std::uint32_t step) const noexcept {
        return step >= first_ && step - first_ < marks_.size() && step < steps_.size();
    }
    [[nodiscard]] bool is_wanted(std::uint32_t step) const noexcept {
        return is_in_part(step) && steps_[step].is_wanted();
    }
    [[nodiscard]] Mark& mark(std::uint32_t step) noexcept { return marks_[step - first_]; }
    /// Chooses the part of the schedule that the next pass measures. False: no step is wanted.
    [[nodiscard]] bool choose_part() noexcept;
    [[nodiscard]] Status begin_gap(D& device, typename D::Event event, typename D::Stream stream);
    /// The time of a step in the pass that was measured; none: it was not timed.
    [[nodiscard]] Result<std::optional<std::chrono::nanoseconds>> read(D& device, std::uint32_t step);

    std::vector<StepTime> steps_;
    std::vector<Mark> marks_;  // of the steps [first_, first_ + marks_.size())
    std::uint32_t first_ = 0;
    typename D::Event begin_{}, end_{};  // of the pass
    std::vector<typename D::Event> events_;
    std::optional<typename D::Event> gap_;    // where what no step has taken yet begins
    std::optional<std::uint32_t> last_step_;  // that ended
    State state_ = State::idle;
    std::uint64_t pass_ = 0;  // measured passes so far
    std::uint32_t open_ = 0;  // leases that are timed
    std::uint32_t idle_passes_ = 0;
};

template <Device D>
Status StepClock<D>::open(D& device, std::uint32_t steps) {
    const auto create = [&](std::initializer_list<typename D::Event*> events) -> Status {
        for (auto* event : events) {
            auto created = device.create_event(Timing::on);
            if (!created) { return created.error(); }
            *event = *created;
            events_.push_back(*created);
        }
        return {};
    };
    marks_.resize((std::min)(steps, most_steps));
    events_.reserve(2 + 4 * marks_.size());
    Status created = create({&begin_, &end_});
    for (std::size_t i = 0; i < marks_.size() && created; ++i) {
        Mark& mark = marks_[i];
        created = create({&mark.before, &mark.from, &mark.to, &mark.after});
    }
    if (!created) {
        close(device);
        return created;
    }
    steps_.resize(steps);
    return {};
}

template <Device D>
void StepClock<D>::close(D& device) noexcept {
    // An event that cannot be destroyed now is tried again by the next call.
    std::erase_if(events_, [&](typename D::Event event) { return device.destroy_event(event).has_value(); });
    marks_.clear();
    steps_.clear();
    gap_.reset();
    last_step_.reset();
    state_ = State::idle;
    first_ = open_ = idle_passes_ = 0;
}

template <Device D>
bool StepClock<D>::choose_part() noexcept {
    const auto size = static_cast<std::uint32_t>(steps_.size());
    const auto length = static_cast<std::uint32_t>(marks_.size());
    std::uint32_t first = first_;
    for (std::uint32_t parts = 0; parts < (size + length - 1) / length; ++parts) {
        if (pass_ > 0 || parts > 0) { first = size - first <= length ? 0 : first + length; }
        for (std::uint32_t step = first; step < size && step - first < length; ++step) {
            if (!steps_[step].is_wanted()) { continue; }
            if (first != first_) {  // leases of the part before are not timed any more
                for (Mark& mark : marks_) { mark.is_started = false; }
                open_ = 0;
            }
            first_ = first;
            return true;
        }
    }
    return false;
}

template <Device D>
Status StepClock<D>::pass_began(D& device, typename D::Stream stream) {
    if (state_ != State::idle || !choose_part()) { return {}; }
    ++pass_;
    state_ = State::running;
    for (Mark& mark : marks_) { mark.is_set = mark.was_leased = mark.is_continued = false; }
    last_step_.reset();
    return begin_gap(device, begin_, stream);
}

template <Device D>
Status StepClock<D>::pass_ended(D& device, typename D::Stream stream) {
    auto done = device.record(end_, stream);
    state_ = done ? State::ended : State::idle;
    if (open_ > 0) { gap_.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::reach(D& device, std::uint32_t step, typename D::Stream stream) {
    if (!is_wanted(step)) {
        gap_.reset();
        return {};
    }
    Mark& mark = this->mark(step);
    mark.was_leased = true;
    mark.is_continued = mark.is_set && mark.pass == pass_ && last_step_ == step && open_ == 0;
    mark.is_set = false;
    if (mark.is_continued) { return {}; }
    mark.gap = open_ == 0 ? gap_ : std::nullopt;
    auto done = device.record(mark.before, stream);
    if (!done) { mark.gap.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::start(D& device, std::uint32_t step, typename D::Stream stream) {
    if (!is_wanted(step)) { return {}; }
    Mark& mark = this->mark(step);
    if (mark.is_started) {  // leased twice at once, maybe on two streams: neither lease says how long the step takes
        drop(step);
        return {};
    }
    auto done = mark.is_continued ? Status{} : device.record(mark.from, stream);
    mark.is_started = static_cast<bool>(done);
    mark.pass = pass_;
    open_ += mark.is_started ? 1U : 0U;
    return done;
}

template <Device D>
Status StepClock<D>::stop(D& device, std::uint32_t step, typename D::Stream stream) {
    if (!is_in_part(step) || !mark(step).is_started) { return {}; }
    drop(step);
    if (mark(step).pass != pass_ || state_ == State::idle) { return {}; }
    auto done = device.record(mark(step).to, stream);
    mark(step).is_set = static_cast<bool>(done);
    return done;
}

template <Device D>
Status StepClock<D>::stopped(D& device, std::uint32_t step, typename D::Stream stream) {
    if (!is_in_part(step)) { return {}; }
    last_step_ = step;
    gap_.reset();
    if (!mark(step).is_set && !is_wanted(step + 1)) { return {}; }
    return begin_gap(device, mark(step).after, stream);
}

template <Device D>
Result<std::optional<std::chrono::nanoseconds>> StepClock<D>::read(D& device, std::uint32_t step) {
    using Time = std::optional<std::chrono::nanoseconds>;
    const Mark& mark = this->mark(step);
    if (!mark.is_set) { return Time{}; }
    const auto done = device.is_complete(mark.to);
    if (!done) { return done.error(); }
    if (!*done) { return Time{}; }
    auto time = device.elapsed(mark.from, mark.to);
    if (!time) { return time.error(); }
    const auto add_gap = [&](typename D::Event from, typename D::Event to) -> Status {
        const auto gap = device.elapsed(from, to);
        if (!gap) { return gap.error(); }
        *time += (std::max)(*gap, std::chrono::nanoseconds{});
        return {};
    };
    if (mark.gap) {
        if (auto added = add_gap(*mark.gap, mark.before); !added) { return added.error(); }
    }
    if (gap_ && last_step_ == step) {
        if (auto added = add_gap(*gap_, end_); !added) { return added.error(); }
    }
    return Time{*time};
}

template <Device D>
Status StepClock<D>::collect(D& device) {
    if (state_ != State::ended) { return {}; }
    const auto ended = device.is_complete(end_);
    if (ended && !*ended) { return {}; }
    state_ = State::idle;
    if (!ended) { return ended.error(); }
    bool is_idle = true;
    for (std::size_t i = 0; i < marks_.size() && first_ + i < steps_.size(); ++i) {
        const auto step = static_cast<std::uint32_t>(first_ + i);
        if (!marks_[i].was_leased || !steps_[step].is_wanted()) { continue; }
        const auto time = read(device, step);
        if (!time) { return time.error(); }
        StepTime& known = steps_[step];
        if (!*time) {
            ++known.misses;
            continue;
        }
        known.smallest = known.times == 0 ? **time : (std::min)(known.smallest, **time);
        known.misses = 0;
        ++known.times;
        is_idle = false;
    }
    idle_passes_ = is_idle ? idle_passes_ + 1 : 0;
    return {};
}

template <Device D>
Status StepClock<D>::begin_gap(D& device, typename D::Event event, typename D::Stream stream) {
    gap_.reset();
    auto done = device.record(event, stream);
    if (done) { gap_ = event; }
    return done;
}

}}}  // namespace residency::RESIDENCY_ABI::core
