// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/fifo.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A wait of a stream for bytes, as the host enqueued it.
struct StallWait {
    StepRange steps{UINT32_MAX, UINT32_MAX};  ///< of the lease
    StorageId storage = no_storage;           ///< the last to arrive
    std::uint64_t arrival = 0;                ///< the point of the copy stream that is waited for
    std::uint64_t pass = 0;
    std::optional<StallCause> miss;  ///< set for a demand miss
};

/// Measures how long streams wait for bytes, and why, by events around each wait and around each call of copies. A demand miss is a cause
/// by itself. cause_of_stall() finds the others: a call of copies waited for memory because its stream waited for a use, or a prefetch
/// found no room. Times are read once the device is done with them; no call blocks.
template <Device D>
class StallClock {
public:
    using Event = typename D::Event;
    using Stream = typename D::Stream;

    /// Shorter ones are not told from the cost of the events.
    static constexpr std::chrono::nanoseconds least_stall{5'000};

    /// A stall that was read.
    struct Stall {
        StallWait wait;
        std::chrono::nanoseconds time{};
        StallCause cause = StallCause::link;
    };

    /// `dropped_prefetches` counts those for which there was no room; it outlives this object.
    StallClock(D& device, const std::uint64_t& dropped_prefetches)
        : device_{&device}, dropped_prefetches_{&dropped_prefetches} {}
    StallClock(const StallClock&) = delete;
    StallClock& operator=(const StallClock&) = delete;

    /// Another schedule: what was measured of the steps is forgotten. Precondition: the streams are drained, and what was read is collected.
    void start(std::uint32_t steps) {
        current_.assign(steps, {});
        last_.assign(steps, {});
        forget_stall();
    }
    void close() noexcept {
        for (const Event event : events_) { static_cast<void>(device_->destroy_event(event).has_value()); }
        events_.clear();
        free_.clear();
        copies_.clear();
        waits_.clear();
    }
    /// Forgets the events without a device call.
    void abandon() noexcept {
        events_.clear();
        close();
    }

    /// The copy stream is made to wait for a use of memory.
    void copy_waits() noexcept { waits_for_room_ = true; }
    /// Before a call of copies.
    void copies_begin(Stream copy_stream) noexcept { copy_start_ = record(copy_stream); }
    /// Behind it.
    void copies_end(Stream copy_stream, std::uint64_t arrival) noexcept;
    /// Before a wait.
    void wait_begins(Stream stream) noexcept { wait_start_ = record(stream); }
    /// Behind it.
    void wait_ended(Stream stream, const StallWait& wait) noexcept;
    /// Behind everything of a pass.
    void pass_ended(Stream stream) noexcept;

    /// Reads what is complete, calls `handle(stall)` for each, in the order of the waits. `planned_seconds`: of each step, as the plan assumes;
    /// may be empty.
    template <class Handler>
    [[nodiscard]] Status collect(std::span<const double> planned_seconds, const Handler& handle);

    [[nodiscard]] const StallStatistics& statistics() const noexcept { return statistics_; }
    /// By step of the schedule: of the last pass that was timed and is complete.
    [[nodiscard]] std::span<const Stalls> by_step() const noexcept { return last_; }

private:
    static constexpr std::size_t most_events = 16384;

    struct TimedCopy {
        std::uint64_t arrival = 0;
        Event start{}, end{};
        bool waited_for_room = false;
        bool follows = false;  // the call before was timed, too
    };
    struct TimedWait {
        StallWait wait;
        Event start{}, end{};
        bool ends_pass = false;  // no wait: `end` is behind everything of a pass
    };

    [[nodiscard]] std::optional<Event> take() noexcept;
    [[nodiscard]] std::optional<Event> record(Stream stream) noexcept;
    void give(Event event) { free_.push_back(event); }
    void forget_stall() noexcept {
        if (after_stall_) { give(*after_stall_); }
        after_stall_.reset();
        idle_room_ = idle_late_ = {};
    }
    [[nodiscard]] Status read_copy();
    template <class Handler>
    [[nodiscard]] Status read_wait(std::span<const double> planned_seconds, const Handler& handle);
    /// What the plan assumes of the steps from the stall before up to this one; unset: it says nothing.
    [[nodiscard]] std::optional<double> planned_since_stall(std::span<const double> planned_seconds,
                                                            const StallWait& wait) const noexcept;

    D* device_;
    const std::uint64_t* dropped_prefetches_;
    std::uint64_t dropped_before_ = 0;  // as of the last call of copies
    std::vector<Event> events_;         // all
    std::vector<Event> free_;
    Fifo<TimedCopy> copies_;  // in the order of the copy stream
    Fifo<TimedWait> waits_;
    std::optional<Event> copy_start_, wait_start_;
    bool waits_for_room_ = false;       // since the last call of copies
    bool was_copy_timed_ = false;       // the last call of copies
    std::optional<Event> copy_end_;     // of the last call that was read
    std::optional<Event> after_stall_;  // the end of the last stall
    StallWait last_stall_;
    std::chrono::nanoseconds idle_room_{}, idle_late_{};  // of the link, since the last stall
    StallStatistics statistics_;
    Stalls pass_;                         // that is read
    std::vector<Stalls> current_, last_;  // by step: of that pass, and of the last one
};

template <Device D>
auto StallClock<D>::take() noexcept -> std::optional<Event> {
    if (!free_.empty()) {
        const Event event = free_.back();
        free_.pop_back();
        return event;
    }
    if (events_.size() == most_events) { return std::nullopt; }
    auto created = device_->create_event(Timing::on);
    if (!created) { return std::nullopt; }
    events_.push_back(*created);
    return *created;
}

template <Device D>
auto StallClock<D>::record(Stream stream) noexcept -> std::optional<Event> {
    const auto event = take();
    if (event && !device_->record(*event, stream)) {
        give(*event);
        return std::nullopt;
    }
    return event;
}

template <Device D>
void StallClock<D>::copies_end(Stream copy_stream, std::uint64_t arrival) noexcept {
    const bool had_no_room = std::exchange(dropped_before_, *dropped_prefetches_) != *dropped_prefetches_;
    const bool waited = std::exchange(waits_for_room_, false) || had_no_room;
    const auto start = std::exchange(copy_start_, std::nullopt);
    const auto end = start ? record(copy_stream) : std::nullopt;
    const bool follows = std::exchange(was_copy_timed_, end.has_value());
    if (end) {
        copies_.push({arrival, *start, *end, waited, follows});
    } else if (start) {
        give(*start);
    }
}

template <Device D>
void StallClock<D>::wait_ended(Stream stream, const StallWait& wait) noexcept {
    const auto start = std::exchange(wait_start_, std::nullopt);
    const auto end = start ? record(stream) : std::nullopt;
    if (end) {
        waits_.push({wait, *start, *end, false});
        return;
    }
    if (start) { give(*start); }
    ++statistics_.not_timed;
}

template <Device D>
void StallClock<D>::pass_ended(Stream stream) noexcept {
    if (const auto end = record(stream)) { waits_.push({{}, *end, *end, true}); }
}

template <Device D>
template <class Handler>
Status StallClock<D>::collect(std::span<const double> planned_seconds, const Handler& handle) {
    while (!waits_.empty()) {
        const auto done = device_->is_complete(waits_.front().end);
        if (!done) { return done.error(); }
        if (!*done) { break; }
        if (auto read = read_wait(planned_seconds, handle); !read) { return read; }
    }
    // Copies that nobody has waited for yet.
    while (!copies_.empty()) {
        if (!waits_.empty() && !waits_.front().ends_pass && copies_.front().arrival > waits_.front().wait.arrival) {
            break;
        }
        const auto done = device_->is_complete(copies_.front().end);
        if (!done) { return done.error(); }
        if (!*done) { break; }
        if (auto read = read_copy(); !read) { return read; }
    }
    return {};
}

template <Device D>
Status StallClock<D>::read_copy() {
    const TimedCopy copy = copies_.front();
    copies_.pop();
    give(copy.start);
    const auto end_before = std::exchange(copy_end_, copy.end);
    if (!end_before) { return {}; }
    give(*end_before);
    if (!copy.follows) { return {}; }
    const auto idle = device_->elapsed(*end_before, copy.start);
    if (!idle) { return idle.error(); }
    (copy.waited_for_room ? idle_room_ : idle_late_) += (std::max)(*idle, std::chrono::nanoseconds{});
    return {};
}

template <Device D>
template <class Handler>
Status StallClock<D>::read_wait(std::span<const double> planned_seconds, const Handler& handle) {
    const TimedWait timed = waits_.front();
    waits_.pop();
    give(timed.start);
    if (timed.ends_pass) {
        ++statistics_.passes;
        statistics_.last_pass = std::exchange(pass_, {});
        current_.swap(last_);
        std::fill(current_.begin(), current_.end(), Stalls{});
        return {};
    }
    // The wait is over, so that all copies up to it have arrived.
    while (!copies_.empty() && copies_.front().arrival <= timed.wait.arrival) {
        if (auto read = read_copy(); !read) { return read; }
    }
    const auto time = device_->elapsed(timed.start, timed.end);
    if (!time || *time < least_stall) {
        give(timed.end);
        return time ? Status{} : Status{time.error()};
    }
    std::chrono::nanoseconds declared{};
    const auto planned = planned_since_stall(planned_seconds, timed.wait);
    if (planned && after_stall_) {
        const auto taken = device_->elapsed(*after_stall_, timed.start);
        if (taken) {
            declared =
                (std::max)(declared, std::chrono::nanoseconds{static_cast<std::int64_t>(*planned * 1e9)} - *taken);
        }
    }
    const Stall stall{timed.wait, *time,
                      timed.wait.miss ? *timed.wait.miss : cause_of_stall(*time, declared, idle_room_, idle_late_)};
    const StallTime one{1, stall.time};
    statistics_.total[stall.cause] += one;
    pass_[stall.cause] += one;
    if (timed.wait.steps.first < current_.size()) { current_[timed.wait.steps.first][stall.cause] += one; }
    forget_stall();
    after_stall_ = timed.end;
    last_stall_ = timed.wait;
    handle(stall);
    return {};
}

template <Device D>
std::optional<double> StallClock<D>::planned_since_stall(std::span<const double> planned_seconds,
                                                         const StallWait& wait) const noexcept {
    const std::size_t from = last_stall_.steps.first, to = wait.steps.first;
    if (from >= planned_seconds.size() || to >= planned_seconds.size()) { return std::nullopt; }
    const bool is_same_pass = wait.pass == last_stall_.pass;
    if (!(is_same_pass && from <= to) && wait.pass != last_stall_.pass + 1) { return std::nullopt; }
    double sum = 0;
    for (std::size_t step = from; step < (is_same_pass ? to : planned_seconds.size()); ++step) {
        sum += planned_seconds[step];
    }
    for (std::size_t step = 0; !is_same_pass && step < to; ++step) { sum += planned_seconds[step]; }
    return sum;
}

}}}  // namespace residency::RESIDENCY_ABI::core
