// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/event_sequence.hpp"
#include "residency/core/engine/storage_state.hpp"
#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/measure/mark_log.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/device/device.hpp"
#include "residency/model/ids.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A consumer stream: one that reads weights. Its index in the copy scheduler.
using ConsumerId = std::uint32_t;
/// A recorded point of the copy stream, or of a consumer stream: see EventSequence.
using EventPoint = std::uint64_t;

/// Orders copies and reads. Every copy follows the last recorded use of the bytes that it overwrites (the write-after-read hazard), and
/// every read follows the arrival of the bytes that it reads. For each copy: the copy stream waits for the use, the transport enqueues the
/// bytes, the arrival is recorded, the consumer stream waits for it. Blocks in the functions named drain, after calls that failed, and
/// while EventSequence::max_points are outstanding.
template <Device D>
class CopyScheduler {
public:
    /// A use that could not be recorded. It is complete once the device has been drained.
    static constexpr EventPoint lost = UINT64_MAX;

    CopyScheduler() = default;
    CopyScheduler(const CopyScheduler&) = delete;
    CopyScheduler& operator=(const CopyScheduler&) = delete;
    ~CopyScheduler() { close(); }

    /// Copies, and the times that the host waits for the device here, are counted in `counters`; arrivals stand in `states`, by storage.
    /// They and the log, which is told of copies, outlive this object. On failure nothing is left behind.
    [[nodiscard]] Status open(D& device, const Catalog& catalog, std::unique_ptr<TransportInterface<D>> transport,
                              std::uint32_t outstanding, std::span<StorageState> states, Counters& counters,
                              MarkLog<D>& log);
    /// Precondition: drained, or abandoned.
    void close() noexcept;
    /// The device is broken: forgets what it holds without a device call.
    void abandon() noexcept;

    /// A pass begins. Consumers are looked up again, since a stream handle of the last pass may name a new stream.
    [[nodiscard]] Status begin_pass();
    /// The first failure of the transport's own threads; success if it has none.
    [[nodiscard]] Status transport_status() const;
    /// What the transport says of its links; empty: it has none of its own.
    [[nodiscard]] std::vector<LinkUse> links() const {
        return transport_ ? transport_->links() : std::vector<LinkUse>{};
    }
    /// As TransportInterface says.
    [[nodiscard]] double links_rate() const noexcept { return transport_ ? transport_->links_rate() : 0; }
    /// The consumer for a stream. The first time in a pass, the stream is ordered after everything recorded for that handle.
    [[nodiscard]] Result<ConsumerId> consumer(typename D::Stream stream) {
        for (ConsumerId id = 0; id < consumers_.size(); ++id) {
            if (consumers_[id]->events.stream() == stream && consumers_[id]->pass == pass_) { return id; }
        }
        return new_consumer(stream);
    }
    [[nodiscard]] std::size_t consumers() const noexcept { return consumers_.size(); }
    [[nodiscard]] typename D::Stream stream_of(ConsumerId id) const noexcept { return consumers_[id]->events.stream(); }
    [[nodiscard]] bool used_in_this_pass(ConsumerId id) const noexcept { return consumers_[id]->pass == pass_; }
    /// An open lease reads on the consumer. Until it is released as often as it was retained, it keeps its stream.
    void retain(ConsumerId id) noexcept { ++consumers_[id]->leases; }
    void release(ConsumerId id) noexcept { --consumers_[id]->leases; }

    /// An error if the stream is being captured by the caller: events that others wait for must not become part of the caller's graph.
    [[nodiscard]] Status refuse_capture(ConsumerId id) {
        const auto allowed = refuse_capture(*consumers_[id]);
        return allowed ? Status{} : Status{allowed.error()};
    }
    /// Records a use of these storages: all work enqueued on the consumer's stream so far. On failure they count as in use until the
    /// device has been drained.
    [[nodiscard]] Result<EventPoint> record_use(ConsumerId id, std::span<const StorageId> storages);
    [[nodiscard]] EventPoint last_point(ConsumerId id) const noexcept { return consumers_[id]->events.last(); }
    /// The caller captures reads into a graph, which may run at any time from now on.
    void note_foreign_graph() noexcept { is_in_foreign_graph_ = true; }
    /// Notes a use that needs no record of its own: join_streams() records all of them once.
    void note_use(ConsumerId id) noexcept { consumers_[id]->has_unrecorded_use = true; }

    /// The copy stream waits for a point of a consumer. Enqueues nothing if it has waited for that point before.
    [[nodiscard]] Status copy_stream_wait(ConsumerId id, EventPoint point);
    /// Whether the copy stream already waits for every recorded use of a storage.
    [[nodiscard]] bool is_free_to_overwrite(StorageId storage) const noexcept;
    /// Whether every recorded use of a storage is known to be complete.
    [[nodiscard]] bool is_unused(StorageId storage) const noexcept;
    /// Asks the device which uses and copies are complete. Does not block.
    [[nodiscard]] Status poll();
    /// The copy stream waits for every recorded use of a storage.
    [[nodiscard]] Status copy_stream_wait_for_uses(StorageId storage);
    /// The copy stream waits for every recorded use.
    [[nodiscard]] Status copy_stream_wait_for_all_uses();

    /// Enqueues copies that start together, and records their arrival, also in the states of their storages. On failure these have not
    /// changed. None: nothing is enqueued.
    [[nodiscard]] Result<EventPoint> transfer(std::span<const transport::Fetch> fetches);
    /// These storages arrive, by their numbers, with what another stream has recorded: the copy stream waits for it.
    [[nodiscard]] Status arrive_with(typename D::Event event, std::span<const std::uint32_t> storages) {
        if (auto waited = device_->wait(copy_stream_, event); !waited) { return waited; }
        const auto arrival = copies_.record();
        if (!arrival) { return arrival.error(); }
        for (const std::uint32_t s : storages) { states_[s].arrival = *arrival; }
        return {};
    }
    /// Another stream waits for all that has been enqueued on the copy stream so far.
    [[nodiscard]] Status wait_for_copies(typename D::Stream stream) {
        return copies_.order_after(copies_.last(), stream);
    }
    /// Enqueues a copy within the device, on the copy stream.
    [[nodiscard]] Status copy_within_device(std::byte* to, const std::byte* from, std::uint64_t bytes) {
        const Copy copy{to, from, bytes};
        return device_->copy({&copy, 1}, copy_stream_);
    }
    /// Blocks. Copies from or to memory of the host, which are complete when it returns; after a failure await_unrecorded_copies() waits for
    /// them.
    [[nodiscard]] Status copy_and_wait(std::span<const Copy> copies) {
        auto copied = device_->copy(copies, copy_stream_);
        auto drained = drain();
        if (!drained) { has_unrecorded_copy_ = true; }
        return copied ? std::move(drained) : std::move(copied);
    }
    /// Whether a consumer's stream has to be made to wait for an arrival.
    [[nodiscard]] bool must_wait(ConsumerId id, EventPoint arrival) const noexcept {
        return arrival > consumers_[id]->arrived && !copies_.known_complete(arrival);
    }
    /// A consumer waits for an arrival. Enqueues nothing if it has waited for that arrival, or a later one, before. `is_allowed`:
    /// refuse_capture() has just said so.
    [[nodiscard]] Status stream_wait_arrival(ConsumerId id, EventPoint arrival, bool is_allowed = false) {
        ConsumerStream& consumer = *consumers_[id];
        return arrival <= consumer.arrived ? Status{} : stream_wait_new_arrival(consumer, arrival, is_allowed);
    }
    /// The stream of `first` waits for the last recorded point of `second`.
    [[nodiscard]] Status wait_for_last_point(ConsumerId first, ConsumerId second) {
        return consumers_[second]->events.order_after(last_point(second), stream_of(first));
    }

    /// The stream of `first` waits for all work of `second`, uses that were only noted included.
    [[nodiscard]] Status join_streams(ConsumerId first, ConsumerId second);

    /// From here on, work on `stream`, on the copy stream and on every consumer stream becomes part of a graph, with points of its own. On
    /// failure nothing is being captured.
    [[nodiscard]] Status begin_capture(typename D::Stream stream)
        requires CapturingDevice<D>;
    /// Ends the capture: the graph, or the failure. Restores the points from before the capture.
    [[nodiscard]] auto end_capture()
        requires CapturingDevice<D>
    {
        // Every forked stream is joined, whatever failed before: a stream that is left in a capture cannot be used any more.
        auto joined = join_capture(copy_stream_);
        for (const auto& consumer : consumers_) {
            if (consumer->events.stream() == captured_stream_) { continue; }
            if (auto back = join_capture(consumer->events.stream()); !back) { joined = std::move(back); }
        }
        auto graph = device_->end_capture(captured_stream_);
        is_capture_left_ = !graph.has_value();
        static_cast<void>(end_left_capture().has_value());  // what fails here, a later call does
        copies_.swap(outside_copies_);
        outside_copies_.close();
        consumers_.swap(outside_consumers_);
        outside_consumers_.clear();
        in_capture_ = false;
        release_capture_events();
        if (graph && !joined) {
            static_cast<void>(device_->destroy_graph(*graph).has_value());
            graph = joined.error();
        }
        return graph;
    }
    /// Whether the caller captures a stream: a capture that end_capture() could not end is ended first.
    [[nodiscard]] Result<bool> is_capturing(typename D::Stream stream) {
        if (auto ended = end_left_capture(); !ended) { return ended.error(); }
        return device_->is_capturing(stream);
    }
    /// A consumer waits for every arrival and for every recorded point of the others: what a graph launch needs.
    [[nodiscard]] Status order_after_everything(ConsumerId id);
    /// Records a point of the copy stream without a copy.
    [[nodiscard]] Result<EventPoint> record_arrival() { return copies_.record(); }
    /// Records a point of a consumer that is a use of no storage.
    [[nodiscard]] Result<EventPoint> record_point(ConsumerId id) { return consumers_[id]->events.record(); }
    /// Whether a consumer's stream has got to a point.
    [[nodiscard]] Result<bool> is_reached(ConsumerId id, EventPoint point) {
        EventSequence<D>& events = consumers_[id]->events;
        if (auto polled = events.poll(); !polled) { return polled.error(); }
        return events.known_complete(point);
    }

    [[nodiscard]] typename D::Stream copy_stream() const noexcept { return copy_stream_; }
    [[nodiscard]] Status poll_arrivals() {
        auto polled = copies_.poll();
        log_->arrived([&](EventPoint arrival) { return has_arrived(arrival); });
        return polled;
    }
    [[nodiscard]] bool has_arrived(EventPoint arrival) const noexcept { return copies_.known_complete(arrival); }
    [[nodiscard]] EventPoint last_arrival() const noexcept { return copies_.last(); }

    /// Blocks until all recorded uses and all copies are complete.
    [[nodiscard]] Status drain();
    /// Blocks until all uses are complete, those that were only noted and those of the caller's graphs included: for these it waits for the
    /// whole device.
    [[nodiscard]] Status drain_all() {
        return is_in_foreign_graph_ || has_orphaned_use_ || has_unrecorded_use() ? drain_device() : drain();
    }
    /// Blocks until the whole device is idle: work without a record is complete, too.
    [[nodiscard]] Status drain_device();
    [[nodiscard]] bool is_open() const noexcept { return has_stream_; }
    /// Whether copies may be under way that nobody can wait for, since calls failed.
    [[nodiscard]] bool has_unrecorded_copies() const noexcept { return has_unrecorded_copy_; }
    /// Blocks until the device is idle, where there may be such copies. Otherwise nothing happens.
    [[nodiscard]] Status await_unrecorded_copies() { return has_unrecorded_copy_ ? drain_device() : Status{}; }
    [[nodiscard]] TransportInterface<D>& transport() noexcept { return *transport_; }

private:
    struct ConsumerStream {
        EventSequence<D> events;
        std::vector<EventPoint> last_use;  // by storage; 0: none
        EventPoint arrived = 0;            // the last arrival that its stream waits for
        EventPoint waits = 0;              // the last of its points that the copy stream waits for
        std::uint64_t pass = 0;
        std::uint64_t leases = 0;  // open ones that read there
        bool has_unrecorded_use = false;
    };

    [[nodiscard]] bool has_unrecorded_use() const noexcept {
        for (const auto& consumer : consumers_) {
            if (consumer->has_unrecorded_use) { return true; }
        }
        return false;
    }
    void assume_arrived() noexcept {
        copies_.assume_complete();
        log_->arrived([](EventPoint) { return true; });
    }
    [[nodiscard]] Status stream_wait_new_arrival(ConsumerStream& consumer, EventPoint arrival, bool is_allowed);
    /// As consumer(), the first time in a pass.
    [[nodiscard]] RESIDENCY_DETAIL_COLD Result<ConsumerId> new_consumer(typename D::Stream stream);
    [[nodiscard]] Status renew(ConsumerStream& consumer, typename D::Stream stream);
    [[nodiscard]] Result<ConsumerId> add_consumer(typename D::Stream stream);
    [[nodiscard]] Result<EventPoint> refuse_capture(const ConsumerStream& consumer);

    /// Ends a capture that end_capture() could not end: until then nobody can wait for its streams. Otherwise nothing happens.
    [[nodiscard]] Status end_left_capture() {
        if constexpr (CapturingDevice<D>) {
            if (!is_capture_left_) { return {}; }
            auto open = device_->is_capturing(captured_stream_);
            if (open && *open) {
                const auto ended = device_->end_capture(captured_stream_);
                if (ended) { static_cast<void>(device_->destroy_graph(*ended).has_value()); }
                open = ended ? Result<bool>{false} : device_->is_capturing(captured_stream_);
                if (open && *open) { return ended.error(); }
            }
            if (!open) { return open.error(); }
            is_capture_left_ = false;
        }
        return {};
    }
    /// The captured stream waits for `stream`. Tries twice, so that the capture can end after one failure.
    [[nodiscard]] Status join_capture(typename D::Stream stream);
    void release_capture_events() noexcept {
        for (const auto event : capture_events_) { static_cast<void>(device_->destroy_event(event).has_value()); }
        capture_events_.clear();
    }

    D* device_ = nullptr;
    std::size_t storages_ = 0;
    std::uint32_t outstanding_ = 0;
    std::span<StorageState> states_;  // by storage
    Counters* counters_ = nullptr;
    typename D::Stream copy_stream_{};
    bool has_stream_ = false;
    bool has_unrecorded_copy_ = false;  // perhaps: neither its arrival could be recorded nor its stream be drained
    bool is_in_foreign_graph_ = false;
    bool has_orphaned_use_ = false;  // unrecorded, on a stream that no consumer stands for any more
    EventSequence<D> copies_;
    std::unique_ptr<TransportInterface<D>> transport_;
    MarkLog<D>* log_ = nullptr;
    std::vector<std::unique_ptr<ConsumerStream>> consumers_;
    std::uint64_t pass_ = 0;

    bool in_capture_ = false;
    bool is_capture_left_ = false;  // captured_stream_ may still capture, since the end failed
    typename D::Stream captured_stream_{};
    typename D::Event fork_{}, join_{};
    std::vector<typename D::Event> capture_events_;
    EventSequence<D> outside_copies_;  // during a capture: the points outside of it
    std::vector<std::unique_ptr<ConsumerStream>> outside_consumers_;
};

template <Device D>
Status CopyScheduler<D>::open(D& device, const Catalog& catalog, std::unique_ptr<TransportInterface<D>> transport,
                              std::uint32_t outstanding, std::span<StorageState> states, Counters& counters,
                              MarkLog<D>& log) {
    device_ = &device;
    states_ = states;
    counters_ = &counters;
    log_ = &log;
    storages_ = catalog.storages().size();
    outstanding_ = outstanding;
    auto stream = device.create_stream();
    if (!stream) { return stream.error(); }
    copy_stream_ = *stream;
    has_stream_ = true;
    if (auto opened = copies_.open(device, copy_stream_, outstanding, counters.host_waits); !opened) { return opened; }
    transport_ = std::move(transport);
    if (auto opened = transport_->open(device, catalog); !opened) {
        transport_.reset();
        return opened;
    }
    return {};
}

template <Device D>
void CopyScheduler<D>::close() noexcept {
    consumers_.clear();
    copies_.close();
    if (transport_) { transport_->close(); }
    transport_.reset();
    if (has_stream_) { static_cast<void>(device_->destroy_stream(copy_stream_).has_value()); }
    has_stream_ = false;
}

template <Device D>
void CopyScheduler<D>::abandon() noexcept {
    for (auto& consumer : consumers_) { consumer->events.abandon(); }
    copies_.abandon();
    if (transport_) { transport_->abandon(); }
    has_stream_ = false;
}

template <Device D>
Status CopyScheduler<D>::begin_pass() {
    ++pass_;
    return poll_arrivals();
}

template <Device D>
Status CopyScheduler<D>::transport_status() const {
    return transport_ ? transport_->status() : Status{};
}

template <Device D>
Result<ConsumerId> CopyScheduler<D>::new_consumer(typename D::Stream stream) {
    for (ConsumerId id = 0; id < consumers_.size(); ++id) {
        if (!(consumers_[id]->events.stream() == stream)) { continue; }
        if (auto done = renew(*consumers_[id], stream); !done) { return done.error(); }
        return id;
    }
    return add_consumer(stream);
}

template <Device D>
Result<EventPoint> CopyScheduler<D>::record_use(ConsumerId id, std::span<const StorageId> storages) {
    ConsumerStream& consumer = *consumers_[id];
    auto point = refuse_capture(consumer);
    if (point) { point = consumer.events.record(); }
    const EventPoint last = point ? *point : lost;
    for (const StorageId storage : storages) {
        // A later point may be one of another stream, for which the consumer stands since.
        EventPoint& use = consumer.last_use[index(storage)];
        if (use != lost) { use = last; }
    }
    return point;
}

template <Device D>
Status CopyScheduler<D>::copy_stream_wait(ConsumerId id, EventPoint point) {
    ConsumerStream& consumer = *consumers_[id];
    if (point == lost) { return drain_device(); }
    if (point <= consumer.waits || consumer.events.known_complete(point)) { return {}; }
    if (log_->times_copies()) {  // of what is complete already, no copy has to wait for room
        if (auto polled = consumer.events.poll(); !polled) { return polled; }
        if (consumer.events.known_complete(point)) { return {}; }
        log_->copies_wait();
    }
    if (auto done = consumer.events.order_after(point, copy_stream_); !done) { return done; }
    consumer.waits = point;
    return {};
}

template <Device D>
bool CopyScheduler<D>::is_free_to_overwrite(StorageId storage) const noexcept {
    for (const auto& consumer : consumers_) {
        const EventPoint use = consumer->last_use[index(storage)];
        if (use == lost || (use > consumer->waits && !consumer->events.known_complete(use))) { return false; }
    }
    return true;
}

template <Device D>
bool CopyScheduler<D>::is_unused(StorageId storage) const noexcept {
    for (const auto& consumer : consumers_) {
        const EventPoint use = consumer->last_use[index(storage)];
        if (use == lost || !consumer->events.known_complete(use)) { return false; }
    }
    return true;
}

template <Device D>
Status CopyScheduler<D>::poll() {
    for (auto& consumer : consumers_) {
        if (auto polled = consumer->events.poll(); !polled) { return polled; }
    }
    return poll_arrivals();
}

template <Device D>
Status CopyScheduler<D>::copy_stream_wait_for_uses(StorageId storage) {
    for (ConsumerId id = 0; id < consumers_.size(); ++id) {
        if (auto done = copy_stream_wait(id, consumers_[id]->last_use[index(storage)]); !done) { return done; }
        consumers_[id]->last_use[index(storage)] = 0;
    }
    return {};
}

template <Device D>
Status CopyScheduler<D>::copy_stream_wait_for_all_uses() {
    if (auto ended = end_left_capture(); !ended) { return ended; }
    for (ConsumerId id = 0; id < consumers(); ++id) {
        if (auto waits = copy_stream_wait(id, last_point(id)); !waits) { return waits; }
    }
    return {};
}

template <Device D>
Result<EventPoint> CopyScheduler<D>::transfer(std::span<const transport::Fetch> fetches) {
    if (fetches.empty()) { return copies_.last(); }
    if (!in_capture_) {
        if (auto idle = await_unrecorded_copies(); !idle) { return idle.error(); }
    }
    const EventPoint coming = copies_.last() + 1;
    const bool is_told = log_->is_told_copies();
    if (is_told) { log_->copies_begin(copy_stream_, fetches, coming); }
    const auto sent = transport_->enqueue(fetches, copy_stream_);  // by transport::Pinned::enqueue, for one
    if (is_told) { log_->copies_end(copy_stream_, fetches, coming, sent.has_value()); }
    // A point also after a failure: some of the copies may have been enqueued (D10), and a graph's have to follow them.
    auto arrival = copies_.record();
    if (!arrival) {
        // Without a record nobody can wait for these bytes: they have to land before their memory is given to others. In a capture
        // nothing has run.
        if (!in_capture_) {
            ++counters_->host_waits;
            if (!device_->synchronize(copy_stream_)) { has_unrecorded_copy_ = true; }
        }
    }
    if (!sent) {
        // Those may bring bytes that could not be ordered before that point.
        if (!in_capture_ && transport_->has_own_streams()) { has_unrecorded_copy_ = true; }
        arrival = sent.error();
    }
    if (is_told) { log_->copies_ended(fetches, arrival); }
    if (!arrival) { return arrival; }
    for (const transport::Fetch& fetch : fetches) {
        states_[index(fetch.storage)].arrival = *arrival;
        counters_->fetched_bytes += fetch.bytes;
    }
    ++counters_->calls;
    return arrival;
}

template <Device D>
Status CopyScheduler<D>::stream_wait_new_arrival(ConsumerStream& consumer, EventPoint arrival, bool is_allowed) {
    if (!copies_.known_complete(arrival)) {
        if (!is_allowed) {
            if (auto allowed = refuse_capture(consumer); !allowed) { return allowed.error(); }
        }
        if (auto done = copies_.order_after(arrival, consumer.events.stream()); !done) { return done; }
    }
    consumer.arrived = arrival;
    return {};
}

template <Device D>
Status CopyScheduler<D>::join_streams(ConsumerId first, ConsumerId second) {
    if (consumers_[second]->has_unrecorded_use) {
        if (auto point = record_point(second); !point) { return point.error(); }
        consumers_[second]->has_unrecorded_use = false;
    }
    return wait_for_last_point(first, second);
}

template <Device D>
Status CopyScheduler<D>::begin_capture(typename D::Stream stream)
    requires CapturingDevice<D>
{
    EventSequence<D> copies;
    if (auto opened = copies.open(*device_, copy_stream_, outstanding_, counters_->host_waits); !opened) {
        return opened;
    }
    copies.record_in_capture();
    for (auto* event : {&fork_, &join_}) {
        auto created = device_->create_event(Timing::off);
        if (!created) {
            release_capture_events();
            return created.error();
        }
        *event = *created;
        capture_events_.push_back(*created);
    }
    if (auto begun = device_->begin_capture(stream); !begun) {
        release_capture_events();
        return begun;
    }
    in_capture_ = true;
    captured_stream_ = stream;
    copies_.swap(copies);
    outside_copies_.swap(copies);
    consumers_.swap(outside_consumers_);
    auto forked = device_->record(fork_, stream);
    if (forked) { forked = device_->wait(copy_stream_, fork_); }
    if (!forked) {
        if (const auto graph = end_capture()) { static_cast<void>(device_->destroy_graph(*graph).has_value()); }
    }
    return forked;
}

template <Device D>
Status CopyScheduler<D>::order_after_everything(ConsumerId id) {
    if (auto waited = stream_wait_arrival(id, last_arrival()); !waited) { return waited; }
    for (ConsumerId other = 0; other < consumers_.size(); ++other) {
        if (other == id) { continue; }
        if (auto joined = wait_for_last_point(id, other); !joined) { return joined; }
    }
    return {};
}

template <Device D>
Status CopyScheduler<D>::drain() {
    if (auto ended = end_left_capture(); !ended) { return ended; }
    if (has_unrecorded_copy_) { return drain_device(); }
    for (const auto& consumer : consumers_) {
        for (const EventPoint use : consumer->last_use) {
            if (use == lost) { return drain_device(); }
        }
    }
    ++counters_->host_waits;
    for (auto& consumer : consumers_) {
        if (auto done = consumer->events.drain(); !done) { return done; }
    }
    if (auto done = device_->synchronize(copy_stream_); !done) { return done; }
    assume_arrived();
    return {};
}

template <Device D>
Status CopyScheduler<D>::drain_device() {
    if (auto ended = end_left_capture(); !ended) { return ended; }
    ++counters_->host_waits;
    if (auto done = device_->synchronize(); !done) { return done; }
    for (auto& consumer : consumers_) {
        consumer->events.assume_complete();
        consumer->has_unrecorded_use = false;
        for (EventPoint& use : consumer->last_use) {
            if (use == lost) { use = 0; }
        }
    }
    has_orphaned_use_ = has_unrecorded_copy_ = false;
    assume_arrived();
    return {};
}

template <Device D>
Status CopyScheduler<D>::renew(ConsumerStream& consumer, typename D::Stream stream) {
    if (auto polled = consumer.events.poll(); !polled) { return polled; }
    if (!consumer.events.is_idle()) {
        if (auto allowed = refuse_capture(consumer); !allowed) { return allowed.error(); }
        if (auto done = consumer.events.order_after(consumer.events.last(), stream); !done) { return done; }
    }
    consumer.arrived = 0;
    consumer.pass = pass_;
    return {};
}

template <Device D>
Result<ConsumerId> CopyScheduler<D>::add_consumer(typename D::Stream stream) {
    if (in_capture_ && !(stream == captured_stream_)) {
        if (auto forked = device_->wait(stream, fork_); !forked) { return forked.error(); }
    }
    for (ConsumerId id = 0; id < consumers_.size(); ++id) {
        ConsumerStream& consumer = *consumers_[id];
        if (consumer.pass == pass_ || consumer.leases > 0) { continue; }
        if (auto polled = consumer.events.poll(); !polled) { return polled.error(); }
        if (!consumer.events.is_idle()) { continue; }
        if (std::exchange(consumer.has_unrecorded_use, false)) { has_orphaned_use_ = true; }
        consumer.events.rebind(stream);
        consumer.arrived = 0;
        consumer.pass = pass_;
        return id;
    }
    auto consumer = std::make_unique<ConsumerStream>();
    if (auto opened = consumer->events.open(*device_, stream, outstanding_, counters_->host_waits); !opened) {
        return opened.error();
    }
    if (in_capture_) { consumer->events.record_in_capture(); }
    consumer->last_use.resize(storages_);
    consumer->pass = pass_;
    consumers_.push_back(std::move(consumer));
    return static_cast<ConsumerId>(consumers_.size() - 1);
}

template <Device D>
Result<EventPoint> CopyScheduler<D>::refuse_capture(const ConsumerStream& consumer) {
    if (in_capture_) { return EventPoint{0}; }
    const auto capturing = is_capturing(consumer.events.stream());
    if (!capturing) { return capturing.error(); }
    if (*capturing) {
        return Error{ErrorKind::unsupported,
                     "the stream is being captured, and this lease needs an event that a graph cannot hold: where "
                     "everything is resident, bring it before the capture, by drain() of a planned composition, by a "
                     "pass and drain() of others; where weights stream, use Residency::capture"};
    }
    return EventPoint{0};
}

template <Device D>
Status CopyScheduler<D>::join_capture(typename D::Stream stream) {
    const auto attempt = [&] {
        auto done = device_->record(join_, stream);
        return done ? device_->wait(captured_stream_, join_) : std::move(done);
    };
    auto joined = attempt();
    if (!joined) { static_cast<void>(attempt().has_value()); }
    return joined;
}

}}}  // namespace residency::RESIDENCY_ABI::core
