// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/core/measure/work_observer.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/sort.hpp"
#include "residency/timeline/pass_timeline.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// How many passes a TimelineRecorder keeps, and with how many events of the device.
struct TimelineRecorderConfig {
    std::uint32_t passes = 8;            ///< how many of the last passes are kept; at least 1
    std::uint32_t most_events = 262144;  ///< what begins when they are used up is not recorded
};

/// What a TimelineRecorder has not kept, since it was made.
struct TimelineGaps {
    std::uint64_t forgotten_passes = 0;  ///< older than those that are kept
    std::uint64_t unread_passes =
        0;                           ///< not complete when they had to leave, or the device refused to tell their times
    std::uint64_t unseen_steps = 0;  ///< launches of a graph of whose steps nothing is known
    std::uint64_t lost_events = 0;   ///< that could not be created or recorded

    /// In a sentence; empty: nothing is missing but forgotten passes.
    [[nodiscard]] std::string text() const {
        std::string text;
        const auto add = [&](std::uint64_t count, const char* what) {
            if (count > 0) { text += (text.empty() ? "" : "; ") + std::to_string(count) + what; }
        };
        add(unread_passes,
            " passes were not complete in time: synchronize and collect() more often, or keep more passes");
        add(unseen_steps, " launches of graphs without their steps: synchronize and collect() before the next launch");
        add(lost_events, " events could not be had: allow more of them");
        return text;
    }
};

/// Times the passes, steps and copies of a Residency on the device, by events of its own in their streams, and gives the timeline of
/// the last passes: on a GPU and on the simulated device, eagerly and in captured passes, whatever the composition.
///
///     TimelineRecorder<CudaDevice> recorder{device};
///     weights.observe(&recorder);
///     …                                                       // passes
///     weights.drain();                                        // or any other wait for what is to be seen
///     recorder.timeline().trace().save("passes.json");
///
/// What is drawn as a kernel is a lease, from the end of its stream's wait to its end: end it before the next one is acquired, or its
/// time has the next wait in it. kernel() shows what runs inside. Times are read where a pass begins and the last ones are complete, and
/// on request; nothing waits for the device. Each lease costs three records of events, each copy call two: about a microsecond of the stream
/// each. A copy through transport::Staged is drawn with the wait for its bytes to be read. Copies within the device, and those of suspend()
/// and resume() of what kernels wrote, are not seen.
///
/// The steps of a captured pass are read before it is launched again, if they are complete by then; otherwise only the whole pass is drawn.
/// Not thread safe: one thread at a time in it and in the Residency. It outlives the Residency, or is taken away before: see
/// Residency::try_observe. The device outlives it.
template <Device D>
class TimelineRecorder final : public core::WorkObserver<D> {
public:
    using Stream = typename D::Stream;                  ///< the device's
    using Event = typename D::Event;                    ///< the device's
    using Time = PassTimeline::Time;                    ///< ns
    using Read = typename core::WorkObserver<D>::Read;  ///< a lease on one stream

    /// Creates no event yet.
    explicit TimelineRecorder(D& device, TimelineRecorderConfig config = {})
        : device_{&device}, config_{config}, current_{std::make_unique<Frame>()} {
        config_.passes = (std::max)(config_.passes, 1U);
    }
    ~TimelineRecorder() override;  ///< does not wait

    /// Calls `enqueue`, which puts kernels on the stream; they are drawn under that name, inside the lease that began last there.
    template <class Enqueue>
    void kernel(std::string_view name, Stream stream, Enqueue&& enqueue) {
        kernel_begins(name, stream);
        enqueue();
        kernel_ends(stream);
    }
    /// As above, in two calls: before and after the kernel is enqueued.
    /// @{
    void kernel_begins(std::string_view name, Stream stream);
    void kernel_ends(Stream stream);
    /// @}

    /// Reads the passes that are complete. Does not block.
    void collect();
    /// The last passes that are complete, and what came between them. Does not block. Times count from the first that was ever read.
    [[nodiscard]] PassTimeline timeline();
    /// What is missing.
    [[nodiscard]] const TimelineGaps& gaps() const noexcept { return gaps_; }
    /// The first error of the device.
    [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }

    /// What the Residency tells.
    /// @{
    void observes(const Catalog& catalog) override {
        RESIDENCY_ASSERT(kept_.empty() || catalog_.hash() == catalog.hash(), "a recorder is for one Residency");
        catalog_ = catalog;
    }
    void pass_begins(Stream stream, const Schedule& schedule) override;
    void pass_ends(Stream stream, const Counters& pass) override;
    void holds(std::uint64_t held_bytes, std::uint64_t budget_bytes) override;
    void read_comes(Stream stream) override;
    void read_begins(const Read& read) override;
    void read_ends(std::uint64_t lease, Stream stream) override;
    void copies_begin(Stream copy_stream) override;
    void copies_end(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival) override;
    void capture_begins() override { capture_ = std::make_shared<Graph>(); }
    [[nodiscard]] std::uint64_t capture_ends(bool is_captured) override;
    void graph_comes(std::uint64_t captured, Stream stream) override;
    void graph_launched(Stream stream, const Counters& pass) override;
    void graph_ends(std::uint64_t captured) override;
    /// @}

private:
    /// A mark is an event that is recorded in a stream so that its time is read later. This is its number in its frame.
    using Mark = std::uint32_t;
    static constexpr Mark none = UINT32_MAX;
    /// Two events tell times that differ by less from the truth, as a driver's float tells them.
    static constexpr Time event_resolution{2000};

    struct TimedRead {
        Mark before = none, from = none, to = none;
        AccessPoint access;
        std::uint64_t arrival = 0;
        std::uint32_t stream = 0;  // number
        std::uint32_t first_storage = 0, storages = 0;
    };
    struct Piece {
        StorageId storage = no_storage;
        std::uint64_t bytes = 0;
    };
    struct TimedCopy {
        Mark begin = none, end = none;
        std::uint64_t arrival = 0;
        std::uint32_t first_piece = 0, pieces = 0;
    };
    struct TimedKernel {
        std::string name;
        Mark begin = none, end = none;
        std::uint32_t read = none;  // number; none: in no lease
        std::uint32_t stream = 0;
    };
    struct Sample {
        Mark at = none;
        std::uint64_t held_bytes = 0, budget_bytes = 0;
    };
    /// What lies in the streams between marks, of a pass or of what follows it.
    struct Work {
        Schedule schedule;
        Mark pass_begin = none, pass_end = none;
        std::vector<TimedRead> reads;
        std::vector<StorageId> storages;  // of the reads
        std::vector<TimedCopy> copies;
        std::vector<Piece> pieces;  // of the copies
        std::vector<TimedKernel> kernels;
        std::vector<Sample> samples;
        std::size_t copies_in_pass = 0;
        std::vector<Event> events;  // by mark, until they are read
    };
    struct Frame;
    /// A captured pass: its events belong to it, and each launch records them anew.
    struct Graph {
        std::uint64_t name = 0;
        Work work;
        Frame* launched = nullptr;  // the last launch, until its steps are read
    };
    /// A pass, or what came before the first or between two.
    struct Frame {
        Work work;
        bool is_pass = false, has_ended = false;
        std::uint32_t stream = 0;      // of a launch
        std::uint64_t pass = 0;        // number, from 0
        std::uint32_t open = 0;        // reads that have not ended
        std::vector<Time> times;       // by mark, once they are read
        std::shared_ptr<Graph> graph;  // of a launch
        std::vector<Time> graph_times;
        Counters counters;
    };
    struct OpenRead {
        std::uint64_t lease = 0;
        std::uint32_t stream = 0;
        Work* work = nullptr;
        Frame* frame = nullptr;  // null: of a capture
        std::uint32_t read = 0;
    };
    struct Coming {
        Work* work = nullptr;
        Mark mark = none;
    };
    struct Arrival {
        std::uint64_t point = 0;
        std::size_t copy = 0;
        Time at{};
    };
    struct Row {
        std::uint32_t stream = 0;
        Time end{};
    };
    /// One timeline while it is drawn.
    struct Drawing {
        PassTimeline timeline;
        std::vector<Arrival> arrivals;  // ascending
        std::vector<Row> rows;
        std::uint64_t runs = 0;
        std::optional<Sample> last_sample;
        Time last_copy = (Time::min)(), last_pass = (Time::min)();
    };

    [[nodiscard]] Work& now() noexcept { return capture_ ? capture_->work : current_->work; }
    void keep_failure(const Error& error) {
        if (!failure_) { failure_ = error; }
    }
    [[nodiscard]] std::uint32_t number_of(Stream stream);
    /// Records an event; none: it could not be had.
    [[nodiscard]] Mark mark(Work& work, Stream stream);
    [[nodiscard]] std::optional<Event> take_event();
    void give_back(std::vector<Event>& events) {
        free_.insert(free_.end(), events.begin(), events.end());
        events.clear();
    }
    void destroy(std::vector<Event>& events) noexcept {
        for (const Event event : events) { static_cast<void>(device_->destroy_event(event).has_value()); }
        created_ -= static_cast<std::uint32_t>(events.size());
        events.clear();
    }
    /// The frame that is recorded becomes the last of those that are to be read, unless nothing is in it.
    void close_current();
    [[nodiscard]] bool is_complete(const Frame& frame);
    /// Reads the times of a frame that is complete. False: the device refused.
    [[nodiscard]] bool read(Frame& frame);
    [[nodiscard]] bool read_events(const std::vector<Event>& events, Event from, Time base, std::vector<Time>& times);
    void keep(std::unique_ptr<Frame> frame);
    /// Keeps a frame, if it is complete and its times are read; otherwise it leaves.
    void finish(std::unique_ptr<Frame> frame, bool is_complete) {
        if (is_complete && read(*frame)) {
            keep(std::move(frame));
        } else {
            drop(std::move(frame));
        }
    }
    /// A frame leaves that was not read.
    void drop(std::unique_ptr<Frame> frame);
    void forget_open_reads(const Work& work);
    /// A frame is read, or leaves: nothing that goes on points to it any more. Whether the events of its graph are still its own.
    [[nodiscard]] bool let_go(const Frame& frame) {
        forget_open_reads(frame.work);
        if (!frame.graph || frame.graph->launched != &frame) { return false; }
        frame.graph->launched = nullptr;
        return true;
    }

    void draw(Drawing& drawing, const Frame& frame) const;
    void draw(Drawing& drawing, const Work& work, const std::vector<Time>& times) const;
    void draw_read(Drawing& drawing, const Work& work, const std::vector<Time>& times, std::uint32_t number,
                   std::span<const std::uint32_t> kernels) const;
    [[nodiscard]] std::string name_of_step(const Work& work, const AccessPoint& access) const;
    [[nodiscard]] std::string name_of_storages(const Work& work, const TimedRead& read) const;
    [[nodiscard]] static std::size_t row_of(Drawing& drawing, std::uint32_t stream, Time& start, Time end);

    D* device_;
    TimelineRecorderConfig config_;
    Catalog catalog_;
    std::vector<Stream> streams_;  // by number
    std::vector<Event> free_;
    std::uint32_t created_ = 0;  // events
    std::unique_ptr<Frame> current_;
    std::shared_ptr<Graph> capture_;               // under way
    std::deque<std::unique_ptr<Frame>> pending_;   // to be read, oldest first
    std::deque<std::unique_ptr<Frame>> kept_;      // read, oldest first
    std::vector<std::shared_ptr<Graph>> graphs_;   // that can be launched
    std::vector<std::shared_ptr<Graph>> retired_;  // that may still run
    std::vector<OpenRead> open_reads_;
    Coming coming_;
    std::optional<std::pair<Work*, std::size_t>> open_kernel_;
    std::optional<Event> anchor_;  // whose time is known
    Time anchor_time_{};
    std::uint64_t passes_ = 0, captures_ = 0;
    TimelineGaps gaps_;
    std::optional<Error> failure_;
};

template <Device D>
TimelineRecorder<D>::~TimelineRecorder() {
    for (auto* frames : {&pending_, &kept_}) {
        for (auto& frame : *frames) { destroy(frame->work.events); }
    }
    destroy(current_->work.events);
    for (auto* graphs : {&graphs_, &retired_}) {
        for (auto& graph : *graphs) { destroy(graph->work.events); }
    }
    if (capture_) { destroy(capture_->work.events); }
    if (anchor_) { free_.push_back(*anchor_); }
    destroy(free_);
}

template <Device D>
std::uint32_t TimelineRecorder<D>::number_of(Stream stream) {
    for (std::uint32_t i = 0; i < streams_.size(); ++i) {
        if (streams_[i] == stream) { return i; }
    }
    streams_.push_back(stream);
    return static_cast<std::uint32_t>(streams_.size() - 1);
}

template <Device D>
auto TimelineRecorder<D>::take_event() -> std::optional<Event> {
    if (free_.empty()) {
        if (created_ >= config_.most_events) { return std::nullopt; }
        const auto created = device_->create_event(Timing::on);
        if (!created) {
            keep_failure(created.error());
            return std::nullopt;
        }
        ++created_;
        return *created;
    }
    const Event event = free_.back();
    free_.pop_back();
    return event;
}

template <Device D>
auto TimelineRecorder<D>::mark(Work& work, Stream stream) -> Mark {
    const bool is_captured = capture_ && &work == &capture_->work;
    if constexpr (!GraphTimingDevice<D>) {
        if (is_captured) { return none; }
    }
    const auto event = take_event();
    if (!event) {
        ++gaps_.lost_events;
        return none;
    }
    Status recorded;
    if constexpr (GraphTimingDevice<D>) {
        recorded = is_captured ? device_->record_in_graph(*event, stream) : device_->record(*event, stream);
    } else {
        recorded = device_->record(*event, stream);
    }
    if (!recorded) {
        keep_failure(recorded.error());
        free_.push_back(*event);
        ++gaps_.lost_events;
        return none;
    }
    work.events.push_back(*event);
    return static_cast<Mark>(work.events.size() - 1);
}

template <Device D>
void TimelineRecorder<D>::pass_begins(Stream stream, const Schedule& schedule) {
    if (!capture_) {
        collect();
        close_current();
        current_->is_pass = true;
        current_->pass = passes_++;
    }
    Work& work = now();
    work.schedule = schedule;
    work.pass_begin = mark(work, stream);
}

template <Device D>
void TimelineRecorder<D>::pass_ends(Stream stream, const Counters& pass) {
    Work& work = now();
    work.pass_end = mark(work, stream);
    work.copies_in_pass = work.copies.size();
    if (capture_) { return; }
    current_->has_ended = true;
    current_->counters = pass;
}

template <Device D>
void TimelineRecorder<D>::holds(std::uint64_t held_bytes, std::uint64_t budget_bytes) {
    Work& work = now();
    if (capture_ || work.events.empty()) { return; }  // a graph holds what is held when it is launched
    work.samples.push_back({static_cast<Mark>(work.events.size() - 1), held_bytes, budget_bytes});
}

template <Device D>
void TimelineRecorder<D>::read_comes(Stream stream) {
    Work& work = now();
    coming_ = {&work, mark(work, stream)};
}

template <Device D>
void TimelineRecorder<D>::read_begins(const Read& read) {
    Work& work = now();
    TimedRead timed;
    timed.before = coming_.work == &work ? coming_.mark : none;
    coming_ = {};
    timed.from = mark(work, read.stream);
    timed.access = read.access;
    timed.arrival = read.arrival;
    timed.stream = number_of(read.stream);
    timed.first_storage = static_cast<std::uint32_t>(work.storages.size());
    timed.storages = static_cast<std::uint32_t>(read.storages.size());
    work.storages.insert(work.storages.end(), read.storages.begin(), read.storages.end());
    work.reads.push_back(timed);
    if (!capture_) { ++current_->open; }
    open_reads_.push_back({read.lease, timed.stream, &work, capture_ ? nullptr : current_.get(),
                           static_cast<std::uint32_t>(work.reads.size() - 1)});
}

template <Device D>
void TimelineRecorder<D>::read_ends(std::uint64_t lease, Stream stream) {
    const std::uint32_t number = number_of(stream);
    const auto found = std::find_if(open_reads_.begin(), open_reads_.end(), [&](const OpenRead& open) {
        return open.lease == lease && open.stream == number && (open.frame == nullptr) == (capture_ != nullptr);
    });
    if (found == open_reads_.end()) { return; }
    const OpenRead open = *found;
    open_reads_.erase(found);
    open.work->reads[open.read].to = mark(*open.work, stream);
    if (open.frame != nullptr) { --open.frame->open; }
}

template <Device D>
void TimelineRecorder<D>::copies_begin(Stream copy_stream) {
    Work& work = now();
    TimedCopy copy;
    copy.begin = mark(work, copy_stream);
    work.copies.push_back(copy);
}

template <Device D>
void TimelineRecorder<D>::copies_end(Stream copy_stream, std::span<const transport::Fetch> copies,
                                     std::uint64_t arrival) {
    Work& work = now();
    TimedCopy& copy = work.copies.back();
    if (arrival == 0) {
        work.copies.pop_back();
        return;
    }
    copy.arrival = arrival;
    copy.first_piece = static_cast<std::uint32_t>(work.pieces.size());
    for (const transport::Fetch& fetch : copies) {
        if (work.pieces.size() > copy.first_piece && work.pieces.back().storage == fetch.storage) {
            work.pieces.back().bytes += fetch.bytes;
        } else {
            work.pieces.push_back({fetch.storage, fetch.bytes});
        }
    }
    copy.pieces = static_cast<std::uint32_t>(work.pieces.size()) - copy.first_piece;
    copy.end = mark(work, copy_stream);
}

template <Device D>
void TimelineRecorder<D>::kernel_begins(std::string_view name, Stream stream) {
    open_kernel_.reset();
    if (!capture_) {
        const auto is_captured = device_->is_capturing(stream);  // by the caller
        if (!is_captured || *is_captured) { return; }
    }
    Work& work = now();
    TimedKernel kernel;
    kernel.name = name;
    kernel.stream = number_of(stream);
    for (std::size_t i = open_reads_.size(); i-- > 0;) {
        if (open_reads_[i].stream != kernel.stream || open_reads_[i].work != &work) { continue; }
        kernel.read = open_reads_[i].read;
        break;
    }
    kernel.begin = mark(work, stream);
    work.kernels.push_back(std::move(kernel));
    open_kernel_.emplace(&work, work.kernels.size() - 1);
}

template <Device D>
void TimelineRecorder<D>::kernel_ends(Stream stream) {
    if (!open_kernel_) { return; }
    auto& [work, number] = *open_kernel_;
    work->kernels[number].end = mark(*work, stream);
    open_kernel_.reset();
}

template <Device D>
std::uint64_t TimelineRecorder<D>::capture_ends(bool is_captured) {
    const std::shared_ptr<Graph> graph = std::exchange(capture_, nullptr);
    forget_open_reads(graph->work);
    coming_ = {};
    open_kernel_.reset();
    if (!is_captured || graph->work.pass_begin == none) {
        retired_.push_back(graph);
        return 0;
    }
    graph->name = ++captures_;
    graphs_.push_back(graph);
    return graph->name;
}

template <Device D>
void TimelineRecorder<D>::graph_comes(std::uint64_t captured, Stream stream) {
    collect();
    close_current();
    current_->is_pass = true;
    current_->pass = passes_++;
    const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                    [&](const std::shared_ptr<Graph>& graph) { return graph->name == captured; });
    if (captured != 0 && found != graphs_.end()) {
        current_->graph = *found;
        if (Frame* const before = (*found)->launched; before != nullptr) {
            before->graph.reset();  // its events are recorded anew now
        }
        (*found)->launched = current_.get();
    }
    current_->stream = number_of(stream);
    current_->work.pass_begin = mark(current_->work, stream);
}

template <Device D>
void TimelineRecorder<D>::graph_launched(Stream stream, const Counters& pass) {
    current_->work.pass_end = mark(current_->work, stream);
    current_->has_ended = true;
    current_->counters = pass;
}

template <Device D>
void TimelineRecorder<D>::graph_ends(std::uint64_t captured) {
    const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                    [&](const std::shared_ptr<Graph>& graph) { return graph->name == captured; });
    if (found == graphs_.end()) { return; }
    retired_.push_back(std::move(*found));
    graphs_.erase(found);
}

template <Device D>
void TimelineRecorder<D>::close_current() {
    coming_ = {};
    open_kernel_.reset();
    if (current_->is_pass || !current_->work.events.empty()) { pending_.push_back(std::move(current_)); }
    current_ = std::make_unique<Frame>();
    while (pending_.size() > 2 * std::size_t{config_.passes}) {  // as many passes, and what came between them
        std::unique_ptr<Frame> oldest = std::move(pending_.front());
        pending_.pop_front();
        const bool is_over = is_complete(*oldest);  // only leases that have not ended kept it waiting
        finish(std::move(oldest), is_over);
    }
}

template <Device D>
bool TimelineRecorder<D>::is_complete(const Frame& frame) {
    const auto& events = frame.work.events;
    // The last first: it is the likeliest not to be.
    for (std::size_t i = events.size(); i-- > 0;) {
        const auto complete = device_->is_complete(events[i]);
        if (!complete) { keep_failure(complete.error()); }
        if (!complete || !*complete) { return false; }
    }
    return true;
}

template <Device D>
bool TimelineRecorder<D>::read_events(const std::vector<Event>& events, Event from, Time base,
                                      std::vector<Time>& times) {
    times.reserve(events.size());
    for (const Event event : events) {
        const auto elapsed = device_->elapsed(from, event);
        if (!elapsed) {
            keep_failure(elapsed.error());
            return false;
        }
        times.push_back(base + *elapsed);
    }
    return true;
}

template <Device D>
bool TimelineRecorder<D>::read(Frame& frame) {
    const bool has_steps = let_go(frame);
    std::vector<Event>& events = frame.work.events;
    if (events.empty()) { return true; }
    // Times count from the first event of the frame, so that the device's float keeps its resolution.
    const Event first = events.front();
    Time base{};
    if (anchor_) {
        const auto since = device_->elapsed(*anchor_, first);
        if (!since) {
            keep_failure(since.error());
            return false;
        }
        base = anchor_time_ + *since;
    }
    if (!read_events(events, first, base, frame.times)) { return false; }
    if (has_steps && !read_events(frame.graph->work.events, first, base, frame.graph_times)) {
        frame.graph_times.clear();
    }
    if (anchor_) { free_.push_back(*anchor_); }
    anchor_ = first;
    anchor_time_ = base;
    free_.insert(free_.end(), events.begin() + 1, events.end());
    events.clear();
    return true;
}

template <Device D>
void TimelineRecorder<D>::keep(std::unique_ptr<Frame> frame) {
    if (frame->is_pass) {
        if (frame->graph_times.empty() && frame->has_ended && frame->work.reads.empty() &&
            frame->counters.acquires > 0) {
            ++gaps_.unseen_steps;
        }
        // What was launched before it is complete, too.
        std::erase_if(retired_, [&](const std::shared_ptr<Graph>& graph) {
            if (graph->launched != nullptr) { return false; }
            destroy(graph->work.events);
            return true;
        });
    }
    kept_.push_back(std::move(frame));
    std::size_t passes = 0;
    for (const auto& each : kept_) { passes += each->is_pass ? 1U : 0U; }
    while (passes > config_.passes || kept_.size() > 2 * std::size_t{config_.passes} + 1) {
        if (kept_.front()->is_pass) {
            --passes;
            ++gaps_.forgotten_passes;
        }
        kept_.pop_front();
    }
}

template <Device D>
void TimelineRecorder<D>::drop(std::unique_ptr<Frame> frame) {
    gaps_.unread_passes += frame->is_pass ? 1U : 0U;
    static_cast<void>(let_go(*frame));
    give_back(frame->work.events);
}

template <Device D>
void TimelineRecorder<D>::forget_open_reads(const Work& work) {
    std::erase_if(open_reads_, [&](const OpenRead& open) { return open.work == &work; });
}

template <Device D>
void TimelineRecorder<D>::collect() {
    const auto is_readable = [&](const Frame& frame) { return frame.open == 0 && is_complete(frame); };
    while (!pending_.empty() && is_readable(*pending_.front())) {
        std::unique_ptr<Frame> frame = std::move(pending_.front());
        pending_.pop_front();
        finish(std::move(frame), true);
    }
    const bool is_over = !current_->is_pass || current_->has_ended;
    if (!pending_.empty() || capture_ || !is_over || current_->work.events.empty() || !is_readable(*current_)) {
        return;
    }
    close_current();
    std::unique_ptr<Frame> frame = std::move(pending_.back());
    pending_.pop_back();
    finish(std::move(frame), true);
}

template <Device D>
PassTimeline TimelineRecorder<D>::timeline() {
    collect();
    Drawing drawing;
    for (const auto& frame : kept_) { draw(drawing, *frame); }
    return std::move(drawing.timeline);
}

template <Device D>
std::string TimelineRecorder<D>::name_of_step(const Work& work, const AccessPoint& access) const {
    if (work.schedule.empty()) { return {}; }
    if (!access.is_scheduled || access.step >= work.schedule.size()) { return "not in the schedule"; }
    const auto name = [&](std::uint32_t step) {
        const std::string_view given = work.schedule[step].name;
        return given.empty() ? "step " + std::to_string(step) : std::string{given};
    };
    return access.is_range() ? name(access.first_step()) + " to " + name(access.step) : name(access.step);
}

template <Device D>
std::string TimelineRecorder<D>::name_of_storages(const Work& work, const TimedRead& read) const {
    if (read.storages == 0) { return "no weights"; }
    const std::string first = PassTimeline::name_of(catalog_, work.storages[read.first_storage]);
    return read.storages == 1 ? first : first + " and " + std::to_string(read.storages - 1) + " more";
}

template <Device D>
std::size_t TimelineRecorder<D>::row_of(Drawing& drawing, std::uint32_t stream, Time& start, Time end) {
    // Leases of one stream that overlap have a row each. What overlaps by less than events resolve does not.
    std::size_t row = 0;
    while (row < drawing.rows.size() &&
           (drawing.rows[row].stream != stream || drawing.rows[row].end > start + event_resolution)) {
        ++row;
    }
    if (row == drawing.rows.size()) { drawing.rows.push_back({stream, start}); }
    start = (std::max)(start, drawing.rows[row].end);
    drawing.rows[row].end = (std::max)(start, end);
    return row;
}

template <Device D>
void TimelineRecorder<D>::draw(Drawing& drawing, const Frame& frame) const {
    const auto& times = frame.times;
    const Work& steps = frame.graph_times.empty() ? frame.work : frame.graph->work;
    if (frame.is_pass && frame.work.pass_begin != none && frame.work.pass_end != none) {
        const Time start = (std::max)(times[frame.work.pass_begin], drawing.last_pass);
        const Time end = (std::max)(times[frame.work.pass_end], start);
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < steps.copies_in_pass; ++i) {
            for (std::uint32_t k = 0; k < steps.copies[i].pieces; ++k) {
                bytes += steps.pieces[steps.copies[i].first_piece + k].bytes;
            }
        }
        drawing.timeline.add_pass({"pass " + std::to_string(frame.pass), start, end, bytes});
        drawing.last_pass = end;
        if (frame.work.reads.empty() && frame.graph_times.empty() && frame.counters.acquires > 0) {
            Time from = start;
            const std::size_t row = row_of(drawing, frame.stream, from, end);
            drawing.timeline.add_kernel({"a captured pass", "a graph: its steps were not seen", from,
                                         (std::max)(from, end), row, drawing.runs++});
        }
    }
    draw(drawing, frame.work, times);
    if (frame.graph_times.empty()) { return; }
    // The points of a capture are its own.
    auto outside = std::exchange(drawing.arrivals, {});
    draw(drawing, frame.graph->work, frame.graph_times);
    drawing.arrivals = std::move(outside);
}

template <Device D>
void TimelineRecorder<D>::draw(Drawing& drawing, const Work& work, const std::vector<Time>& times) const {
    for (const TimedCopy& copy : work.copies) {
        if (copy.begin == none || copy.end == none) { continue; }
        PassTimeline::Copy drawn;
        for (std::uint32_t i = 0; i < copy.pieces; ++i) {
            const Piece& piece = work.pieces[copy.first_piece + i];
            drawn.pieces.push_back({PassTimeline::name_of(catalog_, piece.storage), piece.bytes});
        }
        // Times that were read from two events may differ by less than what an event resolves.
        drawn.start = (std::max)(times[copy.begin], drawing.last_copy);
        drawn.end = drawing.last_copy = (std::max)(times[copy.end], drawn.start);
        const Time end = drawn.end;
        drawing.arrivals.push_back({copy.arrival, drawing.timeline.add_copy(std::move(drawn)), end});
    }
    struct Item {
        Time start{};
        bool is_read = false;
        std::uint32_t number = 0;
    };
    std::vector<Item> items;
    for (std::uint32_t i = 0; i < work.reads.size(); ++i) {
        if (work.reads[i].from != none && work.reads[i].to != none) {
            items.push_back({times[work.reads[i].from], true, i});
        }
    }
    std::vector<std::uint32_t> kernels;  // in leases, by lease
    for (std::uint32_t i = 0; i < work.kernels.size(); ++i) {
        const TimedKernel& kernel = work.kernels[i];
        if (kernel.begin == none || kernel.end == none) { continue; }
        if (kernel.read == none) {
            items.push_back({times[kernel.begin], false, i});
        } else {
            kernels.push_back(i);
        }
    }
    const auto read_of = [&](std::uint32_t kernel) { return work.kernels[kernel].read; };
    residency::detail::sort(kernels, [&](std::uint32_t a, std::uint32_t b) {
        return read_of(a) != read_of(b) ? read_of(a) < read_of(b) : a < b;
    });
    // What began at once comes in the order in which it was noted, leases first.
    residency::detail::sort(items, [](const Item& a, const Item& b) {
        if (a.start != b.start) { return a.start < b.start; }
        return a.is_read != b.is_read ? a.is_read : a.number < b.number;
    });
    for (const Item& item : items) {
        if (item.is_read) {
            draw_read(drawing, work, times, item.number, std::ranges::equal_range(kernels, item.number, {}, read_of));
            continue;
        }
        const TimedKernel& kernel = work.kernels[item.number];
        Time start = item.start;
        const std::size_t row = row_of(drawing, kernel.stream, start, times[kernel.end]);
        drawing.timeline.add_kernel(
            {{}, kernel.name, start, (std::max)(start, times[kernel.end]), row, drawing.runs++});
    }
    for (const Sample& sample : work.samples) {
        if (drawing.last_sample && drawing.last_sample->held_bytes == sample.held_bytes &&
            drawing.last_sample->budget_bytes == sample.budget_bytes) {
            continue;
        }
        drawing.last_sample = sample;
        drawing.timeline.add_memory(times[sample.at], sample.held_bytes, sample.budget_bytes);
    }
}

template <Device D>
void TimelineRecorder<D>::draw_read(Drawing& drawing, const Work& work, const std::vector<Time>& times,
                                    std::uint32_t number, std::span<const std::uint32_t> kernels) const {
    const TimedRead& read = work.reads[number];
    Time from = times[read.from];
    Time to = (std::max)(times[read.to], from);
    // It waited if its copy arrived after the stream had come to the wait.
    Time before = read.before == none ? from : times[read.before];
    const Arrival* awaited = nullptr;
    const auto behind = std::upper_bound(drawing.arrivals.begin(), drawing.arrivals.end(), read.arrival,
                                         [](std::uint64_t point, const auto& each) { return point < each.point; });
    if (read.arrival > 0 && behind != drawing.arrivals.begin()) { awaited = &*(behind - 1); }
    const bool has_waited = awaited != nullptr && awaited->at > before && from > before;
    const std::size_t row = row_of(drawing, read.stream, has_waited ? before : from, to);
    from = (std::max)(from, before);
    to = (std::max)(to, from);
    if (has_waited && from > before) { drawing.timeline.add_stall(before, from, awaited->copy, row); }
    const std::string step = name_of_step(work, read.access);
    const std::uint64_t run = drawing.runs++;
    for (const std::uint32_t each : kernels) {
        const TimedKernel& kernel = work.kernels[each];
        const Time start = (std::max)(times[kernel.begin], from);
        drawing.timeline.add_kernel({step, kernel.name, start, (std::max)(times[kernel.end], start), row, run});
    }
    if (kernels.empty()) { drawing.timeline.add_kernel({step, name_of_storages(work, read), from, to, row, run}); }
}

}}  // namespace residency::RESIDENCY_ABI
