// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/event_hook.hpp"
#include "residency/core/measure/fifo.hpp"
#include "residency/core/measure/mark.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/core/measure/stall_clock.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/measure/step_clock.hpp"
#include "residency/core/measure/work_observer.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Whether work of a pass runs, or is recorded.
enum class PassMode : std::uint8_t {
    eager,             ///< it runs
    captured,          ///< recorded by Session::capture
    foreign_captured,  ///< recorded by a capture of the caller, with everything resident
};

/// The points of streams that a session passes, as it tells them, each at one place. The handler of events and the observer are told at
/// once. Whoever measures reads marks: an event of the device is recorded where somebody wants the time, one for all of them, and collect()
/// reads what is complete, in order. What fails costs a measurement; no call blocks but await_launches(). A lease that nobody wants to know
/// of costs tests of one flag.
template <Device D>
class MarkLog {
public:
    using Event = typename D::Event;
    using Stream = typename D::Stream;

    /// A mark in the log, with the event that says when a stream got there.
    struct Entry;
    /// The marks of a captured pass: its events are the graph's, and each launch records them anew.
    struct GraphMarks {
        std::vector<Entry> entries;
        std::uint64_t launch = 0;     // the number of the last one
        std::uint64_t in_flight = 0;  // launches that are not read yet
        bool has_ended = false;       // it is not launched any more
    };
    /// A captured pass, as it was told.
    struct Captured {
        GraphMarks* marks = nullptr;          // null: there are none in the graph
        WorkObserver<D>* observer = nullptr;  // that was told of the capture
        std::uint64_t observed = 0;           // its name for it
    };
    struct Entry {
        Mark mark;
        std::optional<Event> event;
        GraphMarks* graph = nullptr;  // that was launched
        std::uint64_t launch = 0;
    };

    MarkLog() = default;
    MarkLog(const MarkLog&) = delete;
    MarkLog& operator=(const MarkLog&) = delete;
    ~MarkLog() {
        if (observer_ != nullptr) { observer_->detach(); }
    }

    /// Creates the events that the passes need which are in flight. After a failure, close() gives back those that exist.
    [[nodiscard]] Status open(D& device);
    /// Gives the events back. Precondition: the streams are drained, and there is no graph any more.
    void close() noexcept;
    /// Forgets the events without a device call.
    void abandon() noexcept {
        free_.clear();
        created_ = 0;
        anchor_.reset();
        for (auto& list : lists_) { list.clear(); }
        graphs_.clear();
    }

    /// Whoever reads or is told, from now on.
    /// @{
    void tell(EventHandler handler, const Catalog& catalog, const Schedule& schedule, std::optional<Error>& failure) {
        hook_ = std::make_unique<EventHook>(
            std::move(handler), catalog, schedule, failure,
            [](const void* device) { return static_cast<const D*>(device)->host_time(); }, device_);
        update();
    }
    /// `dropped_prefetches` counts those for which there was no room; it outlives this object.
    void time_stalls(const std::uint64_t& dropped_prefetches) {
        stalls_.emplace();
        dropped_prefetches_ = &dropped_prefetches;
        update();
    }
    void watch_link() {
        link_.emplace();
        update();
    }
    /// Calls reach another rate from now on. Nothing happens where none are watched.
    void forget_link_rate() noexcept {
        if (link_) { link_.emplace(); }
    }
    /// No steps are timed any more: gives the events back that this took.
    void end_steps() noexcept {
        steps_.close();
        for (; free_.size() > first_events; free_.pop_back(), --created_) { destroy(free_.back()); }
    }
    /// Null: nobody. Between passes, when no lease is open.
    void observe(WorkObserver<D>* observer, const Catalog& catalog) {
        if (observer_ != nullptr) { observer_->detach(); }
        observer_ = observer;
        update();
        if (observer == nullptr) { return; }
        observer->attach();
        observer->observes(catalog);
    }
    /// The handler is told no more.
    void close_handler() noexcept {
        if (hook_) { hook_->close(); }
    }
    /// @}

    [[nodiscard]] bool is_telling() const noexcept { return hook_ && hook_->is_telling(); }
    [[nodiscard]] bool has_handler() const noexcept { return hook_ != nullptr; }
    [[nodiscard]] EventHook* hook() const noexcept { return hook_.get(); }
    [[nodiscard]] bool is_observed() const noexcept { return observer_ != nullptr; }
    [[nodiscard]] StallClock* stalls() noexcept { return stalls_ ? &*stalls_ : nullptr; }
    [[nodiscard]] const StallClock* stalls() const noexcept { return stalls_ ? &*stalls_ : nullptr; }
    [[nodiscard]] StepClock& steps() noexcept { return steps_; }
    [[nodiscard]] const StepClock& steps() const noexcept { return steps_; }
    /// Bytes per second that two long copies have reached; 0: none yet, or they are not timed.
    [[nodiscard]] double link_rate() const noexcept { return link_ ? link_->bytes_per_second() : 0; }
    /// Somebody wants to know of leases.
    [[nodiscard]] bool is_read() const noexcept { return is_read_; }
    /// Somebody wants to know of calls of copies.
    [[nodiscard]] bool is_told_copies() const noexcept { return is_told_copies_; }
    /// Copies are timed, and why they come late is wanted.
    [[nodiscard]] bool times_copies() const noexcept { return stalls_ && !capture_; }
    /// Waits of the pass that is open are timed.
    [[nodiscard]] bool times_waits() const noexcept { return stalls_ && mode_ == PassMode::eager && !capture_; }

    /// An error was returned, or could not be.
    void failed(const Error& error) noexcept {
        if (hook_) { hook_->failed(error); }
    }
    void budget_changed(const BudgetChange& change) noexcept {
        if (hook_) {
            hook_->tell({.kind = EventKind::budget_changed, .bytes = change.budget_bytes, .change = &change});
        }
    }
    template <class HasArrived>
    void arrived(const HasArrived& has_arrived) noexcept {
        if (hook_ && !capture_) { hook_->tell_arrivals(has_arrived); }
    }

    /// A pass begins, before anything of it.
    void pass_begins(Stream stream, PassMode mode, std::uint64_t pass, const Schedule& schedule, bool is_streaming) {
        mode_ = mode;
        if (mode == PassMode::eager) { begin_timing(stream, is_streaming); }
        if (auto* observer = observer_of_pass()) { observer->pass_begins(stream, schedule); }
        if (!hook_) { return; }
        hook_->mute(mode != PassMode::eager);
        hook_->pass_began(pass);
    }
    /// The device bytes that are held now, and the budget in force.
    void holds(std::uint64_t held_bytes, std::uint64_t budget_bytes) {
        if (auto* observer = observer_of_pass()) { observer->holds(held_bytes, budget_bytes); }
    }
    /// Everything was enqueued that its beginning enqueues. `is_measured`: its steps are wanted.
    void pass_began(Stream stream, bool is_measured) {
        measured_ = is_measured ? steps_.begin_pass() : 0;
        update();
        if (measured_ != 0) { add(of_steps(Point::pass_began), stream); }
    }
    /// Everything was enqueued on its stream.
    [[nodiscard]] Status pass_ends(Stream stream) {
        last_record_ = {};
        unsigned readers = measured_ != 0 ? Readers::steps : 0U;
        if (mode_ == PassMode::eager) {
            readers |= (is_timed_ ? Readers::passes : 0U) | (stalls_ ? Readers::stalls : 0U);
        }
        if (readers != 0) {
            Mark mark = of_steps(Point::pass_ends);
            mark.readers = static_cast<std::uint8_t>(readers);
            add(mark, stream);
        }
        measured_ = 0;
        update();
        return std::exchange(last_record_, Status{});
    }
    /// It has ended.
    void pass_ended(Stream stream, const Counters& pass) {
        if (auto* observer = observer_of_pass()) { observer->pass_ends(stream, pass); }
        if (!hook_) { return; }
        hook_->tell({.kind = EventKind::pass_ended, .counters = &pass});
        if (mode_ == PassMode::foreign_captured) { hook_->mute(false); }
    }

    /// A lease is about to be acquired; without a stream, a ticket. `overlaps`: another lease of steps is open.
    RESIDENCY_DETAIL_COLD void lease_comes(const AccessPoint& access, std::optional<Stream> stream, bool overlaps) {
        if (!is_read_) { return; }
        if (auto* observer = observer_of_pass(); observer != nullptr && stream) { observer->read_comes(*stream); }
        add_of_lease(Point::lease_comes, access, stream, overlaps);
    }
    /// A lease comes to another stream, or a ticket to its first one.
    RESIDENCY_DETAIL_COLD void stream_comes(Stream stream, bool was_ticket) {
        if (!is_read_) { return; }
        if (auto* observer = observer_of_pass()) { observer->read_comes(stream); }
        interrupted(was_ticket);
    }
    /// What no step accounts for was enqueued. `by_lease`: it was a lease.
    void interrupted(bool by_lease = false) {
        if (measured_ == 0) { return; }
        Mark mark = of_steps(Point::interrupted);
        mark.has_stream = by_lease;
        add(mark, std::nullopt);
    }
    /// A stream is about to wait for the bytes of a lease, `storage` the last to arrive.
    void wait_begins(std::uint64_t lease, const AccessPoint& access, StorageId storage, Stream stream) {
        if (hook_) { hook_->of_lease(EventKind::wait_began, access, lease, storage); }
        if (times_waits()) { add({.point = Point::wait_begins, .readers = Readers::stalls}, stream); }
    }
    /// It does.
    void wait_ended(std::uint64_t lease, const AccessPoint& access, StorageId storage, Stream stream,
                    std::uint64_t arrival, std::uint64_t pass, std::optional<StallCause> miss) {
        if (times_waits()) {
            add({.point = Point::wait_ended,
                 .readers = Readers::stalls,
                 .miss = miss,
                 .access = access,
                 .storage = storage,
                 .arrival = arrival,
                 .pass = pass},
                stream);
        }
        if (hook_) { hook_->of_lease(EventKind::wait_ended, access, lease, storage); }
    }
    /// A lease has its bytes on a stream: before they are unpacked.
    RESIDENCY_DETAIL_COLD void reads(const typename WorkObserver<D>::Read& read) {
        if (!is_read_) { return; }
        if (auto* observer = observer_of_pass()) { observer->read_begins(read); }
    }
    /// They could not be unpacked.
    void lease_failed(std::uint64_t lease, Stream stream) {
        if (auto* observer = observer_of_pass()) { observer->read_ends(lease, stream); }
    }
    /// A lease or, without a stream, a ticket has come about. `poll()` asks what has arrived.
    template <class Poll>
    RESIDENCY_DETAIL_COLD void lease_began(std::uint64_t lease, const AccessPoint& access, StorageId first,
                                           std::optional<Stream> stream, bool has_diverged, const Poll& poll) {
        if (!is_read_) { return; }
        if (stream) { add_of_lease(Point::lease_began, access, stream); }
        if (!hook_) { return; }
        poll();
        if (has_diverged) { hook_->diverged(access, first); }
        if (stream) { hook_->of_lease(EventKind::lease_began, access, lease, first); }
    }
    /// A ticket is a lease.
    void ticket_began(std::uint64_t lease, const AccessPoint& access, StorageId first) {
        if (hook_) { hook_->of_lease(EventKind::lease_began, access, lease, first); }
    }
    /// A lease is about to end on a stream. `is_first`: its first one.
    RESIDENCY_DETAIL_COLD void lease_ends(std::uint64_t lease, const AccessPoint& access, Stream stream,
                                          bool is_first) {
        if (!is_read_) { return; }
        if (is_first) { add_of_lease(Point::lease_ends, access, stream); }
        if (auto* observer = observer_of_pass()) { observer->read_ends(lease, stream); }
    }
    /// Everything was enqueued that the end of a lease enqueues. `stream`: its first one.
    RESIDENCY_DETAIL_COLD void lease_ended(std::uint64_t lease, const AccessPoint& access, Stream stream) {
        if (!is_read_) { return; }
        add_of_lease(Point::lease_ended, access, stream);
        if (hook_) { hook_->of_lease(EventKind::lease_ended, access, lease, no_storage); }
    }

    /// The copy stream was made to wait for a use of memory.
    void copies_wait() noexcept { waits_for_room_ = true; }
    /// A call of copies is about to be enqueued, and then `arrival` as its point.
    void copies_begin(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival);
    /// It was, and its point was not yet. `are_coming`: none of them was refused.
    void copies_end(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival,
                    bool are_coming);
    /// The point was recorded, or there is an error.
    void copies_ended(std::span<const transport::Fetch> copies, const Result<std::uint64_t>& arrival) {
        if (hook_) { hook_->copy_ended(copies, arrival); }
    }

    /// What follows is recorded as a graph.
    void capture_begins() {
        graphs_.push_back(std::make_unique<GraphMarks>());
        capture_ = graphs_.back().get();
        if (observer_ != nullptr) { observer_->capture_begins(); }
    }
    /// Or was not, because the capture failed.
    [[nodiscard]] Captured capture_ends(bool is_captured) {
        if (hook_) { hook_->mute(false); }
        measured_ = 0;
        update();
        Captured captured{std::exchange(capture_, nullptr), observer_, 0};
        if (observer_ != nullptr) { captured.observed = observer_->capture_ends(is_captured); }
        if (!is_captured || captured.marks->entries.empty()) {
            captured.marks->has_ended = true;
            destroy_ended();
            captured.marks = nullptr;
        }
        return captured;
    }
    /// Around the launch of a captured pass, and all that it waits for.
    /// @{
    void graph_comes(const Captured& captured, Stream stream, bool is_streaming) {
        mode_ = PassMode::eager;
        begin_timing(stream, is_streaming);
        if (observer_ != nullptr) {
            observer_->graph_comes(observer_ == captured.observer ? captured.observed : 0, stream);
        }
    }
    void graph_launched(const Captured& captured, Stream stream, std::uint64_t pass, const Counters& counters) {
        GraphMarks* const marks = captured.marks;
        if (marks != nullptr) {
            ++marks->launch;
            ++marks->in_flight;
        }
        if (is_timed_ || marks != nullptr) {
            add({.point = Point::pass_ends, .readers = is_timed_ ? Readers::passes : std::uint8_t{0}}, stream, false,
                marks);
        }
        if (observer_ != nullptr) { observer_->graph_launched(stream, counters); }
        if (hook_) { hook_->graph_launched(pass, counters); }
    }
    /// @}
    /// The graph was destroyed. Its last launch may still run.
    void graph_ends(const Captured& captured) noexcept {
        if (captured.observer != nullptr) { captured.observer->graph_ends(captured.observed); }
        if (captured.marks == nullptr) { return; }
        captured.marks->has_ended = true;
        destroy_ended();
    }
    /// Blocks until the last launch is complete whose steps are timed.
    [[nodiscard]] Status await_launches() {
        for (std::size_t i = work().size(); i-- > 0;) {
            const Entry& entry = work()[i];
            if (entry.graph == nullptr) { continue; }
            return entry.event ? device_->synchronize(*entry.event) : Status{};
        }
        return {};
    }

    /// Reads what is complete, in order. `planned_seconds`: of each step, as the plan assumes; may be empty. Does not block. An error of the
    /// device costs the times that it could not tell.
    [[nodiscard]] Status collect(std::span<const double> planned_seconds);
    /// The time of the last pass that was timed and is complete, from the first to the last operation on its stream. Does not block.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> pass_time() const {
        const Fifo<Entry>& work = lists_[0];
        const Entry* end = nullptr;
        int asked = 0;  // a host that runs far ahead asks a few times only
        for (std::size_t i = work.size(); i-- > 0 && asked < 5;) {
            const Entry& entry = work[i];
            if ((entry.mark.readers & Readers::passes) == 0 || !entry.event) { continue; }
            if (entry.mark.point == Point::pass_ends) {
                ++asked;
                const auto complete = device_->is_complete(*entry.event);
                end = complete && *complete ? &entry : nullptr;
            } else if (end != nullptr) {
                if (const auto time = device_->elapsed(*entry.event, *end->event)) { return *time; }
                end = nullptr;
            }
        }
        return pass_time_;
    }

private:
    using Time = std::optional<std::chrono::nanoseconds>;

    static constexpr std::size_t most_events = 16384;
    static constexpr std::size_t pass_events = 64;  // of these, that leases and copies leave to passes
    static constexpr std::size_t first_events = 8;
    static constexpr std::size_t most_entries = 16 * most_events;

    void update() noexcept {
        is_read_ = hook_ || stalls_ || observer_ != nullptr || measured_ != 0;
        is_told_copies_ = hook_ || stalls_ || observer_ != nullptr || link_;
    }
    [[nodiscard]] WorkObserver<D>* observer_of_pass() const noexcept {
        return mode_ == PassMode::foreign_captured && !capture_ ? nullptr : observer_;
    }
    /// Two events cost the GPU microseconds between kernels, so that few passes are timed while everything is resident.
    void begin_timing(Stream stream, bool is_streaming) noexcept {
        resident_passes_ = is_streaming ? 0 : resident_passes_ + 1;
        is_timed_ = resident_passes_ <= 16 || resident_passes_ % 16 == 0;
        if (is_timed_) { add({.point = Point::pass_begins, .readers = Readers::passes}, stream); }
    }
    [[nodiscard]] Mark of_steps(Point point) const noexcept {
        return {.point = point, .readers = Readers::steps, .pass = measured_};
    }
    [[nodiscard]] Fifo<Entry>& work() noexcept { return lists_[0]; }
    [[nodiscard]] Fifo<Entry>& copies() noexcept { return lists_[1]; }
    /// Adds a mark; with a stream, one whose time is wanted.
    void add(Mark mark, std::optional<Stream> stream, bool is_copy = false, GraphMarks* graph = nullptr);
    /// Adds a free event.
    [[nodiscard]] Status create_event() {
        auto created = device_->create_event(Timing::on);
        if (!created) { return created.error(); }
        ++created_;
        free_.push_back(*created);
        return {};
    }
    [[nodiscard]] Status record(Event event, Stream stream) {
        if constexpr (GraphTimingDevice<D>) {
            if (capture_) { return device_->record_in_graph(event, stream); }
        }
        return device_->record(event, stream);
    }
    /// Adds a point of a lease for the measured steps, if it says something of them.
    void add_of_lease(Point point, const AccessPoint& access, std::optional<Stream> stream, bool overlaps = false);
    [[nodiscard]] Result<bool> is_complete(const Entry& entry) const {
        return entry.event ? device_->is_complete(*entry.event) : Result<bool>{true};
    }
    /// Reads the first mark of a list.
    void read_front(Fifo<Entry>& list, std::span<const double> planned_seconds, Status& status);
    void read(const Mark& mark, std::span<const double> planned_seconds) {
        if ((mark.readers & Readers::passes) != 0) {
            if (mark.point == Point::pass_begins) {
                pass_begin_ = mark.time;
            } else if (pass_begin_ && mark.time) {
                pass_time_ = *mark.time - *pass_begin_;
            }
        }
        if ((mark.readers & Readers::link) != 0) { link_->read(mark); }
        if ((mark.readers & Readers::steps) != 0) { steps_.read(mark); }
        if ((mark.readers & Readers::stalls) == 0) { return; }
        if (const auto stall = stalls_->read(mark, planned_seconds); stall && hook_) {
            hook_->stalled(mark.pass, mark.steps(), mark.storage, stall->time, stall->cause);
        }
    }
    /// The time of an event that is complete, since the first one.
    [[nodiscard]] Time time_of(Event event, Status& status) const {
        if (!anchor_) { return anchor_time_; }
        const auto elapsed = device_->elapsed(*anchor_, event);
        if (elapsed) { return anchor_time_ + *elapsed; }
        status = elapsed.error();
        return std::nullopt;
    }
    void destroy(Event event) noexcept { static_cast<void>(device_->destroy_event(event).has_value()); }
    void destroy_ended() noexcept {
        std::erase_if(graphs_, [&](const std::unique_ptr<GraphMarks>& graph) {
            if (!graph->has_ended || graph->in_flight > 0) { return false; }
            for (const Entry& entry : graph->entries) {
                if (entry.event) { destroy(*entry.event); }
            }
            return true;
        });
    }

    D* device_ = nullptr;
    bool is_read_ = false;
    bool is_told_copies_ = false;  // the same of copies
    bool is_timed_ = false;        // the pass, from its beginning to its end
    bool waits_for_room_ = false;  // since the last call of copies
    std::uint8_t call_readers_ = 0;
    PassMode mode_ = PassMode::eager;    // of the pass that is open, or was last
    std::uint64_t measured_ = 0;         // the number of the pass that is open, if its steps are measured
    std::uint64_t resident_passes_ = 0;  // in a row
    std::uint64_t dropped_before_ = 0;   // as of the last call of copies
    const std::uint64_t* dropped_prefetches_ = nullptr;
    std::unique_ptr<EventHook> hook_;
    WorkObserver<D>* observer_ = nullptr;
    std::optional<StallClock> stalls_;
    std::optional<LinkWatch> link_;
    StepClock steps_;
    Time pass_begin_, pass_time_;  // of the last pass that was read

    Fifo<Entry> lists_[2];  // of all streams but the copy stream, and of that
    std::vector<std::unique_ptr<GraphMarks>> graphs_;
    GraphMarks* capture_ = nullptr;  // under way
    Status last_record_;             // of a mark
    std::vector<Event> free_;
    std::size_t created_ = 0;      // events, but those of graphs
    std::optional<Event> anchor_;  // whose time is known
    std::chrono::nanoseconds anchor_time_{};
};

template <Device D>
Status MarkLog<D>::open(D& device) {
    device_ = &device;
    free_.reserve(pass_events);
    for (auto& list : lists_) { list.reserve(pass_events); }
    Status had;
    while (had && created_ < first_events) { had = create_event(); }
    return had;
}

template <Device D>
void MarkLog<D>::close() noexcept {
    for (auto& list : lists_) {
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (list[i].event) { destroy(*list[i].event); }
        }
    }
    for (auto& graph : graphs_) {
        graph->has_ended = true;
        graph->in_flight = 0;
    }
    destroy_ended();
    if (anchor_) { destroy(*anchor_); }
    for (const Event event : free_) { destroy(event); }
    abandon();
}

template <Device D>
void MarkLog<D>::add(Mark mark, std::optional<Stream> stream, bool is_copy, GraphMarks* graph) {
    Entry entry{mark, std::nullopt, graph, graph != nullptr ? graph->launch : 0};
    auto& list = is_copy ? copies() : work();
    const std::size_t left = mark.is_of_pass() ? 0 : pass_events;
    if (!capture_ && list.size() >= most_entries && left > 0) { return; }
    if (stream && !capture_ && free_.size() + most_events <= created_ + left) {
        entry.mark.is_wanted = false;  // there are no more events
    } else if (stream) {
        if (free_.empty()) { static_cast<void>(create_event().has_value()); }
        if (!free_.empty()) { last_record_ = record(free_.back(), *stream); }
        if (!free_.empty() && last_record_) {
            entry.event = free_.back();
            free_.pop_back();
        }
    }
    if (capture_) {
        created_ -= entry.event ? 1U : 0U;
        capture_->entries.push_back(entry);
    } else {
        list.push(entry);
    }
}

template <Device D>
void MarkLog<D>::add_of_lease(Point point, const AccessPoint& access, std::optional<Stream> stream, bool overlaps) {
    const bool is_timed = access.is_whole && stream;
    if (measured_ == 0 || (!is_timed && point != Point::lease_comes)) { return; }
    Mark mark = of_steps(point);
    mark.access = access;
    mark.has_stream = stream.has_value();
    mark.overlaps = overlaps;
    const std::uint32_t next = access.step + 1;
    mark.is_wanted = is_timed && (steps_.is_wanted(access.range()) ||
                                  (point == Point::lease_ended && steps_.is_wanted({next, next + 1})));
    add(mark, mark.is_wanted ? stream : std::nullopt);
}

template <Device D>
void MarkLog<D>::copies_begin(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival) {
    // Before what is timed: the handler is the program's.
    if (hook_) { hook_->tell_copies(EventKind::copy_began, copies); }
    if (observer_ != nullptr) { observer_->copies_begin(copy_stream); }
    call_readers_ = 0;
    if (capture_) { return; }
    if (stalls_) { call_readers_ = Readers::stalls; }
    if (link_ && link_->begin_call(transport::bytes_of(copies))) { call_readers_ |= Readers::link; }
    if (call_readers_ == 0) { return; }
    Mark mark{.point = Point::copies_begin, .readers = call_readers_, .arrival = arrival};
    if (stalls_) {
        const bool had_no_room = std::exchange(dropped_before_, *dropped_prefetches_) != *dropped_prefetches_;
        mark.is_for_room = std::exchange(waits_for_room_, false) || had_no_room;
    }
    add(mark, copy_stream, true);
}

template <Device D>
void MarkLog<D>::copies_end(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival,
                            bool are_coming) {
    if (call_readers_ != 0) {
        add({.point = Point::copies_end,
             .readers = call_readers_,
             .arrival = arrival,
             .bytes = are_coming ? transport::bytes_of(copies) : 0},
            copy_stream, true);
    }
    if (observer_ != nullptr) { observer_->copies_end(copy_stream, copies, are_coming ? arrival : 0); }
}

template <Device D>
void MarkLog<D>::read_front(Fifo<Entry>& list, std::span<const double> planned_seconds, Status& status) {
    Entry entry = list.front();
    list.pop();
    if (entry.event) {
        // Times count from the last event, so that the device's float keeps its resolution.
        entry.mark.time = time_of(*entry.event, status);
        if (entry.mark.time) {
            anchor_time_ = *entry.mark.time;
            std::swap(anchor_, entry.event);
        }
        if (entry.event) { free_.push_back(*entry.event); }
    }
    if (GraphMarks* const graph = entry.graph; graph != nullptr) {
        --graph->in_flight;
        // A launch behind it has recorded the events anew.
        if (graph->launch == entry.launch && entry.mark.time) {
            for (const Entry& in_graph : graph->entries) {
                Mark mark = in_graph.mark;
                if (in_graph.event) { mark.time = time_of(*in_graph.event, status); }
                read(mark, planned_seconds);
            }
        }
        destroy_ended();
    }
    read(entry.mark, planned_seconds);
}

template <Device D>
Status MarkLog<D>::collect(std::span<const double> planned_seconds) {
    Status status;
    for (; !work().empty(); read_front(work(), planned_seconds, status)) {
        const auto complete = is_complete(work().front());
        if (!complete) { return complete.error(); }
        if (!*complete) { break; }
        // Where a wait is over, its copies have arrived.
        const std::uint64_t arrival = work().front().mark.arrival;
        while (!copies().empty() && copies().front().mark.arrival <= arrival) {
            read_front(copies(), planned_seconds, status);
        }
    }
    std::uint64_t awaited = UINT64_MAX;  // copies behind this point tell nothing of the next wait
    for (std::size_t i = work().size(); i-- > 0;) {
        if (work()[i].mark.arrival != 0) { awaited = work()[i].mark.arrival; }
    }
    for (; !copies().empty() && copies().front().mark.arrival <= awaited;
         read_front(copies(), planned_seconds, status)) {
        const auto complete = is_complete(copies().front());
        if (!complete) { return complete.error(); }
        if (!*complete) { break; }
    }
    return status;
}

}}}  // namespace residency::RESIDENCY_ABI::core
