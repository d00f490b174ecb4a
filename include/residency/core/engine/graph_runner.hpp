// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/lease_keeper.hpp"
#include "residency/core/engine/schedule_cursor.hpp"
#include "residency/core/engine/session_state.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A pass that was recorded as a graph. Plain data: whoever holds it destroys the graph.
template <Device D>
struct CapturedGraph {
    GraphOf<D> graph{};
    std::uint64_t generation = 0;         ///< of the mapping that its addresses are valid for
    Counters counters;                    ///< of one launch
    typename MarkLog<D>::Captured marks;  ///< in it
    std::uint64_t clock = 0;              ///< StepProfiler::graphs() of one whose launches are timed; 0: they are not
    double links_rate = 0;                ///< TransportInterface::links_rate(), of the links that its copies use
};

/// Records passes as graphs and launches them. A capture leaves counters, cursor and arrivals as it found them, since nothing of it has
/// run. After a launch, eager work first calls resume(): the arrivals that the session knows are those from before the graph.
template <Device D>
class GraphRunner {
public:
    using Stream = typename D::Stream;

    GraphRunner(SessionState<D>& shared, LeaseKeeper<D>& leases) : shared_{&shared}, leases_{&leases} {}

    /// Records one pass: `begin(stream)` begins it, `body()` acquires, launches and ends it. The caller has drained the streams, and no
    /// pass or lease is open. Blocks.
    template <class Begin, class Body>
    [[nodiscard]] Result<CapturedGraph<D>> capture(Stream stream, Begin&& begin, Body&& body)
        requires CapturingDevice<D>;
    /// Enqueues one pass. Does not block, unless the end of an earlier launch could not be recorded.
    [[nodiscard]] Status launch(const CapturedGraph<D>& captured, Stream stream)
        requires CapturingDevice<D>;
    /// Records a point of the copy stream behind all launched graphs, and makes it the arrival of every storage.
    [[nodiscard]] Status resume();

private:
    /// Blocks if the end of a launch could not be recorded.
    [[nodiscard]] Status wait_for_lost_launch() {
        if (!has_lost_launch_) { return {}; }
        if (auto drained = shared_->copy_scheduler.drain_device(); !drained) { return drained; }
        has_lost_launch_ = false;
        return {};
    }

    SessionState<D>* shared_;
    LeaseKeeper<D>* leases_;
    bool has_run_ = false;          // since resume()
    bool has_lost_launch_ = false;  // its end could not be recorded
};

template <Device D>
template <class Begin, class Body>
Result<CapturedGraph<D>> GraphRunner<D>::capture(Stream stream, Begin&& begin, Body&& body)
    requires CapturingDevice<D>
{
    GraphDecider& decider = *shared_->decider->graphs();
    if (auto begun = decider.begin_capture(); !begun) { return begun.error(); }
    std::vector<EventPoint> arrivals;
    arrivals.reserve(shared_->states.size());
    for (StorageState& state : shared_->states) { arrivals.push_back(std::exchange(state.arrival, 0)); }
    const Counters before = shared_->counters;
    const ScheduleCursor::Position position = shared_->cursor.position();
    shared_->log.capture_begins();
    Status status = shared_->copy_scheduler.begin_capture(stream);
    std::optional<Result<GraphOf<D>>> graph;
    if (status) {
        status = begin(stream);
        if (status) { status = body(); }
        if (status && (shared_->is_pass_open || leases_->open_leases() > 0)) {
            status = Error{ErrorKind::wrong_state, "a captured pass and its leases end before the capture does"};
        }
        graph.emplace(shared_->copy_scheduler.end_capture());
        if (status && !*graph) { status = graph->error(); }
    }
    shared_->is_pass_open = false;
    leases_->revoke_all();
    if (auto whole = decider.end_capture(status.has_value()); !whole) { status = std::move(whole); }
    for (std::size_t i = 0; i < arrivals.size(); ++i) { shared_->states[i].arrival = arrivals[i]; }
    const Counters counted = shared_->counters - before;
    shared_->counters = before;
    shared_->cursor.go_to(position);
    const auto marks = shared_->log.capture_ends(status.has_value());
    if (!status) {
        if (graph && *graph) { static_cast<void>(shared_->device->destroy_graph(**graph).has_value()); }
        return status.error();
    }
    return CapturedGraph<D>{**graph, decider.mapping_generation(), counted, marks};
}

template <Device D>
Status GraphRunner<D>::launch(const CapturedGraph<D>& captured, Stream stream)
    requires CapturingDevice<D>
{
    CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
    if (auto complete = wait_for_lost_launch(); !complete) { return complete; }
    if (auto polled = copy_scheduler.begin_pass(); !polled) { return polled; }
    auto consumer = copy_scheduler.consumer(stream);
    if (!consumer) { return consumer.error(); }
    GraphDecider& decider = *shared_->decider->graphs();
    shared_->log.graph_comes(captured.marks, stream, shared_->decider->is_streaming());
    if (!has_run_) {
        if (auto ready = decider.before_graph(); !ready) { return ready; }
    }
    if (auto ordered = copy_scheduler.order_after_everything(*consumer); !ordered) { return ordered; }
    if (auto launched = shared_->device->launch(captured.graph, stream); !launched) { return launched; }
    shared_->log.graph_launched(captured.marks, stream, shared_->counters.passes, captured.counters);
    has_run_ = true;
    decider.graph_launched();
    shared_->last_pass = captured.counters;
    shared_->counters = shared_->counters + captured.counters;
    auto point = copy_scheduler.record_point(*consumer);
    if (!point) {
        has_lost_launch_ = true;
        copy_scheduler.note_use(*consumer);
        shared_->keep_failure(point.error());
        return point.error();
    }
    return {};
}

template <Device D>
Status GraphRunner<D>::resume() {
    if (!has_run_) { return {}; }
    if (auto complete = wait_for_lost_launch(); !complete) { return complete; }
    CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
    if (auto waits = copy_scheduler.copy_stream_wait_for_all_uses(); !waits) { return waits; }
    auto arrival = copy_scheduler.record_arrival();
    if (!arrival) { return arrival.error(); }
    for (StorageState& state : shared_->states) { state.arrival = *arrival; }
    has_run_ = false;
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
