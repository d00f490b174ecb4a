// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/measure/range_times.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Measures the compute times of steps, in whichever passes run them: from the end of the wait for the bytes of a lease to the end of the
/// lease, plus the gap since the lease before (the gap after the last lease of a pass counts to that). Waits for bytes do not count. A
/// lease of a range of steps is measured as a whole. Each step is measured `times_wanted` times, and of each range the smallest time is
/// kept. Leases that overlap are not measured: one's time would hold the kernels and the waits of the other.
///
/// Up to `times_wanted` passes are measured before the first of them is complete, so that a host that never waits learns as much: each has
/// events of its own, and is read once it is complete. Of a schedule of more than `most_steps` steps, a pass measures a part. Passes that run
/// by themselves are measured, or after open_in_graph() the launches of one graph, all steps in each, less what the events take there:
/// 1.3 us each on an H100, two of them in each time.
template <Device D>
class StepClock {
public:
    static constexpr std::uint32_t times_wanted = 3;
    /// A step that was leased but not timed in this number of measured passes in a row cannot be timed.
    static constexpr std::uint32_t most_misses = 8;
    static constexpr std::uint32_t most_steps = 2048;

    /// How often one step was measured, since measure_again().
    struct StepCount {
        std::uint32_t times = 0;
        std::uint32_t misses = 0;  ///< measured passes in a row that leased the step and did not time it
        bool overlaps = false;     ///< the last of these, because another lease was open

        [[nodiscard]] bool is_untimed() const noexcept { return times == 0 && misses >= most_misses; }
        [[nodiscard]] bool is_wanted() const noexcept { return times < times_wanted && misses < most_misses; }
        /// No pass that was measured leased it.
        [[nodiscard]] bool is_unseen() const noexcept { return times == 0 && misses == 0; }
        /// It has no time, because its leases overlap others.
        [[nodiscard]] bool is_overlapping() const noexcept { return times == 0 && overlaps; }
    };

    /// What was measured of one schedule.
    struct Measured {
        RangeTimes times;
        std::vector<StepCount> steps;    ///< by step; empty: nothing was measured
        std::uint64_t measurements = 0;  ///< leases that were measured and read
        std::uint64_t passes = 0;        ///< that were measured and read
        std::uint32_t idle_passes = 0;   ///< passes in a row that were read and timed nothing
    };

    /// Goes on with what was measured of this schedule, if it was. On failure it stays closed.
    [[nodiscard]] Status open(D& device, std::uint32_t steps);
    /// The next pass is recorded as a graph, and each launch of it is measured. Nothing was measured of this schedule.
    [[nodiscard]] Status open_in_graph(D& device, std::uint32_t steps) {
        is_in_graph_ = true;  // until close(), as after a failure
        return open(device, steps);
    }
    /// Gives the events back, and keeps what was measured. Nothing is measured until the next open(). Blocks until the last launch of the graph
    /// that records them is complete; events of graphs are kept for the next one.
    void close(D& device) noexcept;
    /// Calls close(), then gives back the events of graphs too. Precondition: there is no graph any more.
    void end(D& device) noexcept {
        close(device);
        destroy(device, graph_events_);
    }
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    [[nodiscard]] bool is_in_graph() const noexcept { return is_in_graph_; }
    /// The graph was launched. Precondition: its last launch was awaited.
    void graph_launched() noexcept { now().state = State::ended; }
    /// Blocks until the last launch of the graph is complete, and reads it.
    [[nodiscard]] Status await_graph(D& device) {
        if (recordings_.empty() || now().state != State::ended) { return {}; }
        if (auto complete = device.synchronize(now().end); !complete) { return complete; }
        return collect(device);
    }
    /// Another schedule: closes, and goes on with what was measured of that one. Gives what was measured of this one.
    [[nodiscard]] Measured exchange(D& device, Measured next) noexcept {
        close(device);
        return std::exchange(measured_, std::move(next));
    }

    /// A pass is measured now.
    [[nodiscard]] bool is_running() const noexcept { return !recordings_.empty() && now().state == State::running; }
    /// As many passes as can be measured at once have ended and could not be read yet: the next one is not measured.
    [[nodiscard]] bool is_full() const noexcept {
        return recordings_.size() == times_wanted &&
               std::ranges::all_of(recordings_, [](const Recording& each) { return each.state == State::ended; });
    }
    /// Called after everything that the beginning of a pass enqueues.
    [[nodiscard]] Status pass_began(D& device, typename D::Stream stream);
    /// Called before everything that the end of a pass enqueues.
    [[nodiscard]] Status pass_ended(D& device, typename D::Stream stream);
    /// A lease comes to a stream, and may wait there. No lease of steps that is open is timed then.
    void lease_comes() noexcept { ++leases_; }
    /// The gap that runs does not count: the pass waits in it.
    void interrupt() noexcept {
        if (!recordings_.empty()) { now().gap.reset(); }
    }
    /// A lease of the step is acquired in a way that cannot be timed.
    void miss(std::uint32_t step) noexcept {
        if (is_in_part({step, step + 1})) { mark({step, step + 1}).note({step, step + 1}); }
    }
    /// Called before anything is enqueued for a lease of these steps, after lease_comes(). `overlaps`: another lease of steps is open.
    [[nodiscard]] Status reach(D& device, const StepRange& steps, typename D::Stream stream, bool overlaps);
    /// After its wait. Leases of the same steps one after another count as one. Precondition: they were reached.
    [[nodiscard]] Status start(D& device, const StepRange& steps, typename D::Stream stream);
    /// Called at the end of a lease if no event can be recorded.
    void drop(const StepRange& steps) noexcept {
        if (is_in_part(steps)) { now().open -= std::exchange(mark(steps).is_started, false) ? 1U : 0U; }
    }
    /// Called at the end of a lease. Does nothing if it was not started, as with a ticket.
    [[nodiscard]] Status stop(D& device, const StepRange& steps, typename D::Stream stream);
    /// Called after everything that the end of a lease enqueues.
    [[nodiscard]] Status stopped(D& device, const StepRange& steps, typename D::Stream stream);

    /// Reads the passes that were measured and are complete. Does not block. A pass whose reading fails is not read.
    [[nodiscard]] Status collect(D& device);

    [[nodiscard]] const Measured& measured() const noexcept { return measured_; }
    /// Measures the steps anew that were measured as parts of ranges only: the next passes may have other ranges. False: there are none.
    [[nodiscard]] bool measure_again();

private:
    enum class State : std::uint8_t {
        idle,
        running,  // a pass is measured
        ended,    // it has ended, and is to be read
    };
    struct Mark {
        typename D::Event before{}, from{}, to{}, after{};
        std::optional<typename D::Event> gap;  // where that before it begins; none where leases overlap
        StepRange steps;                       // of the lease
        std::uint64_t pass = 0;                // that started it
        std::uint64_t lease = 0;               // the number of leases when it came
        bool was_leased = false;               // in the pass that is measured
        bool is_started = false;
        bool is_continued = false;  // by another lease in the same pass, right after the one before
        bool overlaps = false;      // another lease, in the pass that is measured
        bool is_set = false;
        bool has_after = false;

        void note(const StepRange& range) noexcept {
            steps = range;
            was_leased = true;
        }
    };

    /// What one pass records.
    struct Recording {
        std::vector<Mark> marks;  // of the steps [first, first + marks.size())
        std::uint32_t first = 0;
        typename D::Event begin{}, end{};      // of the pass
        std::optional<typename D::Event> gap;  // where what no lease has taken yet begins
        std::optional<StepRange> last;         // that ended
        State state = State::idle;
        std::uint32_t open = 0;  // leases that are timed
    };

    [[nodiscard]] Recording& now() noexcept { return recordings_[now_]; }
    [[nodiscard]] const Recording& now() const noexcept { return recordings_[now_]; }
    // A lease has the mark of its first step in the part that is measured.
    [[nodiscard]] std::size_t mark_of(const StepRange& steps) const noexcept {
        return steps.first > now().first ? steps.first - now().first : 0;
    }
    [[nodiscard]] bool is_in_part(const StepRange& steps) const noexcept {
        return !recordings_.empty() && steps.last > now().first && steps.last <= measured_.steps.size() &&
               mark_of(steps) < now().marks.size();
    }
    [[nodiscard]] bool is_wanted(const StepRange& steps) const noexcept {
        return is_in_part(steps) && is_any_wanted(steps);
    }
    [[nodiscard]] bool is_any_wanted(const StepRange& steps) const noexcept {
        for (std::uint32_t step = steps.first; step < steps.last; ++step) {
            if (measured_.steps[step].is_wanted()) { return true; }
        }
        return false;
    }
    [[nodiscard]] Mark& mark(const StepRange& steps) noexcept { return now().marks[mark_of(steps)]; }
    /// Another pass can be measured before the others are read. On failure nothing changes.
    [[nodiscard]] Status add_recording(D& device);
    /// The first step of the part of the schedule that the next pass measures. None: no step is wanted.
    [[nodiscard]] std::optional<std::uint32_t> choose_part() const noexcept;
    [[nodiscard]] Status read_pass(D& device, const Recording& recording);
    [[nodiscard]] Status begin_gap(D& device, typename D::Event event, typename D::Stream stream);
    [[nodiscard]] Status record(D& device, typename D::Event event, typename D::Stream stream) {
        if constexpr (GraphTimingDevice<D>) {
            if (is_in_graph_) { return device.record_in_graph(event, stream); }
        }
        return device.record(event, stream);
    }
    /// The time of a lease in the pass that was measured, each part less `events`; none: it was not timed.
    [[nodiscard]] Result<std::optional<std::chrono::nanoseconds>> read(D& device, const Recording& recording,
                                                                       const Mark& mark,
                                                                       std::chrono::nanoseconds events);
    /// What cannot be destroyed now is tried again by the next call.
    static void destroy(D& device, std::vector<typename D::Event>& events) noexcept {
        std::erase_if(events, [&](typename D::Event event) { return device.destroy_event(event).has_value(); });
    }
    /// What the two events at the ends of a time take in the graph: twice the shortest time from the one at the end of a lease to the next,
    /// with nothing between them. 0 for passes that run by themselves.
    [[nodiscard]] Result<std::chrono::nanoseconds> time_of_events(D& device, const Recording& recording);

    Measured measured_;
    bool is_open_ = false;
    bool is_in_graph_ = false;  // a graph records the events
    std::vector<Recording> recordings_;
    std::size_t now_ = 0;  // the recording of the last pass that was measured
    std::vector<typename D::Event> events_;
    std::vector<typename D::Event> graph_events_;  // that graphs record, which may be there after their timing
    std::uint64_t pass_ = 0;                       // measured passes so far
    std::uint64_t leases_ = 0;                     // that came to a stream so far
};

template <Device D>
Status StepClock<D>::open(D& device, std::uint32_t steps) {
    if (measured_.steps.empty()) {
        measured_.steps.resize(steps);
        measured_.times.open(steps);
    }
    if (auto added = add_recording(device); !added) {
        close(device);
        return added;
    }
    is_open_ = true;
    return {};
}

template <Device D>
Status StepClock<D>::add_recording(D& device) {
    const auto steps = static_cast<std::uint32_t>(measured_.steps.size());
    std::vector<typename D::Event>& events = is_in_graph_ ? graph_events_ : events_;
    Recording recording;
    recording.marks.resize(is_in_graph_ ? steps : (std::min)(steps, most_steps));
    std::size_t used = recordings_.size() * (2 + 4 * recording.marks.size());
    const auto create = [&](std::initializer_list<typename D::Event*> wanted) -> Status {
        for (auto* event : wanted) {
            if (used == events.size()) {
                auto created = device.create_event(Timing::on);
                if (!created) { return created.error(); }
                events.push_back(*created);
            }
            *event = events[used++];
        }
        return {};
    };
    events.reserve(used + 2 + 4 * recording.marks.size());
    if (auto created = create({&recording.begin, &recording.end}); !created) { return created; }
    for (Mark& mark : recording.marks) {
        if (auto created = create({&mark.before, &mark.from, &mark.to, &mark.after}); !created) { return created; }
    }
    recordings_.push_back(std::move(recording));
    return {};
}

template <Device D>
void StepClock<D>::close(D& device) noexcept {
    if (is_in_graph_ && !recordings_.empty() && now().state == State::ended) {
        static_cast<void>(device.synchronize(now().end).has_value());
    }
    destroy(device, events_);
    recordings_.clear();
    now_ = 0;
    is_open_ = is_in_graph_ = false;
}

template <Device D>
std::optional<std::uint32_t> StepClock<D>::choose_part() const noexcept {
    const auto size = static_cast<std::uint32_t>(measured_.steps.size());
    const auto length = static_cast<std::uint32_t>(now().marks.size());
    std::uint32_t first = now().first;
    for (std::uint32_t parts = 0; parts < (size + length - 1) / length; ++parts) {
        if (pass_ > 0 || parts > 0) { first = size - first <= length ? 0 : first + length; }
        for (std::uint32_t step = first; step < size && step - first < length; ++step) {
            if (measured_.steps[step].is_wanted()) { return first; }
        }
    }
    return std::nullopt;
}

template <Device D>
Status StepClock<D>::pass_began(D& device, typename D::Stream stream) {
    const auto first = choose_part();
    if (!first) { return {}; }
    auto idle = std::ranges::find(recordings_, State::idle, &Recording::state);
    if (idle == recordings_.end()) {
        if (is_in_graph_ || recordings_.size() == times_wanted) { return {}; }
        if (auto added = add_recording(device); !added) { return added; }
        idle = std::prev(recordings_.end());
    }
    now_ = static_cast<std::size_t>(idle - recordings_.begin());
    ++pass_;
    Recording& recording = now();
    recording.state = State::running;
    for (Mark& mark : recording.marks) {
        // A lease of an earlier pass that is still open is not timed any more.
        mark.is_set = mark.has_after = mark.was_leased = mark.is_continued = mark.overlaps = mark.is_started = false;
    }
    recording.open = 0;
    recording.first = *first;
    recording.last.reset();
    return begin_gap(device, recording.begin, stream);
}

template <Device D>
Status StepClock<D>::pass_ended(D& device, typename D::Stream stream) {
    auto done = record(device, now().end, stream);
    now().state = done && !is_in_graph_ ? State::ended : State::idle;
    if (now().open > 0) { now().gap.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::reach(D& device, const StepRange& steps, typename D::Stream stream, bool overlaps) {
    if (!is_wanted(steps)) {
        now().gap.reset();
        return {};
    }
    Mark& mark = this->mark(steps);
    mark.is_continued =
        mark.is_set && mark.pass == pass_ && mark.steps == steps && now().last == steps && now().open == 0;
    mark.note(steps);
    mark.is_set = false;
    mark.overlaps = mark.overlaps || overlaps;
    mark.lease = leases_;
    if (mark.overlaps) { now().gap.reset(); }
    if (mark.is_continued || mark.overlaps) { return {}; }
    mark.gap = now().open == 0 ? now().gap : std::nullopt;
    auto done = record(device, mark.before, stream);
    if (!done) { mark.gap.reset(); }
    return done;
}

template <Device D>
Status StepClock<D>::start(D& device, const StepRange& steps, typename D::Stream stream) {
    if (!is_wanted(steps)) { return {}; }
    Mark& mark = this->mark(steps);
    if (mark.is_started) {  // leased twice at once, maybe on two streams: neither lease says how long the steps take
        mark.overlaps = true;
        drop(steps);
    }
    if (mark.overlaps) { return {}; }
    auto done = mark.is_continued ? Status{} : record(device, mark.from, stream);
    mark.is_started = static_cast<bool>(done);
    mark.pass = pass_;
    now().open += mark.is_started ? 1U : 0U;
    return done;
}

template <Device D>
Status StepClock<D>::stop(D& device, const StepRange& steps, typename D::Stream stream) {
    if (!is_in_part(steps) || !mark(steps).is_started) { return {}; }
    drop(steps);
    Mark& mark = this->mark(steps);
    if (mark.pass != pass_ || mark.steps != steps || now().state == State::idle) { return {}; }
    if (mark.lease != leases_) {  // another lease came while this one was open
        mark.overlaps = true;
        return {};
    }
    auto done = record(device, mark.to, stream);
    mark.is_set = static_cast<bool>(done);
    return done;
}

template <Device D>
Status StepClock<D>::stopped(D& device, const StepRange& steps, typename D::Stream stream) {
    if (!is_in_part(steps)) { return {}; }
    now().last = steps;
    now().gap.reset();
    if (!mark(steps).is_set && !is_wanted({steps.last, steps.last + 1})) { return {}; }
    Mark& mark = this->mark(steps);
    auto done = begin_gap(device, mark.after, stream);
    mark.has_after = mark.is_set && done;
    return done;
}

template <Device D>
Result<std::chrono::nanoseconds> StepClock<D>::time_of_events(D& device, const Recording& recording) {
    std::optional<std::chrono::nanoseconds> shortest;
    for (const Mark& mark : recording.marks) {
        if (!is_in_graph_ || !mark.has_after) { continue; }
        const auto time = device.elapsed(mark.to, mark.after);
        if (!time) { return time.error(); }
        shortest = shortest ? (std::min)(*shortest, *time) : *time;
    }
    return shortest ? 2 * (std::max)(*shortest, std::chrono::nanoseconds{}) : std::chrono::nanoseconds{};
}

template <Device D>
Result<std::optional<std::chrono::nanoseconds>> StepClock<D>::read(D& device, const Recording& recording,
                                                                   const Mark& mark, std::chrono::nanoseconds events) {
    using Time = std::optional<std::chrono::nanoseconds>;
    if (!mark.is_set) { return Time{}; }
    const auto done = device.is_complete(mark.to);
    if (!done) { return done.error(); }
    if (!*done) { return Time{}; }
    auto time = device.elapsed(mark.from, mark.to);
    if (!time) { return time.error(); }
    *time = (std::max)(*time - events, std::chrono::nanoseconds{});
    const auto add_gap = [&](typename D::Event from, typename D::Event to) -> Status {
        const auto gap = device.elapsed(from, to);
        if (!gap) { return gap.error(); }
        *time += (std::max)(*gap - events, std::chrono::nanoseconds{});
        return {};
    };
    if (mark.gap) {
        if (auto added = add_gap(*mark.gap, mark.before); !added) { return added.error(); }
    }
    if (recording.gap && recording.last == mark.steps) {
        if (auto added = add_gap(*recording.gap, recording.end); !added) { return added.error(); }
    }
    return Time{*time};
}

template <Device D>
Status StepClock<D>::collect(D& device) {
    Status all;
    for (Recording& recording : recordings_) {
        if (recording.state != State::ended) { continue; }
        const auto ended = device.is_complete(recording.end);
        if (ended && !*ended) { continue; }
        recording.state = State::idle;
        if (auto read = ended ? read_pass(device, recording) : Status{ended.error()}; !read) { all = std::move(read); }
    }
    return all;
}

template <Device D>
Status StepClock<D>::read_pass(D& device, const Recording& recording) {
    ++measured_.passes;
    const auto events = time_of_events(device, recording);
    if (!events) { return events.error(); }
    bool is_idle = true;
    for (const Mark& mark : recording.marks) {
        if (!mark.was_leased || !is_any_wanted(mark.steps)) { continue; }
        const auto time = read(device, recording, mark, *events);
        if (!time) { return time.error(); }
        for (std::uint32_t step = mark.steps.first; step < mark.steps.last; ++step) {
            StepCount& count = measured_.steps[step];
            count.misses = *time ? 0 : count.misses + 1;
            count.times += *time ? 1U : 0U;
            count.overlaps = !*time && mark.overlaps;
        }
        if (!*time) { continue; }
        measured_.times.add(mark.steps, **time);
        ++measured_.measurements;
        is_idle = false;
    }
    measured_.idle_passes = is_idle ? measured_.idle_passes + 1 : 0;
    return {};
}

template <Device D>
bool StepClock<D>::measure_again() {
    const std::vector<bool> is_alone = measured_.times.timed_alone();
    bool is_any = false;
    for (std::size_t step = 0; step < measured_.steps.size(); ++step) {
        if (is_alone[step] || measured_.steps[step].times == 0) { continue; }
        measured_.steps[step] = {};
        is_any = true;
    }
    return is_any;
}

template <Device D>
Status StepClock<D>::begin_gap(D& device, typename D::Event event, typename D::Stream stream) {
    now().gap.reset();
    auto done = record(device, event, stream);
    if (done) { now().gap = event; }
    return done;
}

}}}  // namespace residency::RESIDENCY_ABI::core
