// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/composition.hpp"
#include "residency/core/engine/captured_pass.hpp"
#include "residency/core/engine/lease.hpp"
#include "residency/core/engine/pass.hpp"
#include "residency/core/engine/session.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/fwd.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/transport/pinned.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Weights of one catalog on one device, inside a hard budget of device bytes:
///
///     Residency<evict::Lru, prefetch::Lookahead<4>, pool::StreamOrdered<CudaDevice>> weights{device, catalog,
///         {.budget = Budget::parse("8GiB"), .schedule = schedule}};
///     auto pass = weights.begin(stream);
///     for (const auto& step : schedule) {
///         auto lease = pass.acquire(step);    // on the device or on its way: the stream waits, the host does not
///         launch(step, lease, stream);
///     }                                       // the lease ends: its use is recorded on the stream
///
/// Threads: one pass at a time on one Residency, and one thread at a time in it and in its passes, leases and tickets. Several
/// Residencies, in several threads, may share host bytes and a device. While one of them captures, another thread that constructs,
/// drains, destroys or changes the budget of a Residency on that device waits; the body of a capture must not wait for such a thread.
/// The device outlives the Residency; leases and tickets end before it.
template <class Evictor, class Prefetcher, class Pool, class Transport>
    requires core::Composable<Evictor, Prefetcher, Pool, Transport>
class Residency<Evictor, Prefetcher, Pool, Transport> {
    using Composition = core::Composition<Evictor, Prefetcher, Pool, Transport>;
    using Decider = typename Composition::Decider;

public:
    using Device = typename Pool::Device;      ///< where the weights are used
    using TransportPolicy = Transport;         ///< how they travel
    using Stream = typename Device::Stream;    ///< of the device
    using Pass = residency::Pass<Device>;      ///< one run through the steps
    using Lease = residency::Lease<Device>;    ///< the right to read weights
    using Ticket = residency::Ticket<Device>;  ///< weights that were asked for ahead

    /// Which fields there are depends on the decider: core::OnlineOptions or core::PlannedOptions.
    using Options = typename Composition::Options;

    /// Blocks while the device allocates; copies of residents are enqueued when it returns. On failure nothing is left behind. Errors:
    /// budget (below the floor; the numbers are in the error), mismatch (a schedule of another catalog), unsupported (bytes that the
    /// transport cannot reach), out_of_memory, or the device's own.
    [[nodiscard]] static Result<Residency> try_create(Device& device, Catalog catalog, Options options = {}) {
        auto settings = core::settings_of(options);
        auto decider = std::make_unique<Decider>(std::move(options.policies));
        Decider& own = *decider;
        auto transport = std::make_unique<core::TransportAdapter<Device, Transport>>(std::move(options.transport));
        auto session = core::Session<Device>::open(device, std::move(catalog), std::move(settings), std::move(decider),
                                                   std::move(transport));
        if (!session) { return session.error(); }
        return Residency{std::move(*session), own};
    }
    /// The budget that try_create would resolve to, with the floor and the total. Allocates nothing on the device. Errors: budget and
    /// mismatch, as of try_create.
    [[nodiscard]] static Result<ResolvedBudget> try_resolve_budget(Device& device, Catalog catalog,
                                                                   Options options = {}) {
        auto settings = core::settings_of(options);
        return core::Session<Device>::resolve(device, std::move(catalog), std::move(settings),
                                              std::make_unique<Decider>(std::move(options.policies)));
    }
    /// The storages in the order in which try_create would lay them out on the device, for host::LoadOptions::order: what is copied together
    /// then lies together on the host too, and is one piece of a copy. Of planned compositions; others have no such order, and give none.
    /// Makes a plan, over the link of plan::Link{} where none is given. Allocates nothing on the device. Errors: as of try_create.
    [[nodiscard]] static Result<std::vector<StorageId>> try_storage_order(Device& device, Catalog catalog,
                                                                          Options options = {}) {
        auto settings = core::settings_of(options);
        return core::Session<Device>::storage_order(device, std::move(catalog), std::move(settings),
                                                    std::make_unique<Decider>(std::move(options.policies)));
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_resolve_budget(), but throws Exception.
    [[nodiscard]] static ResolvedBudget resolve_budget(Device& device, Catalog catalog, Options options = {}) {
        return unwrap(try_resolve_budget(device, std::move(catalog), std::move(options)));
    }
    /// As try_storage_order(), but throws Exception.
    [[nodiscard]] static std::vector<StorageId> storage_order(Device& device, Catalog catalog, Options options = {}) {
        return unwrap(try_storage_order(device, std::move(catalog), std::move(options)));
    }
    /// As try_create(), but throws Exception.
    Residency(Device& device, Catalog catalog, Options options = {})
        : Residency{unwrap(try_create(device, std::move(catalog), std::move(options)))} {}
#endif
    /// Blocks until all uses and copies are complete, then frees everything. On a device that cannot be drained it leaks.
    ~Residency() = default;
    /// The source is empty afterwards.
    /// @{
    Residency(Residency&&) noexcept = default;
    Residency& operator=(Residency&&) noexcept = default;
    /// @}

    /// Begins a pass on a stream. Blocks where something was learned and the pass is planned again (Options::learn). Errors: wrong_state (a
    /// pass is open), unsupported (the caller captures the stream, and weights are streamed). With everything resident such a capture is accepted: the caller's graph then holds the addresses of today and must not be
    /// launched after a change of the budget, which nothing checks. A CapturedPass is checked.
    [[nodiscard]] Result<Pass> try_begin(Stream stream) {
        if (auto begun = session().begin_pass(stream); !begun) { return session().report(begun.error()); }
        return Pass{&session()};
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_begin(), but throws Exception.
    [[nodiscard]] Pass begin(Stream stream) { return unwrap(try_begin(stream)); }
#endif

    /// Blocks until earlier work is complete, then records one pass as a graph, copies included, and ends the learning (Options::learn).
    /// `body(pass)` acquires every step in the order of the schedule, launches its kernels on `stream` (or on streams named by use_on), and
    /// returns void or a Status. Nothing of it runs. Errors: unsupported, divergence, wrong_state, budget, or the device's own. Where the device
    /// fails to end the capture, the next call of this Residency ends it: leave the stream alone until then.
    template <class Body, CapturingDevice D = Device>
    [[nodiscard]] Result<CapturedPass<D>> try_capture(Stream stream, Body&& body)
        requires Composition::is_planned
    {
        return captured<D>(stream, Timing::off, body);
    }
    /// As try_capture(), with a clock in the graph: its launches also measure what the steps take on the device, which is less than in eager
    /// passes where the host launches their kernels more slowly than they run. Launch it while is_learning(); the next try_capture() or
    /// try_begin() ends the timing, and plans with the new times where they differ (Options::learn_threshold). It is stale then. Where nothing
    /// streams, nothing is to be learned or somebody observes, it is a graph as any other.
    ///
    ///     auto timed = unwrap(weights.try_capture_timed(stream, body));
    ///     while (timed.is_learning()) { unwrap(timed.try_launch(stream)); }
    ///     auto graph = unwrap(weights.try_capture(stream, body));
    template <class Body, GraphTimingDevice D = Device>
    [[nodiscard]] Result<CapturedPass<D>> try_capture_timed(Stream stream, Body&& body)
        requires Composition::is_planned
    {
        return captured<D>(stream, Timing::on, body);
    }
    /// Blocks until recorded uses and copies are complete, then changes the budget, between passes; leases may be open. Leased weights keep
    /// their addresses, and count. Of the others, as many are evicted as necessary; a weight on memory that is given back is copied within
    /// the device. Bytes that open leases keep beyond the new budget are *pending*: they are given back once the leases have ended and
    /// their uses are complete, at the beginning and end of passes, by try_reclaim_pending and by try_drain. Captured passes become stale.
    ///
    /// Errors, after which the old budget is in force and every lease is as before: budget (below the floor); wrong_state (a pass is open;
    /// or, for a planned composition with open leases, the budget is below the floor of the present image: addresses of a plan are offsets
    /// in one image, which cannot be laid out again under a lease; or leases are open and the pool is not a pool::ResizablePool, of which
    /// every weight leaves for another budget); or the device's own.
    [[nodiscard]] Result<BudgetChange> try_set_budget(const Budget& budget) {
        return session().report_if_failed(session().set_budget(budget));
    }
    /// Gives back pending bytes of the last change of the budget, as far as possible now, and returns its outcome so far. Does not block.
    [[nodiscard]] Result<BudgetChange> try_reclaim_pending() {
        return session().report_if_failed(session().reclaim_pending());
    }
    /// The outcome of the last change of the budget so far.
    [[nodiscard]] const BudgetChange& budget_change() const noexcept { return session().budget_change(); }
    /// Bytes held beyond the budget in force, because open leases keep them.
    [[nodiscard]] std::uint64_t pending_bytes() const { return session().pending_bytes(); }
    /// Blocks until the device is idle, then changes the schedule, between passes. Error budget: the budget is below the floor of the new
    /// schedule; the old one stays.
    [[nodiscard]] Status try_set_schedule(Schedule schedule) {
        return session().report_if_failed(session().set_schedule(std::move(schedule)));
    }
    /// Blocks until all uses and copies are complete, then gives all device memory back, between passes, when no lease is open: no weight has an
    /// address until try_resume(), and generation() changes. What kernels wrote to mutable weights is copied to pinned host memory.
    /// Meanwhile passes, captures, launches and other schedules are refused (wrong_state); another budget is for try_resume(). A planned
    /// composition has its addresses again after try_resume() with the same budget, and its captured passes stay valid, unless neighbours held
    /// bytes for them (transport::Links); those of others become stale. With pool.stock the driver is not called (ModelGroup); what
    /// try_bring_asleep() brought is given back, too. Otherwise it does nothing where it is suspended. Errors: wrong_state (a pass or a lease is open), out_of_memory (of host memory), or the device's own: if
    /// is_suspended() then, memory is still held, and another call goes on. What could not be read does not hinder it: see try_transport_status().
    [[nodiscard]] Status try_suspend() { return session().report_if_failed(session().suspend()); }
    /// Blocks until what kernels wrote is on the device again; other weights come with the next pass. Plans nothing, unless the budget has
    /// changed. Does nothing where it is not suspended. Errors, after which it is suspended as before: out_of_memory, budget, or the device's
    /// own.
    [[nodiscard]] Status try_resume() { return session().report_if_failed(session().resume()); }
    /// Between try_suspend() and try_resume(), in a planned composition with pool.stock: takes memory that it had and that no other model has
    /// now, and enqueues copies of what stays there, up to `most_bytes`. Returns the bytes of these copies; 0: there is no more to bring, no memory
    /// for it, another budget, or less than a piece of 2 MiB was asked for. Does not block. Errors: wrong_state (it is not suspended), or the device's own.
    [[nodiscard]] Result<std::uint64_t> try_bring_asleep(std::uint64_t most_bytes) {
        return session().report_if_failed(session().bring_asleep(most_bytes));
    }
    /// For a ModelGroup, which it is a member of or leaves: it ends after that.
    void count_group(bool is_in) noexcept { session().count_group(is_in); }
    /// Between try_suspend() and try_resume().
    [[nodiscard]] bool is_suspended() const noexcept { return session().is_suspended(); }
    /// Replaces the bytes of weights at their sources, between passes, when no lease is open: `write()` does it, in host memory or in files (of
    /// the same size), and returns void or a Status. Blocks: until all uses and copies are complete, before; until what the device holds of
    /// these weights is new, after. No pass sees both. Nothing of this Residency reads the sources while `write()` runs; others that
    /// share them are refreshed around it: `a.try_refresh(w, [&] { return b.try_refresh(w, write); })`. Weights that lie in one storage are
    /// refreshed together; a mutable weight that is named loses what kernels wrote. Addresses stay, and captured passes stay valid. What could
    /// not be read before does not hinder it: see try_transport_status().
    ///
    /// Errors: invalid_argument (no such weight) and wrong_state (a pass or a lease is open), before `write()` runs; what `write()` returns;
    /// io and mismatch (of files), or the device's own. Whatever fails, no pass reads a mix: the next one brings what is missing, or fails.
    template <std::invocable Write>
    [[nodiscard]] Status try_refresh(std::span<const WeightId> weights, Write&& write) {
        return refreshed(weights, write);
    }
    /// As above, for a list of weights, or for one.
    /// @{
    template <std::invocable Write>
    [[nodiscard]] Status try_refresh(std::initializer_list<WeightId> weights, Write&& write) {
        return refreshed(std::span<const WeightId>{weights.begin(), weights.size()}, write);
    }
    template <std::invocable Write>
    [[nodiscard]] Status try_refresh(WeightId weight, Write&& write) {
        return refreshed(std::span<const WeightId>{&weight, 1}, write);
    }
    /// @}
    /// As above, for all weights that are not mutable.
    template <std::invocable Write>
    [[nodiscard]] Status try_refresh_all(Write&& write) {
        return refreshed(std::nullopt, write);
    }
    /// The acquisitions of the last pass that ended, in order, as a schedule. Needs Options::record.
    [[nodiscard]] Result<Schedule> try_recorded_schedule(Cycle cycle = Cycle::cyclic) const {
        return session().recorded_schedule(cycle);
    }
    /// Tells `observer`, such as a TimelineRecorder, of all work that is enqueued from now on; null: nobody. Between passes, when no lease
    /// is open (wrong_state). Costs nothing where nobody is told. The observer outlives this Residency and its captured passes, or is taken
    /// away by another call once they are gone.
    [[nodiscard]] Status try_observe(core::WorkObserver<Device>* observer) {
        return session().report_if_failed(session().observe(observer));
    }
    /// Blocks until all uses and copies so far are complete; then returns try_transport_status(), and brings again what could not be read. Of a
    /// planned composition that streams nothing, everything that steps read is on the device then: a capture of the caller's may begin.
    [[nodiscard]] Status try_drain() { return session().report_if_failed(session().drain()); }
    /// The first failure of the transport's threads; success for a transport without threads. Does not block. Success after the stream of a
    /// pass was synchronized, before the next one begins, says that every byte that the pass read is the source's. A failure stays until
    /// try_begin, try_capture, CapturedPass::try_launch, try_drain, try_set_budget or try_set_schedule has returned it: that call waits for the
    /// device, and brings the bytes again.
    /// While a lease covers them, it returns wrong_state instead.
    [[nodiscard]] Status try_transport_status() const { return session().transport_status(); }
#if RESIDENCY_EXCEPTIONS
    /// As try_capture(), but throws Exception.
    template <class Body, CapturingDevice D = Device>
    [[nodiscard]] CapturedPass<D> capture(Stream stream, Body&& body)
        requires Composition::is_planned
    {
        return unwrap(try_capture(stream, std::forward<Body>(body)));
    }
    /// As try_capture_timed(), but throws Exception.
    template <class Body, GraphTimingDevice D = Device>
    [[nodiscard]] CapturedPass<D> capture_timed(Stream stream, Body&& body)
        requires Composition::is_planned
    {
        return unwrap(try_capture_timed(stream, std::forward<Body>(body)));
    }
    BudgetChange set_budget(const Budget& budget) { return unwrap(try_set_budget(budget)); }
    /// As the form with try_, but throws Exception.
    /// @{
    BudgetChange reclaim_pending() { return unwrap(try_reclaim_pending()); }
    void set_schedule(Schedule schedule) { unwrap(try_set_schedule(std::move(schedule))); }
    [[nodiscard]] Schedule recorded_schedule(Cycle cycle = Cycle::cyclic) const {
        return unwrap(try_recorded_schedule(cycle));
    }
    void observe(core::WorkObserver<Device>* observer) { unwrap(try_observe(observer)); }
    void drain() { unwrap(try_drain()); }
    void suspend() { unwrap(try_suspend()); }
    void resume() { unwrap(try_resume()); }
    std::uint64_t bring_asleep(std::uint64_t most_bytes) { return unwrap(try_bring_asleep(most_bytes)); }
    template <std::invocable Write>
    void refresh(std::span<const WeightId> weights, Write&& write) {
        unwrap(try_refresh(weights, write));
    }
    template <std::invocable Write>
    void refresh(std::initializer_list<WeightId> weights, Write&& write) {
        unwrap(try_refresh(weights, write));
    }
    template <std::invocable Write>
    void refresh(WeightId weight, Write&& write) {
        unwrap(try_refresh(weight, write));
    }
    template <std::invocable Write>
    void refresh_all(Write&& write) {
        unwrap(try_refresh_all(write));
    }
    /// @}
#endif

    /// May ask the device whether a pass is complete. Does not block.
    [[nodiscard]] Statistics statistics() const { return session().statistics(); }
    /// What streams waited for bytes, and why, by step of the schedule: of the last pass that was timed and is complete, as Statistics::stalls.
    /// Empty unless Options::time_stalls. A range of steps that was leased together counts to its first. Valid until the next call.
    [[nodiscard]] std::span<const Stalls> step_stalls() const noexcept { return session().step_stalls(); }
    /// The budget in force, and which source set it.
    [[nodiscard]] const ResolvedBudget& budget() const noexcept { return session().budget(); }
    /// The first failure of an operation that cannot report one: the end of a lease or of a pass.
    [[nodiscard]] const std::optional<Error>& failure() const noexcept { return session().failure(); }
    /// The catalog of the weights.
    [[nodiscard]] const Catalog& catalog() const noexcept { return session().catalog(); }
    /// The schedule in force.
    [[nodiscard]] const Schedule& schedule() const noexcept { return session().schedule(); }
    /// The device that runs the passes.
    [[nodiscard]] Device& device() noexcept { return session().device(); }
    /// The policies of an online composition, for those that take hints.
    [[nodiscard]] Evictor& evictor() noexcept
        requires(!Composition::is_planned)
    {
        return decider_->evictor();
    }
    /// For what it offers beside the library's calls: hints.
    [[nodiscard]] Prefetcher& prefetcher() noexcept
        requires(!Composition::is_planned)
    {
        return decider_->prefetcher();
    }
    /// Where kernels find a weight's first byte, whether it is leased or not: for tables of addresses, and for graphs and kernels that
    /// keep them. Not const, for kernels of C style that only read. The bytes there are the weight's only under a lease. Null if
    /// the weight has no bytes. In a composition that is not planned, only weights that stay on the device keep their address; that of
    /// another one is null, or lasts as long as a lease. Precondition: an id of the catalog; of its dtype is T.
    template <class T = void>
    [[nodiscard]] T* address(WeightId weight) const noexcept {
        RESIDENCY_ASSERT(catalog().contains(weight), "pass an id of the catalog");
        return session().template typed_address<T>(weight);
    }
    /// Counts the changes of addresses: as long as it is the same, address() is the same for every weight. May change with the budget,
    /// the schedule, where a pass begins (Options::learn), and where a failed device call is made good: compare it after an acquire.
    [[nodiscard]] std::uint64_t generation() const noexcept
        requires Composition::is_planned
    {
        return decider_->address_generation();
    }
    /// The ranges of steps into which a pass falls at the present budget, in order, for kernels that run many steps in one launch:
    /// `for (const StepRange range : weights.ranges()) { auto lease = pass.acquire(range); … }`. One range where everything is
    /// resident. Otherwise as few as let the copies of the next range run while one computes, which costs at most 0.5 % of a pass.
    /// Where policies.leases_at_once is above 1 and weights stream, each step is a range. Valid until the next pass begins, and
    /// until the budget or the schedule changes.
    [[nodiscard]] std::span<const StepRange> ranges() const
        requires Composition::is_planned
    {
        return decider_->ranges();
    }
    /// Where a planned composition takes its device memory from, policies.pool.stock; null: from the device.
    [[nodiscard]] const auto* stock() const noexcept
        requires Composition::is_planned
    {
        return decider_->stock();
    }
    /// The copies of a pass of a planned composition.
    [[nodiscard]] const plan::Plan& plan() const noexcept
        requires Composition::is_planned
    {
        return decider_->plan();
    }
    /// Packed weights: the seconds of a pass that no choice of what stays unpacked, with any plan of copies, beats inside the budget in
    /// force. plan().bound_seconds() is that of the choice in force. Takes up to some seconds for hundreds of steps.
    [[nodiscard]] double exact_bound() const
        requires requires(const Decider& decider) { decider.exact_bound(); }
    {
        return decider_->exact_bound();
    }
    /// What the plan in force solves, with the compute times that it assumes; its budget_bytes is not set. For plan::advise and
    /// plan::budget_for.
    [[nodiscard]] const plan::Problem& problem() const noexcept
        requires Composition::is_planned
    {
        return decider_->problem();
    }

    /// @cond
private:
    Residency(std::unique_ptr<core::Session<Device>> session, Decider& decider) noexcept
        : session_{std::move(session)}, decider_{&decider} {}

    template <CapturingDevice D, class Body>
    [[nodiscard]] Result<CapturedPass<D>> captured(Stream stream, Timing timing, Body& body) {
        detail::Attempt attempt;
        auto graph = session().capture(stream, timing, [&] {
            Pass pass{&session()};
            Status status = attempt.run(body, pass);
            Status ended = pass.try_end();
            return status ? std::move(ended) : std::move(status);
        });
        attempt.rethrow();
        if (!graph) { return session().report(graph.error()); }
        return CapturedPass<D>{session(), *graph};
    }
    template <class Write>
    [[nodiscard]] Status refreshed(std::optional<std::span<const WeightId>> weights, Write& write) {
        detail::Attempt attempt;
        auto done = session().report_if_failed(session().refresh(weights, [&] { return attempt.run(write); }));
        attempt.rethrow();
        return done;
    }

    [[nodiscard]] core::Session<Device>& session() const noexcept {
        RESIDENCY_ASSERT(session_ != nullptr, "this Residency was moved from: use the one that it was moved to");
        return *session_;
    }

    std::unique_ptr<core::Session<Device>> session_;
    Decider* decider_;  // of the session, by its type
    /// @endcond
};

}}  // namespace residency::RESIDENCY_ABI
