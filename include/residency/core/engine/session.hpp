// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/engine/budget_control.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/graph_runner.hpp"
#include "residency/core/engine/lease_keeper.hpp"
#include "residency/core/engine/order_learner.hpp"
#include "residency/core/engine/requirements_of.hpp"
#include "residency/core/engine/resident_store.hpp"
#include "residency/core/engine/session_state.hpp"
#include "residency/core/engine/step_profiler.hpp"
#include "residency/core/engine/suspension.hpp"
#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/measure/event.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/measure/work_observer.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/natural_order.hpp"
#include "residency/model/number.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a session is made with, beside its policies.
struct Settings {
    BudgetSources budget;
    std::uint64_t reserve_bytes = 0;
    Schedule schedule;    ///< without steps: none
    bool strict = false;  ///< a divergence from the schedule is an error
    bool record = false;  ///< keep what each pass acquired
    bool poison = false;  ///< overwrite what is evicted
    bool learn =
        false;  ///< time steps, and take over the order of a pass where none was given; plan again if they differ
    double learn_threshold = 0.05;
    EventHandler on_event;     ///< empty: nobody is told
    bool time_stalls = false;  ///< time what streams wait for bytes
};

/// The state behind a Residency on a device of type `D`, for every composition of policies: joins passes and their schedule to leases,
/// budget, graphs and one decider. At most one pass is open at a time. Not thread safe.
template <Device D>
class Session {
public:
    using Device = D;
    using Stream = typename D::Stream;

    [[nodiscard]] static Result<std::unique_ptr<Session>> open(D& device, Catalog catalog, Settings settings,
                                                               std::unique_ptr<Decider<D>> decider,
                                                               std::unique_ptr<TransportInterface<D>> transport);
    /// What open() would make of the budget. Asks the device for its sizes only.
    [[nodiscard]] static Result<ResolvedBudget> resolve(D& device, Catalog catalog, Settings settings,
                                                        std::unique_ptr<Decider<D>> decider);
    /// The storages in the order in which open() would lay them out; none: it has no such order. Asks the device for its sizes only.
    [[nodiscard]] static Result<std::vector<StorageId>> storage_order(D& device, Catalog catalog, Settings settings,
                                                                      std::unique_ptr<Decider<D>> decider);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() {
        RESIDENCY_ASSERT(captured_passes_ == 0, "end every CapturedPass before the Residency that it was captured of");
        RESIDENCY_ASSERT(groups_ == 0,
                         "end the ModelGroup::Member of a model before the model: declare the model first");
        close();
        if constexpr (requires { shared_.device->users(); }) { shared_.device->users().remove(); }
    }

    [[nodiscard]] Status begin_pass(Stream stream);
    [[nodiscard]] Status end_pass();
    /// Blocks until the pass's stream has done its work so far. Speculative copies continue meanwhile.
    [[nodiscard]] Status wait_in_pass();

    /// The device address of a weight's first byte, while it is leased or where addresses are fixed; null if the weight has no bytes.
    [[nodiscard]] std::byte* address(WeightId weight) const noexcept {
        const StorageState& state = shared_.states[index(shared_.weight_storage[index(weight)])];
        RESIDENCY_ASSERT(state.unpacked != nullptr || !is_read_packed(weight),
                         "kernels read this weight packed: ask for Lease::packed()");
        const std::byte* base = state.unpacked != nullptr ? state.unpacked : state.address;
        return base == nullptr ? nullptr : const_cast<std::byte*>(base) + weight_offset_[index(weight)];
    }
    /// Whether a lease covers the storage of a weight.
    [[nodiscard]] bool is_leased(WeightId weight) const noexcept {
        return shared_.contains(weight) && shared_.states[index(shared_.weight_storage[index(weight)])].leases > 0;
    }
    /// The packed bytes of a leased weight that kernels read packed; no data: kernels read it raw.
    [[nodiscard]] PackedWeight packed(WeightId weight) const noexcept {
        if (!is_read_packed(weight)) { return {}; }
        const StorageId storage = shared_.weight_storage[index(weight)];
        const auto& source = std::get<PackedHostSource>(shared_.catalog.storage(storage).source);
        const PackedPart& part = source.parts->front();
        const std::byte* const base = shared_.states[index(storage)].address;
        return {base == nullptr ? nullptr : base + part.offset_bytes, part.packed_bytes, part.form};
    }
    /// Precondition of whoever asks for elements of type T: the weight has them.
    template <class T>
    void check_type([[maybe_unused]] WeightId weight) const noexcept {
        RESIDENCY_ASSERT(matches<T>(catalog().weight(weight).dtype),
                         "ask for elements of the weight's own dtype, or for its bytes as std::byte");
    }
    /// The address for elements of type T; of any for void.
    template <class T>
    [[nodiscard]] T* typed_address(WeightId weight) const noexcept {
        if constexpr (std::is_void_v<T>) {
            return address(weight);
        } else {
            check_type<T>(weight);
            return reinterpret_cast<T*>(address(weight));
        }
    }

    /// A graph of one pass: `body()` acquires what the schedule says, launches its kernels, ends the pass, and returns a Status. Blocks.
    /// `timing`: whether its launches time the steps.
    template <class Body>
    [[nodiscard]] Result<CapturedGraph<D>> capture(Stream stream, Timing timing, Body&& body)
        requires CapturingDevice<D>;
    /// Enqueues one captured pass. Does not block, unless it times the steps: then until its last launch is complete.
    [[nodiscard]] Status launch(const CapturedGraph<D>& captured, Stream stream)
        requires CapturingDevice<D>;
    /// It is not launched any more.
    [[nodiscard]] bool is_stale(const CapturedGraph<D>& captured) const noexcept {
        const bool times = captured.clock == 0 || (profiler_.is_in_graph() && captured.clock == profiler_.graphs());
        return captured.generation != mapping_generation() || !times || has_lost_links(captured);
    }
    /// Whether further launches of a graph tell more about the times of its steps.
    [[nodiscard]] bool is_learning(const CapturedGraph<D>& captured) const noexcept {
        return captured.clock != 0 && !is_stale(captured) && profiler_.wants_launch();
    }
    /// A CapturedPass of a graph of this session begins.
    void captured_pass_begins() noexcept { ++captured_passes_; }
    /// It ends, and its graph with it.
    void captured_pass_ends(const CapturedGraph<D>& captured) noexcept {
        --captured_passes_;
        static_cast<void>(shared_.device->destroy_graph(captured.graph).has_value());
        shared_.log.graph_ends(captured.marks);
    }
    /// Counts the changes of the mapping. Precondition: the composition supports graphs.
    [[nodiscard]] std::uint64_t mapping_generation() const noexcept {
        return std::as_const(*shared_.decider).graphs()->mapping_generation();
    }

    /// Another budget, between passes; leases may be open. On failure the one in force stays. Blocks.
    [[nodiscard]] Result<BudgetChange> set_budget(const Budget& budget);
    /// Gives back what the last change left pending, as far as possible. Does not block.
    [[nodiscard]] Result<BudgetChange> reclaim_pending() {
        shared_.check_caller();
        if (auto reclaimed = budget_.reclaim_pending(); !reclaimed) { return reclaimed.error(); }
        return budget_.last_change();
    }
    [[nodiscard]] const BudgetChange& budget_change() const noexcept { return budget_.last_change(); }
    [[nodiscard]] std::uint64_t pending_bytes() const { return budget_.pending_bytes(); }
    [[nodiscard]] const ResolvedBudget& budget() const noexcept { return budget_.budget(); }

    /// Another schedule from the next pass on. One that was in force before goes on with what was learned of it, order included. Blocks.
    /// On failure the one in force stays.
    [[nodiscard]] Status set_schedule(Schedule schedule);
    [[nodiscard]] Result<Schedule> recorded_schedule(Cycle cycle) const;

    /// Gives all device memory back, between passes. After a failure is_suspended() says which it is. Blocks.
    [[nodiscard]] Status suspend();
    /// Takes the device memory of the budget again. On failure it stays suspended. Blocks.
    [[nodiscard]] Status resume();
    [[nodiscard]] bool is_suspended() const noexcept { return suspension_.is_suspended(); }
    /// It is a member of a group of models, or leaves it.
    void count_group(bool is_in) noexcept { groups_ += is_in ? 1 : -1; }
    /// Brings bytes ahead of resume(), as Decider::bring_asleep() says.
    [[nodiscard]] Result<std::uint64_t> bring_asleep(std::uint64_t most_bytes);
    /// Replaces the bytes of weights at their sources by `write()`, which returns a Status, between passes. Without weights: of all that kernels only read. Blocks.
    template <class Write>
    [[nodiscard]] Status refresh(std::optional<std::span<const WeightId>> weights, Write&& write);

    /// Blocks until every recorded use and every copy is complete, gives back what a change of the budget left pending, and where the decider
    /// streams nothing, brings what is not there yet.
    [[nodiscard]] Status drain();
    [[nodiscard]] Status transport_status() const { return shared_.transport_status(); }
    /// Who is told of the work from now on; null: nobody. Between passes, when no lease is open.
    [[nodiscard]] Status observe(WorkObserver<D>* observer);

    [[nodiscard]] Statistics statistics() const;
    /// By step, of the last pass that was timed and is complete; empty unless stalls are timed.
    [[nodiscard]] std::span<const Stalls> step_stalls() const noexcept {
        const StallClock* const stalls = shared_.log.stalls();
        return stalls != nullptr ? stalls->by_step() : std::span<const Stalls>{};
    }
    [[nodiscard]] const std::optional<Error>& failure() const noexcept { return shared_.failure; }
    /// Tells the handler of events what failed, if it did. Returns what it got.
    template <class R>
    [[nodiscard]] R report_if_failed(R result) {
        if (!result) { shared_.log.failed(result.error()); }
        return result;
    }
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error report(Error error) {
        shared_.log.failed(error);
        return error;
    }
    /// Where passes acquire, and what leases ask and end.
    [[nodiscard]] LeaseKeeper<D>& leases() noexcept { return leases_; }
    [[nodiscard]] const Catalog& catalog() const noexcept { return shared_.catalog; }
    [[nodiscard]] const Schedule& schedule() const noexcept { return shared_.schedule(); }
    [[nodiscard]] D& device() const noexcept { return *shared_.device; }
    [[nodiscard]] Stream pass_stream() const noexcept { return shared_.copy_scheduler.stream_of(pass_consumer_); }

private:
    /// Whether the device holds a weight in its packed form, and leases do not unpack it.
    [[nodiscard]] bool is_read_packed(WeightId weight) const noexcept {
        const StorageId storage = shared_.weight_storage[index(weight)];
        return std::holds_alternative<PackedHostSource>(shared_.catalog.storage(storage).source) &&
               shared_.states[index(storage)].unpacked == nullptr;
    }

    static constexpr const char* lost_links_text =
        "a neighbour whose link the graph uses was lost, as statistics().links says: capture the pass again";
    static constexpr std::uint32_t initial_events = 64;  // of each stream; more are made when they run out
    static constexpr std::size_t most_known_schedules =
        16;  // beside the one in force; the one that was left first is forgotten

    /// A schedule that was in force, and what was learned of it.
    struct KnownSchedule {
        Schedule given;     // by the caller, or guessed
        Schedule schedule;  // that replaced it
        OrderLearner order;
        typename StepProfiler<D>::Progress times;
    };

    Session(D& device, Catalog catalog, Settings settings, std::unique_ptr<Decider<D>> decider)
        : settings_{std::move(settings)},
          profiler_{shared_, settings_.learn_threshold},
          leases_{shared_, budget_, settings_.record},
          graphs_{shared_, leases_},
          suspension_{shared_},
          budget_{shared_, settings_.budget, settings_.reserve_bytes} {
        shared_.device = &device;
        if constexpr (requires { device.users(); }) { device.users().add(); }
        shared_.catalog = std::move(catalog);
        shared_.decider = std::move(decider);
    }

    /// Everything up to the budget. Holds nothing on the device.
    [[nodiscard]] Status prepare();
    [[nodiscard]] Status open(std::unique_ptr<TransportInterface<D>> transport);
    /// Blocks until readers and copies are complete, then frees everything. A device that cannot be drained is left alone.
    void close() noexcept;

    /// A decider that plans and was given no schedule gets one: the storages in the natural order of their names.
    [[nodiscard]] Result<Schedule> schedule_to_open(Schedule schedule);
    [[nodiscard]] Status check_schedule(const Schedule& schedule) const;
    /// Prepares the decider for a schedule.
    [[nodiscard]] Status prepare_decider(const Schedule& schedule);
    [[nodiscard]] Status set_order() {
        const ScheduleCursor& cursor = shared_.cursor;
        return shared_.decider->set_order(cursor.order(), cursor.first_steps(), cursor.now(),
                                          budget_.decider_cap_bytes());
    }
    void start_pass(ConsumerId consumer, PassMode mode);
    /// An error where the device memory is given back.
    [[nodiscard]] Status check_not_suspended() const {
        if (!suspension_.is_suspended()) { return {}; }
        return Error{
            ErrorKind::wrong_state,
            "it is suspended, and holds no device memory: call resume(), or activate() of its ModelGroup, before "
            "passes, captures and other schedules"};
    }
    /// Blocks until everything is complete, between passes; no lease is open. `needs_bytes`: says what the transport failed at, and brings
    /// what could not be read again; otherwise a later call does.
    [[nodiscard]] Status settle(bool needs_bytes) {
        if (auto resumed = graphs_.resume(); !resumed) { return resumed; }
        if (auto settled = needs_bytes ? shared_.drain() : shared_.settle(); !settled) { return settled; }
        return budget_.reclaim_pending();
    }
    /// Another schedule, of this catalog, with the streams not drained yet. Blocks. On failure the one in force stays.
    [[nodiscard]] Status change_schedule(Schedule schedule);
    /// Gives back what is held while it is suspended.
    [[nodiscard]] Status give_back() {
        auto given = suspension_.suspend(residents_);
        budget_.set_held_residents_bytes(residents_.held_now_bytes());
        return given;
    }
    /// Adopts an order or step times that were learned, if they are ready and differ from what was planned. Blocks then, and only then.
    /// `at_once`: one time of every step is enough. Precondition: no pass is open.
    [[nodiscard]] Status learn(bool at_once);
    /// Whether a neighbour was lost whose link a graph uses.
    [[nodiscard]] bool has_lost_links(const CapturedGraph<D>& captured) const noexcept {
        return shared_.copy_scheduler.links_rate() < captured.links_rate;
    }
    /// Plans are for what is left of the links from now on. True: they were for more, and a plan is to be made again.
    bool notice_lost_links();
    /// Makes `schedule` the one in force. False: there is no plan for it.
    [[nodiscard]] Result<bool> adopt_learned(Schedule schedule);
    [[nodiscard]] LearningReport learning_report() const;

    Settings settings_;
    SessionState<D> shared_;
    StepProfiler<D> profiler_;
    LeaseKeeper<D> leases_;
    GraphRunner<D> graphs_;
    Suspension<D> suspension_;
    BudgetControl<D> budget_;
    ResidentStore<D> residents_;
    PassEndPredictor pass_ends_;

    std::vector<std::uint64_t> streamed_bytes_;  // of each storage that streams
    pool::Requirements requirements_;            // spans over it
    std::vector<std::uint64_t> weight_offset_;   // by weight, bytes
    Schedule given_;                             // that what was learned has replaced; otherwise the schedule in force
    std::vector<KnownSchedule> known_;           // not in force, each once, the one that was left last at the end
    std::vector<Schedule> replaced_;  // by what was learned: open leases, and the caller's views of steps, lie in them
    std::uint32_t replans_ = 0;       // for what was learned
    std::uint64_t suspended_cap_bytes_ = 0;  // of the decider, when it was suspended
    double links_rate_ = 0;                  // of the links that plans are made for, as the transport says
    ConsumerId pass_consumer_ = 0;           // of the pass's own stream
    std::uint32_t captured_passes_ = 0;      // that have not ended
    int groups_ = 0;                         // of models, that it is a member of
    Counters before_pass_;
};

template <Device D>
auto Session<D>::open(D& device, Catalog catalog, Settings settings, std::unique_ptr<Decider<D>> decider,
                      std::unique_ptr<TransportInterface<D>> transport) -> Result<std::unique_ptr<Session>> {
    std::unique_ptr<Session> session{new Session{device, std::move(catalog), std::move(settings), std::move(decider)}};
    if (auto opened = session->open(std::move(transport)); !opened) { return session->report(opened.error()); }
    return session;
}

template <Device D>
Result<ResolvedBudget> Session<D>::resolve(D& device, Catalog catalog, Settings settings,
                                           std::unique_ptr<Decider<D>> decider) {
    Session session{device, std::move(catalog), std::move(settings), std::move(decider)};
    if (auto prepared = session.prepare(); !prepared) { return prepared.error(); }
    return session.budget_.take_budget();
}

template <Device D>
Result<std::vector<StorageId>> Session<D>::storage_order(D& device, Catalog catalog, Settings settings,
                                                         std::unique_ptr<Decider<D>> decider) {
    Session session{device, std::move(catalog), std::move(settings), std::move(decider)};
    if (auto prepared = session.prepare(); !prepared) { return prepared.error(); }
    return session.shared_.decider->storage_order(session.catalog(), session.budget_.decider_cap_bytes());
}

template <Device D>
Status Session<D>::begin_pass(Stream stream) {
    shared_.check_caller();
    if (shared_.is_pass_open) {
        return Error{ErrorKind::wrong_state, "a pass is already open on this Residency: end it before the next begins"};
    }
    if (auto awake = check_not_suspended(); !awake) { return awake; }
    CopyScheduler<D>& copy_scheduler = shared_.copy_scheduler;
    Decider<D>& decider = *shared_.decider;
    const auto is_captured = copy_scheduler.is_capturing(stream);
    if (!is_captured) { return is_captured.error(); }
    if (*is_captured && decider.is_streaming()) {
        return Error{ErrorKind::unsupported,
                     "the stream is being captured, and weights are streamed: a foreign capture would hold none of the "
                     "copies; use Residency::capture"};
    }
    if (*is_captured && (copy_scheduler.has_unrecorded_copies() || !shared_.unread.empty())) {
        return Error{
            ErrorKind::unsupported,
            "copies that failed have to be made good first, which waits for the device: begin a pass outside of "
            "the capture"};
    }
    if (*is_captured) {
        copy_scheduler.note_foreign_graph();
        if (auto polled = copy_scheduler.poll_arrivals(); !polled) { return polled; }
    } else {
        if (auto recovered = shared_.recover_failed_calls(); !recovered) { return recovered; }
        if (auto resumed = graphs_.resume(); !resumed) { return resumed; }
        if (auto reclaimed = budget_.reclaim_pending(); !reclaimed) { return reclaimed; }
        if (auto learned = learn(false); !learned) { return learned; }
        if (auto polled = copy_scheduler.begin_pass(); !polled) { return polled; }
    }
    auto consumer = copy_scheduler.consumer(stream);
    if (!consumer) { return consumer.error(); }
    const bool repeats_one_shot = !schedule().empty() && !schedule().is_cyclic() && shared_.counters.passes > 0;
    if (auto prepared = decider.prepare_pass({repeats_one_shot, *is_captured}); !prepared) { return prepared; }
    start_pass(*consumer, *is_captured ? PassMode::foreign_captured : PassMode::eager);
    return {};
}

template <Device D>
Status Session<D>::end_pass() {
    shared_.check_caller();
    if (!shared_.is_pass_open) { return Error{ErrorKind::wrong_state, "no pass is open"}; }
    shared_.is_pass_open = false;
    CopyScheduler<D>& copy_scheduler = shared_.copy_scheduler;
    Status status;
    const auto note = [&](Status done) {
        if (!done) { status = std::move(done); }
    };
    if (shared_.pass_mode != PassMode::foreign_captured) {
        for (ConsumerId id = 0; id < copy_scheduler.consumers(); ++id) {
            if (id == pass_consumer_ || !copy_scheduler.used_in_this_pass(id)) { continue; }
            note(copy_scheduler.join_streams(pass_consumer_, id));
        }
    }
    note(shared_.log.pass_ends(pass_stream()));
    note(copy_scheduler.transport_status());
    if (shared_.is_eager()) {
        pass_ends_.note(shared_.cursor.pass_end());
        note(shared_.expect_steps(shared_.decider->is_streaming() ? pass_ends_.expected() : schedule().size()));
    }
    shared_.decider->pass_ended();
    ++shared_.counters.passes;
    shared_.last_pass = shared_.counters - before_pass_;
    leases_.end_record();
    if (shared_.is_eager()) { note(budget_.reclaim_pending()); }
    if (shared_.log.has_handler() && shared_.is_eager()) { note(copy_scheduler.poll_arrivals()); }
    shared_.keep_failure(status);
    shared_.log.pass_ended(pass_stream(), shared_.last_pass);
    budget_.tell_memory();
    return status;
}

template <Device D>
Status Session<D>::wait_in_pass() {
    shared_.check_caller();
    if (!shared_.is_pass_open) { return Error{ErrorKind::wrong_state, "no pass is open"}; }
    D& device = *shared_.device;
    const auto is_captured = shared_.copy_scheduler.is_capturing(pass_stream());
    if (!is_captured) { return is_captured.error(); }
    if (!shared_.is_eager() || *is_captured) {
        return Error{ErrorKind::unsupported, "a pass that is captured does not run: there is nothing to wait for"};
    }
    ++shared_.counters.host_waits;
    if (shared_.decider->is_speculative()) {
        const auto here = shared_.copy_scheduler.record_point(pass_consumer_);
        if (!here) { return here.error(); }
        while (shared_.decider->send_speculative(shared_.cursor.now())) {
            const auto is_complete = shared_.copy_scheduler.is_reached(pass_consumer_, *here);
            if (!is_complete) { return is_complete.error(); }
            if (*is_complete) { return {}; }
        }
    }
    return device.synchronize(pass_stream());
}

template <Device D>
template <class Body>
Result<CapturedGraph<D>> Session<D>::capture(Stream stream, Timing timing, Body&& body)
    requires CapturingDevice<D>
{
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state,
                     "a graph is captured between passes, when no lease is open: end the pass and every lease before"};
    }
    if (auto awake = check_not_suspended(); !awake) { return awake.error(); }
    if (!shared_.copy_scheduler.transport().is_capturable()) {
        return Error{
            ErrorKind::unsupported,
            "this transport needs the host for every copy, and a graph runs without it: take transport::Pinned"};
    }
    if (auto drained = shared_.drain(); !drained) { return drained.error(); }
    if (auto reclaimed = budget_.reclaim_pending(); !reclaimed) { return reclaimed.error(); }
    if (auto learned = learn(true); !learned) { return learned.error(); }
    const auto begin = [&](Stream on) -> Status {
        auto consumer = shared_.copy_scheduler.consumer(on);
        if (!consumer) { return consumer.error(); }
        start_pass(*consumer, PassMode::captured);
        return {};
    };
    std::optional<typename StepProfiler<D>::Progress> learned_before;
    if (timing == Timing::on) { learned_before = profiler_.begin_graph(); }
    auto graph = graphs_.capture(stream, begin, body);
    if (graph) {
        if (profiler_.is_in_graph()) {
            graph->clock = profiler_.graphs();
        } else {
            profiler_.give_up(LearningReason::captured);
        }
        shared_.order.stop();
        if (graph->counters.fetched_bytes > 0) { graph->links_rate = shared_.copy_scheduler.links_rate(); }
    } else {
        if (learned_before) { static_cast<void>(profiler_.exchange(std::move(learned_before))); }
        static_cast<void>(shared_.recover_failed_calls().has_value());  // what fails here, the next pass does
    }
    return graph;
}

template <Device D>
Status Session<D>::launch(const CapturedGraph<D>& captured, Stream stream)
    requires CapturingDevice<D>
{
    shared_.check_caller();
    if (is_stale(captured)) {
        return Error{ErrorKind::stale,
                     captured.generation != mapping_generation()
                         ? "the graph was captured for another budget or mapping: capture the pass again"
                     : has_lost_links(captured)
                         ? lost_links_text
                         : "the graph was captured to time its steps, which has ended: capture the pass without"};
    }
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state, "a pass or a lease is open: end it before a graph is launched"};
    }
    // Its memory is still there if it could not be given back. What its kernels write would be lost.
    if (auto awake = check_not_suspended(); !awake) { return awake; }
    const auto is_captured = shared_.copy_scheduler.is_capturing(stream);
    if (!is_captured) { return is_captured.error(); }
    if (*is_captured) {
        return Error{ErrorKind::unsupported,
                     "the stream is being captured: a captured pass is launched by itself, not as part of another "
                     "graph"};
    }
    if (auto recovered = shared_.recover_failed_calls(); !recovered) {
        const bool is_stale = captured.links_rate != 0 && has_lost_links(captured);
        return is_stale ? Status{Error{ErrorKind::stale, lost_links_text}} : std::move(recovered);
    }
    captured.clock != 0 ? profiler_.await_graph() : profiler_.collect();
    auto launched = graphs_.launch(captured, stream);
    if (launched || captured.links_rate == 0) { return launched; }
    static_cast<void>(
        shared_.copy_scheduler.transport().check_links().has_value());  // what fails here, the next drain does
    if (!has_lost_links(captured)) { return launched; }
    static_cast<void>(shared_.recover_failed_calls().has_value());  // what fails here, the next pass does
    return Error{ErrorKind::stale, lost_links_text};
}

template <Device D>
Result<BudgetChange> Session<D>::set_budget(const Budget& budget) {
    shared_.check_caller();
    if (shared_.is_pass_open) {
        return Error{ErrorKind::wrong_state, "a budget changes between passes: end the pass before"};
    }
    const std::uint64_t held_bytes = budget_.held_bytes();
    auto resolved = budget_.try_resolve(budget);
    if (!resolved) { return resolved.error(); }
    const bool is_suspended = suspension_.is_suspended();
    if (!is_suspended) {
        if (auto settled = settle(true); !settled) { return settled.error(); }
    } else if (resolved->bytes != this->budget().bytes) {
        // What was brought ahead lies where the plan for this one has it.
        if (auto given = give_back(); !given) { return given.error(); }
    }
    notice_lost_links();
    auto changed = is_suspended ? budget_.set_while_suspended(std::move(*resolved))
                                : budget_.set(std::move(*resolved), held_bytes);
    if (changed && !is_suspended) { profiler_.graphs_are_stale(); }
    if (changed) { shared_.log.budget_changed(*changed); }
    return changed;
}

template <Device D>
Status Session<D>::suspend() {
    shared_.check_caller();
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state,
                     "it is suspended between passes, when no lease is open: end the pass and every lease before"};
    }
    if (!suspension_.is_suspended()) {
        if (auto settled = settle(false); !settled) { return settled; }
        suspended_cap_bytes_ = budget_.decider_cap_bytes();
    }
    return give_back();
}

template <Device D>
Status Session<D>::resume() {
    shared_.check_caller();
    const GraphDecider* const graphs = std::as_const(*shared_.decider).graphs();
    const std::uint64_t generation = graphs != nullptr ? graphs->mapping_generation() : 0;
    auto resumed = suspension_.resume(residents_, budget_.decider_cap_bytes());
    if (graphs != nullptr && graphs->mapping_generation() != generation) { profiler_.graphs_are_stale(); }
    budget_.set_held_residents_bytes(residents_.held_now_bytes());
    if (!resumed) { return budget_.why_not_taken(budget(), resumed.error()); }
    return resumed;
}

template <Device D>
Result<std::uint64_t> Session<D>::bring_asleep(std::uint64_t most_bytes) {
    shared_.check_caller();
    if (!suspension_.is_suspended()) {
        return Error{ErrorKind::wrong_state,
                     "it is not suspended: passes bring what they need, and drain() the rest where nothing streams"};
    }
    if (budget_.decider_cap_bytes() != suspended_cap_bytes_) { return std::uint64_t{0}; }
    return shared_.decider->bring_asleep(most_bytes);
}

template <Device D>
template <class Write>
Status Session<D>::refresh(std::optional<std::span<const WeightId>> weights, Write&& write) {
    shared_.check_caller();
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state,
                     "weights are replaced between passes, when no lease is open: end the pass and every lease before"};
    }
    std::vector<StorageId> storages;
    if (weights) {
        const auto wanted = leases_.storages_of(*weights);
        if (!wanted) { return wanted.error(); }
        storages.assign(wanted->begin(), wanted->end());
    } else {
        const auto all = shared_.catalog.storages();
        for (std::uint32_t i = 0; i < all.size(); ++i) {
            if (!all[i].is_mutable) { storages.push_back(StorageId{i}); }
        }
    }
    if (auto allowed = shared_.decider->check_refresh(storages); !allowed) { return allowed; }
    if (suspension_.is_suspended()) {
        if (auto given = give_back(); !given) { return given; }  // what was brought ahead
        return replace_sources(shared_, storages, false, [&]() -> Status {
            for (const StorageId id : storages) { suspension_.forget(id); }
            return write();
        });
    }
    if (auto settled = settle(false); !settled) { return settled; }
    return replace_sources(shared_, storages, true, write);
}

template <Device D>
Status Session<D>::set_schedule(Schedule schedule) {
    shared_.check_caller();
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state,
                     "a schedule changes between passes, when no lease is open: end the pass and every lease before"};
    }
    if (auto awake = check_not_suspended(); !awake) { return awake; }
    if (auto belongs = check_schedule(schedule); !belongs) { return belongs; }
    if (schedule == given_ || schedule == this->schedule()) {
        auto changed = change_schedule(this->schedule());
        if (changed) { profiler_.graphs_are_stale(); }
        return changed;
    }
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const KnownSchedule& other) {
        return schedule == other.given || schedule == other.schedule;
    });
    const bool is_known = known != known_.end();
    KnownSchedule left{given_, this->schedule(), shared_.order, {}};
    if (auto changed = change_schedule(is_known ? known->schedule : schedule); !changed) { return changed; }
    replaced_.clear();
    if (is_known) {
        given_ = std::move(known->given);
        shared_.order = known->order;
        left.times = profiler_.exchange(std::move(known->times));
        known_.erase(known);
    } else {
        given_ = std::move(schedule);
        shared_.order.declare(given_);
        left.times = profiler_.exchange(std::nullopt);
    }
    profiler_.graphs_are_stale();
    if (known_.size() == most_known_schedules) { known_.erase(known_.begin()); }
    known_.push_back(std::move(left));
    return {};
}

template <Device D>
Status Session<D>::change_schedule(Schedule schedule) {
    if (auto drained = shared_.drain(); !drained) { return drained; }
    profiler_.collect();
    if (auto reclaimed = budget_.reclaim_pending(); !reclaimed) { return reclaimed; }
    if (auto expected = shared_.expect_all_steps(); !expected) { return expected; }
    notice_lost_links();
    if (auto prepared = prepare_decider(schedule); !prepared) { return prepared; }
    const std::uint64_t floor_before = budget_.floor_bytes();
    if (auto raised = budget_.raise_floor(); !raised) {
        if (auto undone = prepare_decider(this->schedule()); !undone) { return undone; }
        return raised;
    }
    const ScheduleCursor cursor_before = shared_.cursor;
    shared_.cursor.change(std::move(schedule));
    auto ordered = set_order();
    if (ordered) {
        pass_ends_.start(this->schedule().size());
        if (auto* stalls = shared_.log.stalls()) { stalls->start(this->schedule().size()); }
        return {};
    }
    shared_.cursor = cursor_before;
    budget_.set_floor_bytes(floor_before);
    if (auto undone = prepare_decider(this->schedule()); !undone) { return undone; }
    // What set_order() sent may be on its way.
    if (!shared_.copy_scheduler.drain_all()) { static_cast<void>(shared_.copy_scheduler.drain_device().has_value()); }
    static_cast<void>(set_order().has_value());
    return ordered;
}

template <Device D>
Result<Schedule> Session<D>::recorded_schedule(Cycle cycle) const {
    if (!settings_.record) {
        return Error{ErrorKind::wrong_state, "nothing was recorded: set .record when the Residency is made"};
    }
    if (leases_.recorded().empty()) {
        return Error{ErrorKind::wrong_state, "no pass has acquired anything yet: run one, then ask for its schedule"};
    }
    return Schedule::try_recorded(shared_.catalog, leases_.recorded(), cycle);
}

template <Device D>
Status Session<D>::drain() {
    shared_.check_caller();
    if (suspension_.is_suspended()) {
        if (auto settled = shared_.settle(); !settled) { return settled; }
        if (!shared_.unread.empty() || !suspension_.has_given_back()) {  // what came ahead, which nobody has read
            if (auto given = give_back(); !given) { return given; }
        }
        profiler_.collect();
        auto told = shared_.tell();
        return told ? budget_.reclaim_pending() : std::move(told);
    }
    if (auto drained = shared_.drain(); !drained) { return drained; }
    profiler_.collect();
    Decider<D>& decider = *shared_.decider;
    if (auto repaired = decider.repair(); !repaired) { return repaired; }
    if (auto reclaimed = budget_.reclaim_pending(); !reclaimed) { return reclaimed; }
    if (auto brought = decider.bring_everything(); !brought) { return brought; }
    const CopyScheduler<D>& copy_scheduler = shared_.copy_scheduler;
    if (!decider.has_pending() && copy_scheduler.has_arrived(copy_scheduler.last_arrival())) { return {}; }
    // What was brought, or copied within the device, has to arrive, too.
    if (auto drained = shared_.drain(); !drained) { return drained; }
    return budget_.reclaim_pending();
}

template <Device D>
Status Session<D>::observe(WorkObserver<D>* observer) {
    shared_.check_caller();
    if (shared_.is_pass_open || leases_.open_leases() > 0) {
        return Error{ErrorKind::wrong_state,
                     "an observer comes and goes between passes, when no lease is open: end the pass and every lease "
                     "before"};
    }
    shared_.log.observe(observer, shared_.catalog);
    return {};
}

template <Device D>
Statistics Session<D>::statistics() const {
    const Decider<D>& decider = *shared_.decider;
    const Catalog& catalog = shared_.catalog;
    const MemoryUse use = decider.memory_use();
    Statistics result;
    result.total = shared_.counters;
    result.last_pass = shared_.last_pass;
    result.budget_bytes = budget().bytes;
    result.floor_bytes = budget_.floor_bytes();
    result.held_bytes = budget_.held_bytes();
    result.pending_bytes = pending_bytes();
    const std::uint64_t residents = decider.holds_residents() ? 0 : shared_.stored.resident_bytes();
    result.requested_bytes = (is_suspended() ? 0 : residents) + use.requested_bytes;
    result.peak_requested_bytes = residents + use.peak_requested_bytes;
    result.resident_bytes = catalog.resident_bytes();
    result.host_read_bytes = catalog.bytes_placed(Placement::host);
    result.streaming = decider.is_streaming();
    result.pass_steps = shared_.cursor.expected_steps();
    result.learning = learning_report();
    if (const auto* stalls = shared_.log.stalls()) { result.stalls = stalls->statistics(); }
    result.pass_time = shared_.log.pass_time();
    result.bound = decider.bound();
    result.held_lease = leases_.held_lease();
    result.links = shared_.copy_scheduler.links();
    return result;
}

template <Device D>
Status Session<D>::prepare() {
    if (!residency::detail::is_not_negative(settings_.learn_threshold) || settings_.learn_threshold > 1) {
        return Error{
            ErrorKind::invalid_argument,
            "Options::learn_threshold is a share of the times, from 0 to 1: 0.05, 5 %, unless you say otherwise"};
    }
    auto schedule = schedule_to_open(std::exchange(settings_.schedule, {}));
    if (!schedule) { return schedule.error(); }
    given_ = *schedule;
    const Catalog& catalog = shared_.catalog;
    shared_.cursor.open(catalog, std::move(*schedule), settings_.strict);
    if (auto* stalls = shared_.log.stalls()) { stalls->start(this->schedule().size()); }
    pass_ends_.start(this->schedule().size());
    const std::size_t storages = catalog.storages().size();
    shared_.states.resize(storages);
    for (std::size_t i = 0; i < storages; ++i) { shared_.states[i].placement = catalog.storages()[i].placement; }
    leases_.open();
    shared_.weight_storage.reserve(catalog.weights().size());
    weight_offset_.reserve(catalog.weights().size());
    for (const Weight& weight : catalog.weights()) {
        shared_.weight_storage.push_back(weight.storage);
        weight_offset_.push_back(weight.offset_bytes);
    }
    requirements_ = requirements_of(catalog, streamed_bytes_);
    if (auto prepared = prepare_decider(this->schedule()); !prepared) { return prepared; }
    shared_.stored = shared_.decider->stored_catalog(catalog);
    residents_.prepare(*shared_.device, shared_.stored, shared_.decider->holds_residents());
    return budget_.resolve(residents_.held_bytes());
}

template <Device D>
Status Session<D>::open(std::unique_ptr<TransportInterface<D>> transport) {
    MarkLog<D>& log = shared_.log;
    if (auto opened = log.open(*shared_.device); !opened) { return opened; }
    if (settings_.on_event) {
        log.tell(std::exchange(settings_.on_event, nullptr), shared_.catalog, shared_.schedule(), shared_.failure);
    }
    if (settings_.time_stalls) { log.time_stalls(shared_.counters.dropped_prefetches); }
    if (auto prepared = prepare(); !prepared) { return prepared; }
    CopyScheduler<D>& copy_scheduler = shared_.copy_scheduler;
    if (auto opened = copy_scheduler.open(*shared_.device, shared_.stored, std::move(transport), initial_events,
                                          shared_.states, shared_.counters, log);
        !opened) {
        return opened;
    }
    DeciderContext<D> context;
    context.catalog = shared_.catalog;
    context.states = shared_.states;
    context.counters = &shared_.counters;
    context.order = shared_.cursor.order();
    context.first_steps = shared_.cursor.first_steps();
    context.poison = settings_.poison;
    context.device = shared_.device;
    context.copy_scheduler = &copy_scheduler;
    context.events = log.hook();
    const std::unique_ptr<MemorySource> stock = shared_.decider->stock_memory(*shared_.device);
    DeviceMemory<D> own{*shared_.device};
    MemorySource& memory = stock ? *stock : own;
    context.memory = &memory;
    auto links = copy_scheduler.transport().measure_links(*shared_.device, budget_.decider_cap_bytes(), memory);
    if (!links) { return budget_.why_not_taken(budget(), links.error()); }
    context.link = *links;
    links_rate_ = copy_scheduler.links_rate();
    if (auto opened = shared_.decider->open(context, requirements_, budget_.decider_cap_bytes()); !opened) {
        return budget_.why_not_taken(budget(), opened.error());
    }
    shared_.unpacks = shared_.decider->unpacks();
    if (auto viewed = residents_.view_host_storages(shared_); !viewed) { return viewed; }
    if (settings_.learn && shared_.decider->makes_plans()) {
        profiler_.begin();
        log.watch_link();
    }
    if (auto brought = residents_.bring_residents(shared_); !brought) {
        return budget_.why_not_taken(budget(), brought.error());
    }
    return {};
}

template <Device D>
void Session<D>::close() noexcept {
    RESIDENCY_ASSERT(leases_.open_leases() == 0, "end every lease before the Residency");
    RESIDENCY_ASSERT(!shared_.is_pass_open, "end the pass before the Residency");
    shared_.log.close_handler();
    CopyScheduler<D>& copy_scheduler = shared_.copy_scheduler;
    if (copy_scheduler.is_open() && !copy_scheduler.drain_all() && !copy_scheduler.drain_device()) {
        shared_.decider->abandon();
        shared_.log.abandon();
        copy_scheduler.abandon();
        copy_scheduler.close();
        return;
    }
    shared_.decider->close();
    residents_.close(*shared_.device);
    suspension_.close();
    shared_.log.close();
    copy_scheduler.close();
}

template <Device D>
Result<Schedule> Session<D>::schedule_to_open(Schedule schedule) {
    if (auto belongs = check_schedule(schedule); !belongs) { return belongs.error(); }
    const Catalog& catalog = shared_.catalog;
    if (!shared_.decider->holds_residents() || !schedule.empty() || catalog.weights().empty()) {
        shared_.order.declare(schedule);
        return schedule;
    }
    ScheduleBuilder builder{catalog};
    for (const StorageId id : natural_order(catalog)) {
        if (const auto weights = catalog.weights_of(id); !weights.empty()) { builder.step(weights); }
    }
    shared_.order.begin(settings_.learn && shared_.decider->makes_plans());
    return builder.try_build();
}

template <Device D>
Status Session<D>::check_schedule(const Schedule& schedule) const {
    if (schedule.empty() || schedule.catalog_hash() == shared_.catalog.hash()) { return {}; }
    return Error{ErrorKind::mismatch, "the schedule was made for another catalog: " +
                                          shared_.catalog.difference(schedule.catalog_outline())};
}

template <Device D>
Status Session<D>::prepare_decider(const Schedule& schedule) {
    requirements_.largest_scheduled_bytes = largest_scheduled_bytes(catalog(), schedule);
    return shared_.decider->prepare(*shared_.device, catalog(), schedule, requirements_);
}

template <Device D>
void Session<D>::start_pass(ConsumerId consumer, PassMode mode) {
    pass_consumer_ = consumer;
    shared_.pass_mode = mode;
    shared_.is_pass_open = true;
    shared_.log.pass_begins(pass_stream(), mode, shared_.counters.passes, schedule(), shared_.decider->is_streaming());
    budget_.tell_memory();
    before_pass_ = shared_.counters;
    shared_.cursor.begin_pass(shared_.counters.passes == 0);
    leases_.begin_record();
    shared_.decider->pass_began(shared_.cursor.now());
    shared_.log.pass_began(pass_stream(), profiler_.wants_pass());
}

template <Device D>
Status Session<D>::learn(bool at_once) {
    if (profiler_.is_in_graph()) {
        if (auto timed = profiler_.end_graph(shared_.decider->planned_step_seconds())) {
            if (auto adopted = adopt_learned(std::move(*timed)); !adopted) { return adopted.error(); }
        }
    }
    profiler_.collect();
    const bool is_for_fewer_links = notice_lost_links();
    if (!shared_.decider->is_streaming()) { return {}; }
    // An order is adopted when no lease is open: leases belong to steps.
    std::optional<Schedule> order;
    if (leases_.open_leases() == 0) {
        order =
            shared_.order.propose(shared_.catalog, schedule(), leases_.recorded(), shared_.last_pass.divergences > 0);
    }
    if (order) {
        const auto adopted = adopt_learned(std::move(*order));
        if (!adopted) { return adopted.error(); }
        if (!*adopted) {
            shared_.order.stop();  // the budget is below its floor
            return {};
        }
        shared_.order.adopted();
        profiler_.restart();
        return {};
    }
    if ((is_for_fewer_links && settings_.learn) || shared_.decider->correct_link(shared_.log.link_rate())) {
        if (auto adopted = adopt_learned(Schedule{schedule()}); !adopted) { return adopted.error(); }
    }
    auto timed = profiler_.propose(shared_.decider->planned_step_seconds(), at_once);
    if (!timed) { return {}; }
    const auto adopted = adopt_learned(std::move(*timed));
    if (!adopted) { return adopted.error(); }
    if (*adopted) {
        profiler_.conclude(true);
    } else {
        profiler_.give_up(LearningReason::no_plan);
    }
    return {};
}

template <Device D>
bool Session<D>::notice_lost_links() {
    const double left = shared_.copy_scheduler.links_rate(), before = std::exchange(links_rate_, left);
    if (left >= before) { return false; }
    shared_.log.forget_link_rate();
    return shared_.decider->lose_links(left / before, shared_.copy_scheduler.links().front().bytes_per_second);
}

template <Device D>
Result<bool> Session<D>::adopt_learned(Schedule schedule) {
    Schedule before = this->schedule();
    auto changed = change_schedule(std::move(schedule));
    if (changed) {
        replaced_.push_back(std::move(before));
        ++replans_;
        return true;
    }
    // A failure of the device or of the transport must be returned, since a transport reports each failure only once.
    const ErrorKind kind = changed.error().kind();
    const bool is_refused = kind == ErrorKind::budget || kind == ErrorKind::invalid_argument ||
                            kind == ErrorKind::mismatch || kind == ErrorKind::unsupported;
    if (!is_refused) { return changed.error(); }
    return false;
}

template <Device D>
LearningReport Session<D>::learning_report() const {
    LearningReport report{shared_.order.origin(),
                          profiler_.state(),
                          profiler_.reason(),
                          schedule().size(),
                          profiler_.timed_steps(),
                          replans_,
                          profiler_.overlapping_steps(),
                          profiler_.passes_ahead()};
    if (!shared_.decider->makes_plans()) { report.reason = LearningReason::makes_no_plan; }
    if (report.state == LearningState::measuring && !shared_.decider->is_streaming()) {
        report.state = LearningState::off;
        report.reason = LearningReason::nothing_streams;
        report.passes_ahead = 0;
    }
    return report;
}

}}}  // namespace residency::RESIDENCY_ABI::core
