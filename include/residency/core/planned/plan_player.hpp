// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/planned/chunk_miss_handler.hpp"
#include "residency/core/planned/chunk_store.hpp"
#include "residency/core/planned/chunk_table.hpp"
#include "residency/core/planned/copy_cursor.hpp"
#include "residency/core/planned/live_ranges.hpp"
#include "residency/core/planned/resident_queue.hpp"
#include "residency/core/planned/step_retirement.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/use_order.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// How the planned decider works at the moment. PlanPlayer::mode() derives it, in this order of precedence.
enum class PlanMode : std::uint8_t {
    unmapped,  ///< a device call failed and parts of the image may be unmapped: nothing is brought until it is mapped again
    capturing,  ///< a graph of a pass is being captured: the host must not wait, and nothing runs
    at_rest,  ///< everything is on the device and stays there: leases wait for nothing, and nothing waits for their ends
    verifying,  ///< memory may differ from what the plan assumes: each call brings only what is absent, and works around leases
    following,  ///< memory is as the plan assumes: calls are enqueued as the plan has them
};

/// Replays the plan in force: its calls are enqueued in plan order, each as soon as the end of the step that it waits for is recorded,
/// across the end of a pass into the next. Residents are brought once (one-shot: once per pass), those of earlier steps first. Trusts
/// the plan as long as mode() is `following`. The host waits only for a lost use and for a chunk that is put back home.
///
/// A lease counts to the last step of its pass until whose end the plan leaves its bytes where they are (LiveRanges): that step ends after
/// it, and those before do not wait for it. A lease of *residents*, which no call overwrites, counts to no step. Nor does an *unplanned*
/// one: the plan has no call that waits for its end. So while one is open, each call first looks for leased chunks in its way.
///
/// It is the part of a decider that sessions call for passes, leases and launches of graphs. Who derives makes the plans.
template <VirtualMemoryDevice D>
class PlanPlayer : public Decider<D>, public GraphDecider {
public:
    /// What the plan has for one access.
    struct Reached {
        bool in_order = false;  ///< the access belongs to a step that has not ended
        bool is_there = false;  ///< every call and resident that the step needs is enqueued
    };

    /// The plan that the store has adopted is replayed from its first pass on; all earlier work is complete. Leases that are open become
    /// unplanned. `problem`: what the plan solves. `cap_bytes`: the device bytes that it was made for.
    void start(const plan::Problem& problem, std::uint64_t cap_bytes);
    [[nodiscard]] PlanMode mode() const noexcept;
    /// Whether mode() is `at_rest`. Inline: each lease asks when it begins and when it ends.
    [[nodiscard]] bool is_at_rest() const noexcept {
        return store_.table().all_stay() && residents_.has_all() && !uses_.records_residents() && !uses_.has_lost() &&
               !calls_.is_capturing() && !store_.is_unmapped();
    }

    // Passes and leases, as Decider says.

    [[nodiscard]] Status prepare_pass(const PassStart& start) final {
        in_foreign_capture_ = start.in_foreign_capture;
        if (in_foreign_capture_) { misses_.note_foreign_graph(); }
        return {};
    }
    void pass_began(StepIndex now) noexcept final;
    /// If the pass ends before the last step, skips the copies for the steps that it has left out, and goes on with those of the next pass.
    void pass_ended() noexcept final;
    /// What only later steps need is not enqueued. A captured pass always has all steps.
    [[nodiscard]] Status expect_steps(std::uint32_t steps, const UseOrder& order, StepIndex now) final;
    [[nodiscard]] Status ensure(std::span<const StorageId> wanted, const AccessPoint& access, LeaseToken& token) final;
    /// Enqueues what waited for the end of the lease.
    void released(const LeaseToken& token, bool recorded) noexcept final;
    void forget(const LeaseToken& token) noexcept final { static_cast<void>(close_lease(token)); }
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept final {
        if (uses_.records_residents()) { return true; }
        const ChunkTable& table = store_.table();
        if (table.all_stay() && !table.has_unplanned()) { return false; }
        for (const StorageId id : storages) {
            if (!table.never_leaves(id)) { return true; }
        }
        return false;
    }
    [[nodiscard]] bool has_pending() const noexcept final { return uses_.records_residents(); }
    [[nodiscard]] Status reclaim_pending() final;
    [[nodiscard]] bool is_streaming() const noexcept final { return calls_.calls_per_pass() > 0; }

    /// A part of ensure(): enqueues what the plan allows at an access to `wanted`. Errors: a device call; in a capture also divergence, and
    /// unsupported if the plan does not have there what the step needs. Blocks if a use was lost.
    [[nodiscard]] Result<Reached> reach(std::span<const StorageId> wanted, const AccessPoint& access);
    /// The last part of ensure(): writes the token of a lease. `is_of_residents`: it covers nothing that the plan overwrites, however long it is open.
    void open_lease(std::span<const StorageId> wanted, const AccessPoint& access, bool in_order, bool is_of_residents,
                    LeaseToken& token) noexcept;

    // For ChunkMissHandler.

    /// The next calls bring what is absent, after looking at memory, and for as many calls as a pass has.
    void verify_a_pass() noexcept { calls_.verify_a_pass(); }
    /// A resident chunk leaves: it is brought again when its slot is free.
    void note_resident_eviction(std::uint32_t chunk) noexcept { residents_.note_eviction(chunk); }
    [[nodiscard]] bool has_all_residents() const noexcept { return residents_.has_all(); }
    /// The current step, as the plan counts.
    [[nodiscard]] std::uint32_t current_step() const noexcept {
        return static_cast<std::uint32_t>(steps_.current() % store_.plan().steps());
    }
    /// Other copies come first: what was announced to the transport is not what it is given next.
    void forget_ahead() final {
        context_.copy_scheduler->transport().forget_ahead();
        announced_ = 0;
    }

    // Between passes, as Decider and GraphDecider say.

    /// If nothing streams, brings all residents to their homes, except where a lease is in the way. The streams are drained. Blocks if
    /// chunks lie elsewhere, or a use was lost.
    [[nodiscard]] Status bring_everything() final;

    /// Brings memory to the state in which a graph of a pass begins and ends: residents are there, and calls [0, cut) of the pass.
    /// Blocks if a use was lost or chunks lie elsewhere.
    [[nodiscard]] Status before_graph() final;
    /// After before_graph(), with everything complete and no lease open: the next pass is captured.
    void capture_begins();
    /// The capture is over: goes back to the state before it. An error if the graph lacks something of its pass.
    [[nodiscard]] Status end_capture(bool is_recorded) final;
    void graph_launched() final;

protected:
    explicit PlanPlayer(typename pool::Virtual<D>::Config config) : store_{std::move(config), context_, uses_} {}

    DeciderContext<D> context_;
    UnrecordedUses<D> uses_{context_};
    ChunkStore<D> store_;
    ChunkMissHandler<D> misses_{context_, store_, uses_, *this};

private:
    /// What a capture changes although nothing of it runs.
    struct State {
        CopyCursor calls;
        std::uint64_t current_step = 0, ended_steps = 0;
        std::vector<std::uint32_t> occupants;
    };

    [[nodiscard]] std::uint64_t first_step(std::uint64_t pass) const noexcept { return pass * store_.plan().steps(); }
    /// The first step of the current pass, numbered across passes.
    [[nodiscard]] std::uint64_t first_step() const noexcept { return first_step(calls_.pass()); }
    /// A storage of these that no step reads, or no_storage.
    [[nodiscard]] StorageId find_unplanned(std::span<const StorageId> storages) const noexcept {
        if (!store_.table().has_unplanned()) { return no_storage; }
        for (const StorageId id : storages) {
            if (store_.table().is_unplanned(id)) { return id; }
        }
        return no_storage;
    }
    /// ensure() of what may have to be brought.
    [[nodiscard]] Status ensure_brought(std::span<const StorageId> wanted, const AccessPoint& access,
                                        StorageId unplanned, LeaseToken& token);
    /// True: it was a lease of a step of the plan in force, or of residents at such a step.
    [[nodiscard]] bool close_lease(const LeaseToken& token) noexcept;

    /// Enqueues what may come now, and announces what follows. A failure is tried again by the next access; in a capture it is kept.
    void try_advance() noexcept;
    [[nodiscard]] Status advance();
    /// Whether passes are expected to end before the last step of the plan.
    [[nodiscard]] bool ends_early() const noexcept {
        return expected_steps_ > 0 && expected_steps_ < store_.plan().steps() && !calls_.is_capturing();
    }
    /// Whether the steps that are expected need no more calls.
    [[nodiscard]] bool has_all_expected() const noexcept {
        return ends_early() && calls_.has_enqueued(store_.plan().step_calls(expected_steps_ - 1));
    }
    /// Whether an expected step, from the one on that needs a call of this chunk first, reads the chunk.
    [[nodiscard]] bool is_expected(std::uint32_t chunk, std::uint32_t needed_by) const noexcept {
        for (const std::uint32_t s : store_.contents().storages(chunk)) {
            if (reads_.use_from(StorageId{s}, needed_by) < expected_steps_) { return true; }
        }
        return false;
    }
    /// Enqueues calls up to the first that has to wait for the host: its step has not ended, or a lease is in the way.
    [[nodiscard]] Status enqueue_calls();
    /// True: the next call is enqueued. False: it has to wait for the host.
    [[nodiscard]] Result<bool> enqueue_next();
    /// Enqueues the call's copies of those chunks that an expected step reads. True and false: as enqueue_next().
    [[nodiscard]] Result<bool> enqueue_expected(const plan::Call& call);
    /// Tells the transport what the next calls bring, at most one pass of them (one-shot: of the current pass).
    void read_ahead();
    [[nodiscard]] bool is_any_leased(std::span<const plan::Copy> copies) const noexcept {
        return any_chunk(store_.plan(), copies, [&](std::uint32_t chunk) { return store_.is_leased(chunk); });
    }
    [[nodiscard]] Error not_captured(const AccessPoint& access) const;
    [[nodiscard]] static UseOrder reads_of(const plan::Problem& problem) {
        std::vector<StorageId> storages;
        storages.reserve(problem.step_storages.size());
        for (const std::uint32_t s : problem.step_storages) { storages.push_back(StorageId{s}); }
        const std::vector<std::uint64_t> offsets{problem.step_offsets.begin(), problem.step_offsets.end()};
        auto order = UseOrder::try_from(offsets, storages, problem.storages(), Cycle::one_shot);
        return order ? std::move(*order) : UseOrder{};
    }

    // LeaseToken::kind
    static constexpr std::uint8_t no_lease = 0;         // of nothing
    static constexpr std::uint8_t lease_of_step = 1;    // a step ends after it
    static constexpr std::uint8_t unplanned_lease = 2;  // no step accounts for it
    static constexpr std::uint8_t resident_lease = 3;   // no step has to

    ResidentQueue<D> residents_{store_};
    bool in_foreign_capture_ = false;  // the current pass
    StepRetirement steps_;
    LiveRanges live_;
    CopyCursor calls_;
    std::uint32_t plan_epoch_ = 0;          // plans that came into force so far
    std::uint64_t unplanned_ = 0;           // open leases that no step of the plan accounts for
    std::uint64_t resident_leases_ = 0;     // open leases of residents of the plan in force
    UseOrder reads_;                        // of the steps of the plan
    std::uint32_t expected_steps_ = 0;      // of each pass; 0, or as many as the plan has: all
    std::uint64_t cut_short_ = UINT64_MAX;  // of the current pass: the first call of which only a part was enqueued
    std::uint32_t pass_end_ = 0;            // the furthest step of the current pass, plus 1
    std::uint64_t announced_ = 0;           // calls before this one are known to the transport, numbered across passes
    std::vector<bool> has_sole_owner_;      // by call: brings a chunk to a slot that no other chunk has

    State outside_;                           // while capturing: the state before
    std::vector<std::uint32_t> after_graph_;  // by slot: the occupant that a graph leaves
    std::optional<Error> capture_failure_;    // the last call that failed in the capture
};

template <VirtualMemoryDevice D>
void PlanPlayer<D>::start(const plan::Problem& problem, std::uint64_t cap_bytes) {
    uses_.set_records_residents(store_.has_misplaced());
    misses_.start(cap_bytes);
    const plan::Plan& plan = store_.plan();
    const ChunkTable& table = store_.table();
    ++plan_epoch_;
    unplanned_ += steps_.open_leases() + std::exchange(resident_leases_, 0);
    steps_ = StepRetirement{plan.steps(), context_.copy_scheduler->consumers()};
    calls_ = CopyCursor{plan};
    cut_short_ = UINT64_MAX;
    reads_ = reads_of(problem);
    // If a change of the schedule failed, the plan in force is for other steps than `problem`: then each lease lasts for its own steps
    // alone.
    live_ = reads_.steps() == plan.steps() ? LiveRanges{plan, reads_} : LiveRanges{};
    residents_.start(problem);
    if (unplanned_ > 0) { calls_.verify_a_pass(); }
    has_sole_owner_.assign(plan.calls().size(), false);
    for (std::uint32_t k = 0; k < plan.calls().size(); ++k) {
        const auto copies = plan.copies(plan.calls()[k]);
        has_sole_owner_[k] = any_chunk(plan, copies, [&](std::uint32_t chunk) { return table.is_sole_owner(chunk); });
        // The first calls leave out what is there already.
        if (any_chunk(plan, copies, [&](std::uint32_t chunk) { return table.is_there(chunk); })) {
            calls_.verify_before(k + std::uint64_t{1});
        }
    }
}

template <VirtualMemoryDevice D>
PlanMode PlanPlayer<D>::mode() const noexcept {
    if (is_at_rest()) { return PlanMode::at_rest; }
    if (store_.is_unmapped()) { return PlanMode::unmapped; }
    if (calls_.is_capturing()) { return PlanMode::capturing; }
    const bool may_differ = calls_.must_verify() || unplanned_ > 0 || store_.has_misplaced();
    return may_differ ? PlanMode::verifying : PlanMode::following;
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::ensure(std::span<const StorageId> wanted, const AccessPoint& access, LeaseToken& token) {
    if (wanted.empty() && !access.is_scheduled) {
        token = LeaseToken{};
        return {};
    }
    const StorageId unplanned = find_unplanned(wanted);
    if (!is_at_rest() || unplanned != no_storage) { return ensure_brought(wanted, access, unplanned, token); }
    for (const StorageId id : wanted) {
        context_.states[index(id)].demand_missed = false;
        context_.count_access(id, store_.plan().storage_bytes(index(id)));
    }
    open_lease(wanted, access, false, false, token);
    return {};
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::ensure_brought(std::span<const StorageId> wanted, const AccessPoint& access, StorageId unplanned,
                                     LeaseToken& token) {
    for (const StorageId id : wanted) { context_.states[index(id)].demand_missed = false; }
    if (unplanned != no_storage && in_foreign_capture_) {
        return Error{ErrorKind::unsupported,
                     "the pass is captured, and no step reads " + context_.catalog.describe(unplanned) +
                         ": a foreign capture holds no copies; let a step of the schedule read it"};
    }
    if (store_.is_unmapped()) {
        if (auto repaired = this->repair(); !repaired) { return repaired; }
    }
    if (auto reclaimed = reclaim_pending(); !reclaimed) { return reclaimed; }
    if (auto sent = store_.send_home_before_use(wanted); !sent) { return sent; }
    const auto reached = reach(wanted, access);
    if (!reached) { return reached.error(); }
    if (!reached->is_there && access.is_range()) {
        if (auto fits = misses_.check_range(access); !fits) { return fits; }
    }
    if (!reached->is_there || mode() == PlanMode::verifying) {
        if (auto brought = misses_.bring(wanted, reached->is_there); !brought) { return brought; }
    }
    const bool in_order = reached->in_order;
    for (const StorageId id : wanted) { context_.count_access(id, store_.plan().storage_bytes(index(id))); }
    open_lease(wanted, access, in_order, in_order && !needs_record(wanted), token);
    return {};
}

template <VirtualMemoryDevice D>
auto PlanPlayer<D>::reach(std::span<const StorageId> wanted, const AccessPoint& access) -> Result<Reached> {
    const std::uint64_t step = first_step() + access.first_step();
    if (access.step != AccessPoint::nowhere) { pass_end_ = (std::max)(pass_end_, access.step + 1); }
    const bool is_capturing = calls_.is_capturing() && !store_.is_unmapped();
    if (is_capturing && (!access.is_scheduled || step < steps_.current())) {
        return Error{
            ErrorKind::divergence,
            "a captured pass follows its schedule, and after " + std::to_string(steps_.current() - first_step()) +
                " of its steps no step is left that reads " +
                (wanted.empty() ? "step " + std::to_string(access.step) : context_.catalog.describe(wanted.front())) +
                ": acquire its steps in their order, or give the schedule that the capture follows"};
    }
    Reached reached{access.is_scheduled && step >= steps_.ended()};
    if (reached.in_order) {
        steps_.reach(step);
        steps_.advance(*context_.copy_scheduler);
        if (auto advanced = advance(); !advanced) { return advanced.error(); }
        if (auto brought = residents_.bring_for(access.step); !brought) { return brought.error(); }
        reached.in_order = step < steps_.ended() + steps_.window();
        reached.is_there = reached.in_order && calls_.has_enqueued(store_.plan().step_calls(access.step)) &&
                           residents_.has_all_for(access.step);
    }
    if (is_capturing && !reached.is_there) { return not_captured(access); }
    return reached;
}

template <VirtualMemoryDevice D>
Error PlanPlayer<D>::not_captured(const AccessPoint& access) const {
    if (capture_failure_) { return *capture_failure_; }
    if (access.is_range()) {
        std::uint32_t last = access.first_step();
        while (last <= access.step && calls_.has_enqueued(store_.plan().step_calls(last))) { ++last; }
        std::string message = "they do not come together in a captured pass at this budget";
        if (last > access.first_step()) {
            message += ", but [" + std::to_string(access.first_step()) + ", " + std::to_string(last) + ") do";
        }
        return Error{ErrorKind::unsupported,
                     message + ": acquire the ranges of Residency::ranges(), and end each lease before the next"};
    }
    return Error{ErrorKind::unsupported,
                 "a captured pass holds one step at a time: step " + std::to_string(access.step) +
                     " needs bytes that an open lease keeps from coming; end that lease first, or "
                     "plan for leases that overlap (ScheduleBuilder::live_until, policies.leases_at_once)"};
}

template <VirtualMemoryDevice D>
inline void PlanPlayer<D>::open_lease(std::span<const StorageId> wanted, const AccessPoint& access, bool in_order,
                                      bool is_of_residents, LeaseToken& token) noexcept {
    const std::uint64_t step = first_step() + access.first_step();
    token.step_index = step;
    token.plan_epoch = plan_epoch_;
    token.steps_ended = access.names_steps ? access.steps : 0;
    token.undisturbed_steps = 0;
    if (in_order && is_of_residents) {
        token.kind = resident_lease;
        ++resident_leases_;
    } else if (in_order) {
        token.kind = lease_of_step;
        if (!access.is_range()) {
            const std::uint32_t last = access.is_whole ? live_.of_step(access.step) : live_.of(access.step, wanted);
            const std::uint64_t most = steps_.ended() + steps_.window() - 1 - step;
            token.undisturbed_steps = static_cast<std::uint32_t>((std::min)(most, std::uint64_t{last - access.step}));
        }
        steps_.open_lease(step + token.undisturbed_steps);
    } else {
        token.kind = unplanned_lease;
        ++unplanned_;
    }
}

template <VirtualMemoryDevice D>
bool PlanPlayer<D>::close_lease(const LeaseToken& token) noexcept {
    if (token.kind == no_lease) { return false; }
    if (token.kind == unplanned_lease || token.plan_epoch != plan_epoch_) {
        --unplanned_;
        return false;
    }
    if (token.kind == resident_lease) {
        --resident_leases_;
    } else {
        steps_.close_lease(token.step_index + token.undisturbed_steps);
    }
    return true;
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::released(const LeaseToken& token, bool recorded) noexcept {
    if (!recorded) { uses_.note_lost(); }
    if (close_lease(token)) { steps_.reach(token.step_index + token.steps_ended); }
    if (token.plan_epoch == plan_epoch_) {
        if (is_at_rest()) { return; }
        steps_.advance(*context_.copy_scheduler);
    }
    try_advance();
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::pass_began(StepIndex) noexcept {
    pass_end_ = 0;
    steps_.reach(first_step());
    if (calls_.begin_pass()) { residents_.start_again(); }
    try_advance();
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::pass_ended() noexcept {
    calls_.end_pass();
    const bool is_whole = pass_end_ == store_.plan().steps() || !store_.plan().is_cyclic() || calls_.is_capturing();
    if (!is_whole && calls_.skip_to_pass()) {
        forget_ahead();
        calls_.verify_a_pass();  // memory holds what the pass before left
    }
    if (cut_short_ < calls_.pass() * calls_.calls_per_pass()) { cut_short_ = UINT64_MAX; }
    steps_.reach(first_step());
    steps_.advance(*context_.copy_scheduler);
    try_advance();
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::try_advance() noexcept {
    if (auto advanced = advance(); !advanced && calls_.is_capturing()) { capture_failure_ = advanced.error(); }
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::advance() {
    if (mode() == PlanMode::unmapped) { return {}; }
    Status enqueued = enqueue_calls();
    if (enqueued) { read_ahead(); }
    return enqueued;
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::enqueue_calls() {
    if (uses_.has_lost() && calls_.is_capturing()) {
        return Error{ErrorKind::device, "the end of a lease could not be captured"};
    }
    if (auto awaited = uses_.wait_for_lost_uses(); !awaited) { return awaited; }
    if (calls_.may_bring_rest()) {
        const bool brings_all = store_.plan().is_cyclic() || !ends_early();
        if (auto brought = residents_.bring_for(brings_all ? plan::none : expected_steps_ - 1); !brought) {
            return brought;
        }
    }
    while (calls_.may_enqueue() && !has_all_expected()) {
        const auto enqueued = enqueue_next();
        if (!enqueued) { return enqueued.error(); }
        if (!*enqueued) { return {}; }
        calls_.advance();
    }
    return {};
}

template <VirtualMemoryDevice D>
Result<bool> PlanPlayer<D>::enqueue_next() {
    const plan::Plan& plan = store_.plan();
    const std::uint64_t pass = calls_.pass_of_next();
    const std::uint32_t k = calls_.next_in_plan();
    const plan::Call& call = plan.calls()[k];
    const bool waits = call.wait.exists() && (call.wait.pass == 0 || pass > calls_.first_pass());
    const std::uint64_t after =
        waits ? first_step(pass + static_cast<std::uint64_t>(std::int64_t{call.wait.pass})) + call.wait.step : 0;
    if (auto brought = residents_.bring_for(call.needed_by); !brought) { return brought.error(); }
    if (auto brought = residents_.bring_before_call(calls_.next()); !brought) { return brought.error(); }
    if (!residents_.has_all_for(call.needed_by) || (waits && after >= steps_.ended())) { return false; }
    if (ends_early() &&
        any_chunk(plan, plan.copies(call), [&](std::uint32_t chunk) { return !is_expected(chunk, call.needed_by); })) {
        return enqueue_expected(call);
    }
    const PlanMode now = mode();
    if (now == PlanMode::verifying) { return store_.load_around_leases(plan.copies(call)); }
    // The only chunk on a slot: the plan lets its copy wait for no step, and the chunk may still be leased from an earlier pass.
    if (has_sole_owner_[k] && now != PlanMode::capturing && is_any_leased(plan.copies(call))) { return false; }
    if (waits) {
        if (auto waiting = steps_.copy_stream_wait_for_end(*context_.copy_scheduler, after); !waiting) {
            return waiting.error();
        }
    }
    if (auto sent = store_.load_call(k); !sent) { return sent.error(); }
    return true;
}

template <VirtualMemoryDevice D>
Result<bool> PlanPlayer<D>::enqueue_expected(const plan::Call& call) {
    auto loaded = store_.load_around_leases(store_.plan().copies(call),
                                            [&](std::uint32_t chunk) { return is_expected(chunk, call.needed_by); });
    if (loaded && *loaded) {
        cut_short_ = (std::min)(cut_short_, calls_.next());
        calls_.verify_a_pass();
    }
    return loaded;
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::expect_steps(std::uint32_t steps, const UseOrder&, StepIndex) {
    const bool is_more = ends_early() && steps > expected_steps_;
    expected_steps_ = steps;
    if (!is_more || cut_short_ == UINT64_MAX) { return {}; }
    calls_.go_back_to(std::exchange(cut_short_, UINT64_MAX));
    calls_.verify_a_pass();
    return {};
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::read_ahead() {
    const PlanMode now = mode();
    if (calls_.calls_per_pass() == 0 || now == PlanMode::capturing || unplanned_ > 0) { return; }
    if (now == PlanMode::verifying) {
        forget_ahead();
        return;
    }
    announced_ = (std::max)(announced_, calls_.next());
    TransportInterface<D>& transport = context_.copy_scheduler->transport();
    while (!has_all_expected() && announced_ < calls_.known_end() &&
           transport.read_ahead(
               store_.contents().call(static_cast<std::uint32_t>(announced_ % calls_.calls_per_pass())))) {
        ++announced_;
    }
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::reclaim_pending() {
    if (!has_pending() || store_.is_unmapped() || calls_.is_capturing()) { return {}; }
    if (auto polled = context_.copy_scheduler->poll(); !polled) { return polled; }
    if (auto sent = store_.send_home(); !sent) { return sent; }
    uses_.set_records_residents(store_.has_misplaced() || store_.has_remapped() || !residents_.has_all());
    return {};
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::bring_everything() {
    const PlanMode now = mode();
    if (!store_.table().all_stay() || now == PlanMode::unmapped || now == PlanMode::capturing) { return {}; }
    if (auto awaited = uses_.wait_for_lost_uses(); !awaited) { return awaited; }
    if (auto brought = residents_.bring_for(plan::none); !brought) { return brought; }
    if (!store_.has_remapped() || unplanned_ + resident_leases_ + steps_.open_leases() > 0) { return {}; }
    // Residents may have left their homes for storages that no step reads. Now these leave, and the residents return.
    if (!uses_.records_residents()) { return {}; }
    if (auto restored = store_.restore_remapped(); !restored) { return restored; }
    return store_.load_absent(store_.plan().residents());
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::before_graph() {
    const plan::Plan& plan = store_.plan();
    if (auto awaited = uses_.wait_for_lost_uses(); !awaited) { return awaited; }
    if (auto brought = residents_.bring_for(plan::none); !brought) { return brought; }
    if (auto restored = store_.restore_remapped(); !restored) { return restored; }
    if (auto waits = context_.copy_scheduler->copy_stream_wait_for_all_uses(); !waits) { return waits; }
    // After a pass that ended early, what the next pass begins with may not be there.
    if (auto begun = store_.load_absent(plan.residents()); !begun) { return begun; }
    for (std::uint32_t k = 0; k < plan.cut(); ++k) {
        const bool is_any_absent = any_chunk(plan, plan.copies(plan.calls()[k]),
                                             [&](std::uint32_t chunk) { return !store_.table().is_there(chunk); });
        if (!is_any_absent) { continue; }
        if (auto sent = store_.load_call(k); !sent) { return sent; }
    }
    calls_.reach_cut();
    cut_short_ = UINT64_MAX;
    return {};
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::capture_begins() {
    outside_ = {calls_, steps_.current(), steps_.ended(), store_.table().occupants()};
    steps_.forget_consumers();
    calls_.begin_capture();
    capture_failure_.reset();
}

template <VirtualMemoryDevice D>
Status PlanPlayer<D>::end_capture(bool is_recorded) {
    Status whole;
    const bool is_complete = !uses_.has_lost() && calls_.is_capture_whole();
    if (is_recorded && !is_complete) {
        whole =
            capture_failure_.value_or(Error{ErrorKind::wrong_state, "not everything that the pass needs was captured"});
    }
    if (is_recorded && is_complete) { after_graph_ = store_.table().occupants(); }
    uses_.forget_lost();
    capture_failure_.reset();
    calls_ = outside_.calls;
    steps_.go_to(outside_.current_step, outside_.ended_steps);
    steps_.forget_consumers();
    store_.set_occupants(outside_.occupants);
    return whole;
}

template <VirtualMemoryDevice D>
void PlanPlayer<D>::graph_launched() {
    calls_.advance_by_graph();
    steps_.go_to(first_step(), first_step());
    store_.set_occupants(after_graph_);
}

}}}  // namespace residency::RESIDENCY_ABI::core
