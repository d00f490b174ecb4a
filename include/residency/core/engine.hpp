// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/access_point.hpp"
#include "residency/core/copy_scheduler.hpp"
#include "residency/core/decider.hpp"
#include "residency/core/lease_table.hpp"
#include "residency/core/pass_timer.hpp"
#include "residency/core/schedule_cursor.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/step_clock.hpp"
#include "residency/core/storage_state.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a Residency is made with, beside its policies.
struct Settings {
    BudgetSources budget;
    std::uint64_t reserve_bytes = 0;
    Schedule schedule;  // without steps: none
    bool strict = false;
    bool record = false;
    bool poison = false;
    std::uint32_t outstanding = 64;
    bool learn = false;  // measure the steps of a few passes, and plan again where they are not what was planned
    double learn_threshold = 0.05;
};

/// The state behind a Residency: residents, leases, passes and counters, around one decider and one executor. Not thread safe.
template <class Decider, class Transport>
class Engine {
public:
    using Device = typename Decider::Device;
    using Stream = typename Device::Stream;

    [[nodiscard]] static Result<std::unique_ptr<Engine>> open(Device& device, Catalog catalog, Settings settings,
                                                              Decider decider, Transport transport);
    /// What open would make of the budget. Asks the device for its sizes only.
    [[nodiscard]] static Result<ResolvedBudget> resolve(Device& device, Catalog catalog, Settings settings,
                                                        Decider decider);
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() { close(); }

    [[nodiscard]] Status begin_pass(Stream stream);

    [[nodiscard]] Status end_pass();
    /// Blocks until the pass's stream has done what was asked of it so far. Guesses travel on meanwhile.
    [[nodiscard]] Status wait_in_pass();

    /// Everything that a step of the schedule reads, together, on a stream.
    [[nodiscard]] Result<LeaseId> acquire_step(std::uint32_t step, std::optional<Stream> stream);
    /// Everything that these weights lie on, together, on a stream.
    [[nodiscard]] Result<LeaseId> acquire_weights(std::span<const WeightId> weights, std::optional<Stream> stream);
    /// A ticket becomes a lease: its stream waits for what has been brought.
    [[nodiscard]] Status lease_on(LeaseId id, Stream stream) { return use_on(id, stream); }
    /// Another stream reads too: it waits, and its use is recorded at the end.
    [[nodiscard]] Status use_on(LeaseId id, Stream stream);

    /// Records the use and lets go. Failures are kept (failure()), and what they concern counts as in use until the device drains.
    void end_lease(LeaseId id) noexcept;

    /// Where a weight's first byte is while it is leased; null for a weight without bytes.
    [[nodiscard]] std::byte* address(WeightId weight) const noexcept {
        const std::byte* base = states_[index(weight_storage_[index(weight)])].address;
        return base == nullptr ? nullptr : const_cast<std::byte*>(base) + weight_offset_[index(weight)];
    }
    [[nodiscard]] bool covers(LeaseId id, WeightId weight) const noexcept;
    [[nodiscard]] bool is_open(LeaseId id) const noexcept { return leases_.find(id) != nullptr; }

    /// A graph of one pass: `body()` acquires what the schedule says, launches its kernels, ends the pass, and returns a Status.
    template <class Body, CapturingDevice D = Device>
    [[nodiscard]] Result<typename D::Graph> capture(Stream stream, Body&& body);
    /// One pass, replayed on a stream. Does not block.
    template <class Graph>
    [[nodiscard]] Status launch(const Graph& graph, std::uint64_t generation, Stream stream);
    [[nodiscard]] std::uint64_t generation() const noexcept
        requires requires(const Decider& decider) { decider.generation(); }
    {
        return decider_.generation();
    }

    /// Another budget, between passes; leases may be open. On failure the one in force stays. Blocks.
    [[nodiscard]] Result<BudgetChange> set_budget(const Budget& budget);
    /// Gives back what the last change left pending, as far as leases have ended and their uses are complete. Does not block.
    [[nodiscard]] Result<BudgetChange> settle_budget() {
        if (auto settled = settle_change(); !settled) { return settled.error(); }
        return change_;
    }
    [[nodiscard]] const BudgetChange& budget_change() const noexcept { return change_; }
    [[nodiscard]] std::uint64_t pending_bytes() const {
        const std::uint64_t held = held_bytes();
        return held > budget_.bytes ? held - budget_.bytes : 0;
    }

    /// The future is another one from the next pass on.
    [[nodiscard]] Status set_schedule(Schedule schedule);
    [[nodiscard]] Result<Schedule> recorded_schedule(Cycle cycle) const;

    /// Blocks until every recorded use and every copy is complete, then says whether the transport failed at any.
    [[nodiscard]] Status drain();
    /// The same; what a change of the budget left pending for the sake of these is given back.
    [[nodiscard]] Status drain_and_settle();
    [[nodiscard]] Status transport_status() const { return copy_scheduler_.transport_status(); }

    [[nodiscard]] Statistics statistics() const;
    [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }
    [[nodiscard]] const Catalog& catalog() const noexcept { return catalog_; }
    [[nodiscard]] const Schedule& schedule() const noexcept { return cursor_.schedule(); }
    [[nodiscard]] const ResolvedBudget& budget() const noexcept { return budget_; }
    [[nodiscard]] Decider& decider() noexcept { return decider_; }
    [[nodiscard]] const Decider& decider() const noexcept { return decider_; }
    [[nodiscard]] Device& device() noexcept { return *device_; }
    [[nodiscard]] Stream pass_stream() const noexcept { return copy_scheduler_.stream_of(primary_); }
    [[nodiscard]] bool pass_is_open() const noexcept { return pass_open_; }

private:
    Engine(Device& device, Catalog catalog, Settings settings, Decider decider)
        : device_{&device},
          catalog_{std::move(catalog)},
          settings_{std::move(settings)},
          decider_{std::move(decider)} {}

    [[nodiscard]] std::uint64_t held_bytes() const { return resident_held_ + decider_.held_bytes(); }
    [[nodiscard]] Status settle_change();
    [[nodiscard]] Status set_order() {
        return decider_.set_order(cursor_.order(), cursor_.groups(), cursor_.now(), budget_.bytes - resident_held_);
    }
    /// Ends every lease without a record: what read by it never ran.
    void revoke_leases() noexcept;
    void start_pass();
    /// Where the measured steps are not what was planned: plans again, once. Blocks then, and only then.
    [[nodiscard]] Status learn();
    [[nodiscard]] Status begin_captured_pass(Stream stream);
    /// Graphs moved bytes that no point of the copy stream stands for: from here on one does.
    [[nodiscard]] Status resume();

    /// Everything up to the budget; nothing is held yet.
    [[nodiscard]] Status prepare();
    [[nodiscard]] Status open(Transport transport);
    /// Stop, drain readers, drain copies, free. A device that cannot be drained is not touched.
    void close() noexcept;

    /// Who needs a schedule to plan and was given none reads the storages in the order of the catalog.
    [[nodiscard]] Result<Schedule> schedule_to_open(Schedule schedule) const;
    [[nodiscard]] Status check_schedule(const Schedule& schedule) const;
    void note_needs();
    [[nodiscard]] static bool is_streamed(const Storage& storage) noexcept {
        return storage.placement == Placement::streamed && storage.bytes > 0;
    }

    [[nodiscard]] Status resolve_budget();
    [[nodiscard]] BudgetContext budget_context(BudgetKind kind);
    [[nodiscard]] Error below_floor(std::uint64_t floor, std::uint32_t step) const;

    [[nodiscard]] Status view_host_storages();
    [[nodiscard]] Status bring_residents();

    /// All or nothing: on failure no lease is open and the position is as before.
    [[nodiscard]] Result<LeaseId> hold(std::span<const StorageId> storages, bool copy_storages,
                                       const ScheduleCursor::Found& found, std::optional<Stream> stream);
    [[nodiscard]] bool is_measuring() const noexcept { return step_clock_.is_running() && !captured_; }
    /// Whether the end of a lease on these has to be known. May change while it is open.
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept {
        return !std::ranges::all_of(storages, [&](StorageId id) { return decider_.never_leaves(id); });
    }
    [[nodiscard]] Status attach_consumer(LeaseRecord& lease, Stream stream);
    [[nodiscard]] Status wait_for(LeaseRecord& lease, ConsumerId consumer);

    void record_step(std::span<const WeightId> weights) {
        recording_.push_back({{weights.begin(), weights.end()}, std::nullopt, {}});
    }

    void fail(const Error& error) {
        if (!failure_) { failure_ = error; }
    }
    [[nodiscard]] Error broken() const;

    Device* device_;
    Catalog catalog_;
    Settings settings_;
    ScheduleCursor cursor_;
    std::vector<std::uint64_t> streamed_bytes_;  // of each storage that streams
    pool::Needs needs_;                          // spans over it
    ResolvedBudget budget_;
    std::uint64_t floor_ = 0;
    std::uint64_t arena_bytes_ = 0;
    std::uint64_t resident_held_ = 0;
    void* arena_ = nullptr;
    Counters counters_, before_, last_pass_;
    std::vector<StorageState> states_;
    std::vector<StorageId> weight_storage_;
    std::vector<std::uint64_t> weight_offset_;
    CopyScheduler<Device, Transport> copy_scheduler_;
    Decider decider_;
    PassTimer<Device> timer_;
    LeaseTable leases_;
    std::vector<StorageId> wanted_;
    std::vector<std::uint64_t> seen_;  // by storage: the epoch in which it was wanted
    std::uint64_t epoch_ = 0;
    bool pass_open_ = false;
    StepClock<Device> step_clock_;
    bool captured_ = false;    // this pass is recorded, not run
    bool in_capture_ = false;  // by capture(), not by the caller
    bool graph_ran_ = false;   // since the last point of the copy stream
    bool lost_graph_ = false;  // its end could not be recorded
    Counters per_graph_;
    BudgetChange change_;  // the last one
    ConsumerId primary_ = 0;
    std::vector<StepRecord> recording_, recorded_;
    std::optional<Error> failure_;
};

template <class Decider, class Transport>
auto Engine<Decider, Transport>::open(Device& device, Catalog catalog, Settings settings, Decider decider,
                                      Transport transport) -> Result<std::unique_ptr<Engine>> {
    std::unique_ptr<Engine> engine{new Engine{device, std::move(catalog), std::move(settings), std::move(decider)}};
    if (auto opened = engine->open(std::move(transport)); !opened) { return opened.error(); }
    return engine;
}

template <class Decider, class Transport>
Result<ResolvedBudget> Engine<Decider, Transport>::resolve(Device& device, Catalog catalog, Settings settings,
                                                           Decider decider) {
    Engine engine{device, std::move(catalog), std::move(settings), std::move(decider)};
    if (auto prepared = engine.prepare(); !prepared) { return prepared.error(); }
    return std::move(engine.budget_);
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::begin_pass(Stream stream) {
    if (pass_open_) {
        return Error{ErrorKind::wrong_state, "a pass is already open on this Residency: end it before the next begins"};
    }
    if (copy_scheduler_.is_broken()) { return broken(); }
    auto capturing = device_->is_capturing(stream);
    if (!capturing) { return capturing.error(); }
    if (*capturing && decider_.is_streaming()) {
        return Error{ErrorKind::unsupported,
                     "the stream is being captured, and weights are streamed: a foreign capture would hold "
                     "none of the copies; use Residency::capture"};
    }
    captured_ = *capturing;
    if (captured_) {
        decider_.captured_outside();
        copy_scheduler_.note_foreign_graph();
    }
    if (!captured_) {
        if (auto resumed = resume(); !resumed) { return resumed; }
        if (auto settled = settle_change(); !settled) { return settled; }
        if (auto learned = learn(); !learned) { return learned; }
        if (auto polled = copy_scheduler_.begin_pass(); !polled) { return polled; }
    } else if (auto polled = copy_scheduler_.poll_arrivals(); !polled) {
        return polled;
    }
    auto primary = copy_scheduler_.consumer(stream);
    if (!primary) { return primary.error(); }
    if (!schedule().empty() && !schedule().is_cyclic() && counters_.passes > 0) {
        if (auto restarted = decider_.restart(); !restarted) { return restarted; }
    }
    if (!captured_) {
        if (auto started = timer_.start(*device_, stream, decider_.is_streaming()); !started) { return started; }
    }
    primary_ = *primary;
    start_pass();
    if (is_measuring()) {
        if (auto marked = step_clock_.pass_began(*device_, stream); !marked) { fail(marked.error()); }
    }
    return {};
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::end_pass() {
    if (!pass_open_) { return Error{ErrorKind::wrong_state, "no pass is open"}; }
    pass_open_ = false;
    Status status;
    for (ConsumerId id = 0; id < copy_scheduler_.consumers() && (!captured_ || in_capture_); ++id) {
        if (id == primary_ || !copy_scheduler_.used_in_this_pass(id)) { continue; }
        if (auto joined = copy_scheduler_.join_streams(primary_, id); !joined) { status = std::move(joined); }
    }
    if (!captured_) {
        if (auto stopped = timer_.stop(*device_, pass_stream()); !stopped) { status = std::move(stopped); }
    }
    if (auto healthy = copy_scheduler_.transport_status(); !healthy) { status = std::move(healthy); }
    if (is_measuring()) {
        if (auto marked = step_clock_.pass_ended(*device_, pass_stream()); !marked) { status = std::move(marked); }
    }
    decider_.pass_ended();
    ++counters_.passes;
    last_pass_ = counters_ - before_;
    recorded_.swap(recording_);
    if (!captured_) {
        if (auto settled = settle_change(); !settled) { status = std::move(settled); }
    }
    if (!status) { fail(status.error()); }
    return status;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::wait_in_pass() {
    if (!pass_open_) { return Error{ErrorKind::wrong_state, "no pass is open"}; }
    const auto capturing = device_->is_capturing(pass_stream());
    if (!capturing) { return capturing.error(); }
    if (captured_ || *capturing) {
        return Error{ErrorKind::unsupported, "a pass that is captured does not run: there is nothing to wait for"};
    }
    ++counters_.host_waits;
    if constexpr (requires { decider_.bring_guesses(cursor_.now()); }) {
        const auto here = timer_.spare_event();
        if (auto recorded = device_->record(here, pass_stream()); !recorded) { return recorded; }
        while (decider_.bring_guesses(cursor_.now())) {
            const auto complete = device_->is_complete(here);
            if (!complete) { return complete.error(); }
            if (*complete) { return {}; }
        }
    }
    return device_->synchronize(pass_stream());
}

template <class Decider, class Transport>
Result<LeaseId> Engine<Decider, Transport>::acquire_step(std::uint32_t step, std::optional<Stream> stream) {
    auto found = cursor_.find(step);
    if (!found) { return found.error(); }
    found->place.access.is_announced = found->place.access.is_whole = true;
    const Schedule::Step& declared = schedule()[step];
    auto lease = hold(declared.storages, false, *found, stream);
    if (lease && settings_.record) { record_step(declared.weights); }
    return lease;
}

template <class Decider, class Transport>
Result<LeaseId> Engine<Decider, Transport>::acquire_weights(std::span<const WeightId> weights,
                                                            std::optional<Stream> stream) {
    wanted_.clear();
    ++epoch_;
    for (const WeightId weight : weights) {
        if (!catalog_.contains(weight)) {
            return Error{ErrorKind::invalid_argument, "the catalog of " + std::to_string(catalog_.weights().size()) +
                                                          " weights has no weight " + std::to_string(index(weight))};
        }
        const StorageId storage = weight_storage_[index(weight)];
        if (std::exchange(seen_[index(storage)], epoch_) != epoch_) { wanted_.push_back(storage); }
    }
    auto found = cursor_.find(wanted_);
    if (!found) { return found.error(); }
    auto lease = hold(wanted_, true, *found, stream);
    if (lease && settings_.record) { record_step(weights); }
    return lease;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::use_on(LeaseId id, Stream stream) {
    LeaseRecord* const lease = leases_.find(id);
    if (lease == nullptr) {
        return Error{ErrorKind::wrong_state, "the lease was ended with the capture that it was acquired in"};
    }
    return attach_consumer(*lease, stream);
}

template <class Decider, class Transport>
void Engine<Decider, Transport>::end_lease(LeaseId id) noexcept {
    LeaseRecord* const found = leases_.find(id);
    if (found == nullptr) { return; }
    LeaseRecord& lease = *found;
    bool recorded = true;
    std::optional<Stream> measured;
    const bool may_be_measured = step_clock_.is_open() && lease.access.is_whole && !lease.consumers.empty();
    if (may_be_measured && captured_) {
        step_clock_.drop(lease.access.step);
    } else if (may_be_measured) {
        measured = copy_scheduler_.stream_of(lease.consumers.front());
        if (auto stopped = step_clock_.stop(*device_, lease.access.step, *measured); !stopped) {
            fail(stopped.error());
        }
    }
    if (needs_record(lease.storages)) {
        for (const ConsumerId consumer : lease.consumers) {
            if (auto point = copy_scheduler_.record_use(consumer, lease.storages); !point) {
                fail(point.error());
                recorded = false;
            }
        }
    } else {
        for (const ConsumerId consumer : lease.consumers) { copy_scheduler_.note_use(consumer); }
    }
    for (const ConsumerId consumer : lease.consumers) { copy_scheduler_.release(consumer); }
    for (const StorageId storage : lease.storages) { --states_[index(storage)].leases; }
    decider_.released(lease.storages, lease.access, recorded);
    if (measured && is_measuring()) {
        if (auto marked = step_clock_.stopped(*device_, lease.access.step, *measured); !marked) {
            fail(marked.error());
        }
    }
    leases_.close(id);
}

template <class Decider, class Transport>
bool Engine<Decider, Transport>::covers(LeaseId id, WeightId weight) const noexcept {
    const LeaseRecord* lease = leases_.find(id);
    return lease != nullptr && catalog_.contains(weight) &&
           std::ranges::find(lease->storages, weight_storage_[index(weight)]) != lease->storages.end();
}

template <class Decider, class Transport>
template <class Body, CapturingDevice D>
Result<typename D::Graph> Engine<Decider, Transport>::capture(Stream stream, Body&& body) {
    if (pass_open_ || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state, "a graph is captured between passes, when no lease is open"};
    }
    if (!Transport::capturable) {
        return Error{ErrorKind::unsupported,
                     "this transport needs the host for every copy, and a graph runs without it"};
    }
    if (auto drained = drain(); !drained) { return drained.error(); }
    if (auto settled = settle_change(); !settled) { return settled.error(); }
    if (auto begun = decider_.begin_capture(); !begun) { return begun.error(); }
    std::vector<std::uint64_t> arrivals;
    arrivals.reserve(states_.size());
    for (StorageState& state : states_) { arrivals.push_back(std::exchange(state.arrival, 0)); }
    const Counters before = counters_;
    const ScheduleCursor::Place place = cursor_.place();
    Status status = copy_scheduler_.begin_capture(stream);
    std::optional<Result<typename D::Graph>> graph;
    if (status) {
        status = begin_captured_pass(stream);
        if (status) { status = body(); }
        if (status && (pass_open_ || leases_.open_leases() > 0)) {
            status = Error{ErrorKind::wrong_state, "a captured pass and its leases end before the capture does"};
        }
        graph.emplace(copy_scheduler_.end_capture());
        if (status && !*graph) { status = graph->error(); }
    }
    in_capture_ = pass_open_ = false;
    revoke_leases();
    if (auto whole = decider_.end_capture(status.has_value()); !whole) { status = std::move(whole); }
    for (std::size_t i = 0; i < states_.size(); ++i) { states_[i].arrival = arrivals[i]; }
    if (status) { per_graph_ = counters_ - before; }
    counters_ = before;
    cursor_.go_to(place);
    if (!status) {
        if (graph && *graph) { static_cast<void>(device_->destroy_graph(**graph).has_value()); }
        return status.error();
    }
    return std::move(*graph);
}

template <class Decider, class Transport>
template <class Graph>
Status Engine<Decider, Transport>::launch(const Graph& graph, std::uint64_t generation, Stream stream) {
    if (generation != decider_.generation()) {
        return Error{ErrorKind::stale, "the graph was captured for another budget or mapping: capture the pass again"};
    }
    if (pass_open_ || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state, "a pass or a lease is open: end it before a graph is launched"};
    }
    if (copy_scheduler_.is_broken()) { return broken(); }
    const auto capturing = device_->is_capturing(stream);
    if (!capturing) { return capturing.error(); }
    if (*capturing) {
        return Error{ErrorKind::unsupported,
                     "the stream is being captured: a captured pass is launched by itself, not as part of another "
                     "graph"};
    }
    if (lost_graph_) {
        if (auto drained = copy_scheduler_.drain_device(); !drained) { return drained; }
        lost_graph_ = false;
    }
    if (auto polled = copy_scheduler_.begin_pass(); !polled) { return polled; }
    auto consumer = copy_scheduler_.consumer(stream);
    if (!consumer) { return consumer.error(); }
    if (auto started = timer_.start(*device_, stream, decider_.is_streaming()); !started) { return started; }
    if (!graph_ran_) {
        if (auto reached = decider_.before_graph(); !reached) { return reached; }
    }
    if (auto ordered = copy_scheduler_.order_after_everything(*consumer); !ordered) { return ordered; }
    if (auto launched = device_->launch(graph, stream); !launched) { return launched; }
    graph_ran_ = true;
    decider_.graph_launched();
    last_pass_ = per_graph_;
    counters_ = counters_ + per_graph_;
    auto point = copy_scheduler_.record_point(*consumer);
    if (!point) {
        lost_graph_ = true;
        copy_scheduler_.note_use(*consumer);
        fail(point.error());
        return point.error();
    }
    static_cast<void>(timer_.stop(*device_, stream).has_value());
    return {};
}

template <class Decider, class Transport>
Result<BudgetChange> Engine<Decider, Transport>::set_budget(const Budget& budget) {
    if (pass_open_) { return Error{ErrorKind::wrong_state, "a budget changes between passes: end the pass before"}; }
    const std::uint64_t held = held_bytes();
    auto context = budget_context(budget.kind());
    if (context.free_device_bytes) { *context.free_device_bytes += held; }
    auto resolved = budget.try_resolve(context);
    if (!resolved) { return resolved.error(); }
    if (auto resumed = resume(); !resumed) { return resumed.error(); }
    if (auto drained = drain(); !drained) { return drained.error(); }
    if (auto settled = settle_change(); !settled) { return settled.error(); }
    const Counters before = counters_;
    if (auto changed = decider_.set_cap(resolved->bytes - resident_held_, cursor_.now()); !changed) {
        return changed.error();
    }
    change_ = {};
    change_.budget_before_bytes = budget_.bytes;
    change_.budget_bytes = resolved->bytes;
    change_.held_before_bytes = held;
    change_.held_bytes = held_bytes();
    change_.evicted_bytes = counters_.evicted_bytes - before.evicted_bytes;
    change_.moved_bytes = counters_.moved_bytes - before.moved_bytes;
    change_.returned_at = device_->host_time();
    budget_ = std::move(*resolved);
    change_.pending_bytes = pending_bytes();
    if (change_.is_complete()) { change_.complete_at = change_.returned_at; }
    return change_;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::set_schedule(Schedule schedule) {
    if (pass_open_ || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state, "a schedule changes between passes, when no lease is open"};
    }
    if (auto belongs = check_schedule(schedule); !belongs) { return belongs; }
    if (auto drained = drain(); !drained) { return drained; }
    if (auto settled = settle_change(); !settled) { return settled; }
    if (auto prepared = decider_.prepare(*device_, catalog_, schedule, needs_); !prepared) { return prepared; }
    const std::uint64_t floor = resident_held_ + decider_.floor_bytes();
    if (floor > budget_.bytes) {
        const Error error = below_floor(floor, decider_.floor_step());
        if (auto undone = decider_.prepare(*device_, catalog_, this->schedule(), needs_); !undone) { return undone; }
        return error;
    }
    const ScheduleCursor cursor_before = cursor_;
    const std::uint64_t floor_before = std::exchange(floor_, floor);
    cursor_.change(std::move(schedule));
    auto ordered = set_order();
    if (!ordered) {
        cursor_ = cursor_before;
        floor_ = floor_before;
        if (auto undone = decider_.prepare(*device_, catalog_, this->schedule(), needs_); !undone) { return undone; }
        static_cast<void>(set_order().has_value());
    } else if (step_clock_.is_open()) {
        // The steps to be measured are others now; without events they are not.
        step_clock_.close(*device_);
        if (auto opened = step_clock_.open(*device_, this->schedule().size()); !opened) { fail(opened.error()); }
    }
    return ordered;
}

template <class Decider, class Transport>
Result<Schedule> Engine<Decider, Transport>::recorded_schedule(Cycle cycle) const {
    if (!settings_.record) {
        return Error{ErrorKind::wrong_state, "nothing was recorded: set .record when the Residency is made"};
    }
    return Schedule::try_recorded(catalog_, recorded_, cycle);
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::drain() {
    ++counters_.host_waits;
    auto drained = copy_scheduler_.drain_all();
    return drained ? transport_status() : std::move(drained);
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::drain_and_settle() {
    if (auto drained = drain(); !drained) { return drained; }
    if (auto settled = settle_change(); !settled) { return settled; }
    if (decider_.is_settled()) { return {}; }
    // What was copied within the device has arrived, too.
    if (auto drained = copy_scheduler_.drain_all(); !drained) { return drained; }
    return settle_change();
}

template <class Decider, class Transport>
Statistics Engine<Decider, Transport>::statistics() const {
    Statistics result;
    result.total = counters_;
    result.total.host_waits += copy_scheduler_.host_waits();
    result.last_pass = last_pass_;
    result.budget_bytes = budget_.bytes;
    result.floor_bytes = floor_;
    result.held_bytes = held_bytes();
    result.pending_bytes = pending_bytes();
    const std::uint64_t residents = Decider::holds_residents ? 0 : catalog_.resident_bytes();
    result.requested_bytes = residents + decider_.requested_bytes();
    result.peak_requested_bytes = residents + decider_.peak_requested_bytes();
    result.resident_bytes = catalog_.resident_bytes();
    result.host_read_bytes = catalog_.bytes_placed(Placement::host);
    result.streaming = decider_.is_streaming();
    result.pass_time = timer_.last(*device_);
    result.bound = decider_.bound();
    return result;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::settle_change() {
    if (decider_.is_settled() && change_.is_complete()) { return {}; }
    auto settled = decider_.settle();
    const std::uint64_t still = pending_bytes();
    if (change_.pending_bytes > still) {
        change_.given_back_later_bytes += change_.pending_bytes - still;
        change_.pending_bytes = still;
        if (still == 0) { change_.complete_at = device_->host_time(); }
    }
    return settled;
}

template <class Decider, class Transport>
void Engine<Decider, Transport>::revoke_leases() noexcept {
    leases_.close_all([&](const LeaseRecord& lease) {
        for (const StorageId storage : lease.storages) { --states_[index(storage)].leases; }
        decider_.forget(lease.access);
    });
}

template <class Decider, class Transport>
void Engine<Decider, Transport>::start_pass() {
    pass_open_ = true;
    before_ = counters_;
    cursor_.begin_pass(counters_.passes == 0);
    recording_.clear();
    decider_.pass_began(cursor_.now());
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::learn() {
    if (!step_clock_.has_passes()) { return {}; }
    auto measured = step_clock_.read(*device_);
    if (!measured) { return measured.error(); }
    if (measured->empty()) { return {}; }
    const auto planned = decider_.planned_seconds();
    double difference = 0, sum = 0;
    for (std::size_t i = 0; i < measured->size(); ++i) {
        const double seconds = std::chrono::duration<double>((*measured)[i]).count();
        difference += std::abs(seconds - (i < planned.size() ? planned[i] : 0.0));
        sum += seconds;
    }
    step_clock_.close(*device_);
    auto schedule = this->schedule().try_with_compute(*measured);
    if (!schedule) {
        fail(schedule.error());
        return {};
    }
    if (leases_.open_leases() > 0 || difference <= settings_.learn_threshold * sum) { return {}; }
    return set_schedule(std::move(*schedule));
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::begin_captured_pass(Stream stream) {
    auto primary = copy_scheduler_.consumer(stream);
    if (!primary) { return primary.error(); }
    captured_ = in_capture_ = true;
    primary_ = *primary;
    start_pass();
    return {};
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::resume() {
    if (!graph_ran_) { return {}; }
    if (lost_graph_) {
        if (auto drained = copy_scheduler_.drain_device(); !drained) { return drained; }
        lost_graph_ = false;
    }
    for (ConsumerId id = 0; id < copy_scheduler_.consumers(); ++id) {
        if (auto waits = copy_scheduler_.copy_stream_wait(id, copy_scheduler_.last_point(id)); !waits) { return waits; }
    }
    auto arrival = copy_scheduler_.record_arrival();
    if (!arrival) { return arrival.error(); }
    for (StorageState& state : states_) { state.arrival = *arrival; }
    graph_ran_ = false;
    return {};
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::prepare() {
    auto schedule = schedule_to_open(std::exchange(settings_.schedule, {}));
    if (!schedule) { return schedule.error(); }
    cursor_.open(catalog_, std::move(*schedule), settings_.strict);
    const std::size_t storages = catalog_.storages().size();
    states_.resize(storages);
    seen_.resize(storages);
    wanted_.reserve(storages);
    weight_storage_.reserve(catalog_.weights().size());
    weight_offset_.reserve(catalog_.weights().size());
    for (const Weight& weight : catalog_.weights()) {
        weight_storage_.push_back(weight.storage);
        weight_offset_.push_back(weight.offset_bytes);
    }
    for (std::size_t i = 0; i < storages; ++i) { states_[i].placement = catalog_.storages()[i].placement; }
    note_needs();
    if (auto prepared = decider_.prepare(*device_, catalog_, cursor_.schedule(), needs_); !prepared) {
        return prepared;
    }
    return resolve_budget();
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::open(Transport transport) {
    if (auto prepared = prepare(); !prepared) { return prepared; }
    if (auto opened = copy_scheduler_.open(*device_, catalog_, std::move(transport), settings_.outstanding); !opened) {
        return opened;
    }
    DeciderContext<Device, Transport> context;
    context.catalog = catalog_;
    context.states = states_;
    context.counters = &counters_;
    context.order = cursor_.order();
    context.groups = cursor_.groups();
    context.poison = settings_.poison;
    context.device = device_;
    context.copy_scheduler = &copy_scheduler_;
    if (auto opened = decider_.open(context, needs_, budget_.bytes - resident_held_); !opened) { return opened; }
    if (auto viewed = view_host_storages(); !viewed) { return viewed; }
    if (auto opened = timer_.open(*device_); !opened) { return opened; }
    if (settings_.learn && !schedule().empty()) {
        if (auto prepared = step_clock_.open(*device_, schedule().size()); !prepared) { return prepared; }
    }
    return bring_residents();
}

template <class Decider, class Transport>
void Engine<Decider, Transport>::close() noexcept {
    RESIDENCY_ASSERT(leases_.open_leases() == 0, "end every lease before the Residency");
    RESIDENCY_ASSERT(!pass_open_, "end the pass before the Residency");
    if (copy_scheduler_.is_open() && !copy_scheduler_.drain_all() && !copy_scheduler_.drain_device()) {
        decider_.abandon();
        copy_scheduler_.abandon();
        copy_scheduler_.close();
        return;
    }
    decider_.close();
    if (arena_ != nullptr) { static_cast<void>(device_->deallocate(arena_).has_value()); }
    step_clock_.close(*device_);
    timer_.close(*device_);
    copy_scheduler_.close();
}

template <class Decider, class Transport>
Result<Schedule> Engine<Decider, Transport>::schedule_to_open(Schedule schedule) const {
    if (auto belongs = check_schedule(schedule); !belongs) { return belongs.error(); }
    if (!Decider::holds_residents || !schedule.empty() || catalog_.weights().empty()) { return schedule; }
    ScheduleBuilder builder{catalog_};
    for (std::uint32_t i = 0; i < catalog_.storages().size(); ++i) {
        if (const auto weights = catalog_.weights_of(StorageId{i}); !weights.empty()) { builder.step(weights); }
    }
    return builder.try_build();
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::check_schedule(const Schedule& schedule) const {
    if (schedule.empty() || schedule.catalog_hash() == catalog_.hash()) { return {}; }
    return Error{ErrorKind::mismatch, "the schedule was made for another catalog: its hash is " +
                                          std::to_string(schedule.catalog_hash()) + ", this catalog's is " +
                                          std::to_string(catalog_.hash())};
}

template <class Decider, class Transport>
void Engine<Decider, Transport>::note_needs() {
    for (const Storage& storage : catalog_.storages()) {
        if (!is_streamed(storage)) { continue; }
        streamed_bytes_.push_back(storage.bytes);
        needs_.largest_alignment_bytes = (std::max)(needs_.largest_alignment_bytes, storage.alignment_bytes);
    }
    needs_.storages = streamed_bytes_;
    if (streamed_bytes_.empty()) { return; }
    const auto largest = std::ranges::max_element(streamed_bytes_);
    needs_.step = {&*largest, 1};
    needs_.largest_storage_bytes = *largest;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::resolve_budget() {
    std::uint64_t resident = 0;
    for (const Storage& storage : catalog_.storages()) {
        if (storage.placement == Placement::resident && !Decider::holds_residents) {
            resident = pool::round_up(resident, storage.alignment_bytes) + storage.bytes;
        }
    }
    arena_bytes_ = resident;
    resident_held_ = pool::round_up(resident, device_->allocation_granularity());
    floor_ = resident_held_ + decider_.floor_bytes();
    auto resolved = settings_.budget.try_resolve(budget_context(settings_.budget.winner().first.kind()));
    if (!resolved) { return resolved.error(); }
    budget_ = std::move(*resolved);
    return {};
}

template <class Decider, class Transport>
BudgetContext Engine<Decider, Transport>::budget_context(BudgetKind kind) {
    BudgetContext context;
    context.streamed_bytes = catalog_.streamed_bytes();
    context.resident_bytes = catalog_.resident_bytes();
    context.everything_bytes = resident_held_ + decider_.ceiling_bytes();
    context.floor_bytes = floor_;
    context.floor_step = decider_.floor_step();
    if (context.floor_step < schedule().size()) { context.floor_step_name = schedule()[context.floor_step].name; }
    if (kind == BudgetKind::automatic || kind == BudgetKind::percent_of_free) {
        if (const auto memory = device_->memory()) { context.free_device_bytes = memory->free_bytes; }
    }
    context.reserve_bytes = settings_.reserve_bytes;
    return context;
}

template <class Decider, class Transport>
Error Engine<Decider, Transport>::below_floor(std::uint64_t floor, std::uint32_t step) const {
    return Error{ErrorKind::budget,
                 "the budget of " + std::to_string(budget_.bytes) + " bytes is below the " + std::to_string(floor) +
                     " that this schedule needs (step " + std::to_string(step) + "): raise the budget first",
                 BudgetNumbers{floor, budget_.bytes, resident_held_, floor, step}};
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::view_host_storages() {
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
        const Storage& storage = catalog_.storages()[i];
        if (storage.placement != Placement::host || storage.bytes == 0) { continue; }
        const auto* source = std::get_if<HostSource>(&storage.source);
        if (source == nullptr || source->host->kind() != HostMemory::pinned) {
            return Error{ErrorKind::unsupported, catalog_.describe(StorageId{i}) +
                                                     " is to be read from the host, but its bytes are "
                                                     "not in pinned memory: pin them, or place it elsewhere"};
        }
        auto view = device_->device_view(catalog_.host_bytes(StorageId{i}));
        if (!view) { return view.error(); }
        states_[i].address = const_cast<std::byte*>(static_cast<const std::byte*>(*view));
    }
    return {};
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::bring_residents() {
    if (arena_bytes_ == 0) { return {}; }
    auto arena = device_->allocate(arena_bytes_);
    if (!arena) { return arena.error(); }
    arena_ = *arena;
    std::vector<transport::Fetch> fetches;
    std::uint64_t end = 0;
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
        const Storage& storage = catalog_.storages()[i];
        if (storage.placement != Placement::resident) { continue; }
        end = pool::round_up(end, storage.alignment_bytes);
        std::byte* address = static_cast<std::byte*>(arena_) + end;
        end += storage.bytes;
        if (storage.bytes == 0) { continue; }
        states_[i].address = address;
        fetches.push_back({StorageId{i}, 0, storage.bytes, address});
        counters_.fetched_bytes += storage.bytes;
    }
    if (fetches.empty()) { return {}; }
    auto arrival = copy_scheduler_.transfer(fetches);
    if (!arrival) { return arrival.error(); }
    ++counters_.calls;
    for (const transport::Fetch& fetch : fetches) { states_[index(fetch.storage)].arrival = *arrival; }
    return {};
}

template <class Decider, class Transport>
Result<LeaseId> Engine<Decider, Transport>::hold(std::span<const StorageId> storages, bool copy_storages,
                                                 const ScheduleCursor::Found& found, std::optional<Stream> stream) {
    if (!pass_open_) { return Error{ErrorKind::wrong_state, "no pass is open: begin one, and acquire through it"}; }
    if (copy_scheduler_.is_broken()) { return broken(); }
    std::optional<ConsumerId> consumer;
    if (stream) {
        auto known = copy_scheduler_.consumer(*stream);
        if (!known) { return known.error(); }
        consumer = *known;
    }
    if (consumer && needs_record(storages)) {
        if (auto allowed = copy_scheduler_.refuse_capture(*consumer); !allowed) { return allowed.error(); }
    }
    ScheduleCursor::Place place = found.place;
    AccessPoint& access = place.access;
    const bool is_measured = consumer && is_measuring() && access.is_whole;
    if (is_measured) {
        if (auto reached = step_clock_.reach(*device_, access.step, *stream); !reached) { fail(reached.error()); }
    } else if (consumer) {
        step_clock_.interrupt();
    }
    if (auto there = decider_.ensure(storages, access); !there) { return there.error(); }
    const LeaseId id = leases_.open();
    LeaseRecord& lease = *leases_.find(id);
    lease.storages = storages;
    if (copy_storages) {
        lease.own.assign(storages.begin(), storages.end());
        lease.storages = lease.own;
    }
    lease.access = access;
    for (const StorageId storage : storages) { ++states_[index(storage)].leases; }
    if (consumer) {
        if (auto waited = wait_for(lease, *consumer); !waited) {
            for (const StorageId storage : storages) { --states_[index(storage)].leases; }
            decider_.forget(access);
            leases_.close(id);
            return waited.error();
        }
    }
    if (is_measured) {
        if (auto started = step_clock_.start(*device_, access.step, *stream); !started) { fail(started.error()); }
    }
    cursor_.go_to(place);
    counters_.divergences += found.has_diverged ? 1U : 0U;
    ++counters_.acquires;
    return id;
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::attach_consumer(LeaseRecord& lease, Stream stream) {
    auto consumer = copy_scheduler_.consumer(stream);
    if (!consumer) { return consumer.error(); }
    if (std::ranges::find(lease.consumers, *consumer) != lease.consumers.end()) { return {}; }
    if (needs_record(lease.storages)) {
        if (auto allowed = copy_scheduler_.refuse_capture(*consumer); !allowed) { return allowed.error(); }
    }
    step_clock_.interrupt();
    return wait_for(lease, *consumer);
}

template <class Decider, class Transport>
Status Engine<Decider, Transport>::wait_for(LeaseRecord& lease, ConsumerId consumer) {
    EventPoint arrival = 0;
    for (const StorageId storage : lease.storages) { arrival = (std::max)(arrival, states_[index(storage)].arrival); }
    if (auto waited = copy_scheduler_.stream_wait_arrival(consumer, arrival); !waited) { return waited; }
    lease.consumers.push_back(consumer);
    copy_scheduler_.retain(consumer);
    return {};
}

template <class Decider, class Transport>
Error Engine<Decider, Transport>::broken() const {
    return failure_ ? *failure_
                    : Error{ErrorKind::device, "the device could not be drained after a failed call; it is left alone"};
}

}}}  // namespace residency::RESIDENCY_ABI::core
