// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/chunk_contents.hpp"
#include "residency/core/chunk_placement.hpp"
#include "residency/core/chunk_table.hpp"
#include "residency/core/copy_cursor.hpp"
#include "residency/core/copy_scheduler.hpp"
#include "residency/core/decider.hpp"
#include "residency/core/measure_link.hpp"
#include "residency/core/plan_factory.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/step_retirement.hpp"
#include "residency/core/storage_state.hpp"
#include "residency/plan/first_pass.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides beforehand: replays a plan over the chunks of the image. Calls are enqueued in plan order, each as soon as the end of
/// the step that it waits for is recorded, across the end of a pass into the next.
///
/// Divergence. Skipping steps costs nothing but the bytes that they would have needed: the plan goes on. A lease out of order
/// (a step that has ended, an undeclared set, a step whose calls open leases keep from coming) brings the chunks that are not there
/// itself; from then on, for as many calls as a pass has, the decider is *cautious*: it looks at every chunk instead of trusting the
/// plan, brings none that is there, and overwrites nothing before all recorded uses. Two chunks of one slot that are needed together
/// are told apart by mapping one of them elsewhere; the host waits for that.
///
/// A one-shot plan begins anew with each pass: what a pass leaves is not what the next one starts with, so that all but the first are
/// cautious. Nothing is brought for a pass that has not begun.
template <pool::PlannedPool Pool>
class PlannedDecider final : public Decider<typename Pool::Device>, public GraphDecider {
public:
    using Device = typename Pool::Device;

    struct Config {
        plan::Options options{};
        /// Of steps of one pass, one after the other: how many leases are open together, 2 where the next is acquired before the last
        /// one ends. The floor is the largest sum of so many steps. More are possible, but not planned for: they wait for the device.
        std::uint32_t leases_at_once = 1;
        std::optional<plan::Link> link{};  // unset: measured when the Residency is made
        std::optional<plan::Plan> plan{};  // instead of making one
        typename Pool::Config pool{};
    };

    explicit PlannedDecider(Config config)
        : plan_factory_{std::move(config.options), config.leases_at_once, config.link, std::move(config.plan)},
          pool_{config.pool} {}

    /// What the plan has to solve, hence its floor. Called before open(), and again with another schedule.
    [[nodiscard]] Status prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Needs&) override {
        return plan_factory_.prepare(catalog, schedule, pool_.chunk_bytes(device), is_open_ ? &plan_ : nullptr);
    }
    [[nodiscard]] BudgetLimits limits() const noexcept override {
        const plan::ChunkFloor& sizes = plan_factory_.sizes();
        return {sizes.floor_bytes, sizes.step, sizes.everything_bytes};
    }
    [[nodiscard]] bool holds_residents() const noexcept override { return true; }

    [[nodiscard]] Status open(const DeciderContext<Device>& context, const pool::Needs&,
                              std::uint64_t cap_bytes) override;

    /// The prepared problem replaces the one in force; what stays at its place keeps its bytes. The streams are drained.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> groups, StepIndex,
                                   std::uint64_t cap_bytes) override;
    /// Goes on with a change of budget where leases have ended and their uses are complete. Does not wait for work.
    [[nodiscard]] Status reclaim_pending() override;
    [[nodiscard]] bool has_pending() const noexcept override { return records_all_; }
    [[nodiscard]] std::span<const double> planned_step_seconds() const noexcept override {
        return plan_factory_.problem().compute_seconds;
    }
    /// Another budget. The streams are drained. On failure the plan in force stays. Blocks.
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override;

    /// A graph of a pass will be recorded. Everything is complete, no lease is open. From the state that this leaves, calls
    /// [cut, calls) of a pass and [0, cut) of the next lead to itself. Blocks where the plan in force is not one for graphs.
    [[nodiscard]] Status begin_capture() override;
    /// Nothing of what was recorded has run: goes back to where it was. An error where the graph lacks something of its pass.
    [[nodiscard]] Status end_capture(bool is_recorded) override;
    /// Whatever the host did since, the graph finds what it needs.
    [[nodiscard]] Status before_graph() override { return reach_cut(); }
    void graph_launched() override;

    [[nodiscard]] Result<LeaseToken> ensure(std::span<const StorageId> wanted, const AccessPoint& access) override;
    void forget(const LeaseToken& token) noexcept override;
    void released(const LeaseToken& token, bool recorded) noexcept override;
    void pass_began(StepIndex) noexcept override;
    void pass_ended() noexcept override;

    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept override {
        return records_all_ || !std::ranges::all_of(storages, [&](StorageId id) { return never_leaves_[index(id)]; });
    }
    [[nodiscard]] bool is_streaming() const noexcept override { return calls_.calls_a_pass() > 0; }
    [[nodiscard]] MemoryUse memory_use() const override {
        const std::uint64_t held = is_open_ ? pool_.held_bytes() : 0;
        return {held, held, peak_held_};
    }
    [[nodiscard]] GraphDecider* graphs() noexcept override { return this; }
    [[nodiscard]] const GraphDecider* graphs() const noexcept override { return this; }
    [[nodiscard]] std::optional<std::chrono::nanoseconds> bound() const noexcept override {
        return std::chrono::nanoseconds{std::llround(plan_.bound_seconds() * 1e9)};
    }
    [[nodiscard]] const plan::Plan& plan() const noexcept { return plan_; }
    /// Counts the times that an address came to lie on other memory.
    [[nodiscard]] std::uint64_t generation() const noexcept override { return generation_; }

    void close() noexcept override {
        if (is_open_) { pool_.close(); }
        is_open_ = false;
    }
    void abandon() noexcept override {
        if (is_open_) { pool_.abandon(); }
        is_open_ = false;
    }

private:
    static constexpr std::uint32_t none = plan::none;
    // LeaseToken::kind
    static constexpr std::uint8_t no_lease = 0;         // of nothing
    static constexpr std::uint8_t lease_of_step = 1;    // the step ends after it
    static constexpr std::uint8_t unplanned_lease = 2;  // no step accounts for it

    /// For planners that would rather keep what memory holds.
    [[nodiscard]] CurrentPlan current_plan() const;
    /// A new plan comes into force: the image is arranged for it. On failure the mapping is torn.
    [[nodiscard]] Status adopt(plan::Plan plan);
    /// Everything but `kept` leaves, and is counted. Of another image nothing is kept.
    void let_go(const std::vector<std::uint32_t>& kept);
    /// What is looked up of the plan in force: by call, by chunk, by storage.
    void index_plan();
    /// Passes are counted anew: nothing waits for what happened before, as it is complete.
    void start_anew();

    [[nodiscard]] bool is_misplaced_leased(std::uint32_t chunk) const noexcept {
        return std::ranges::find(misplaced_leased_, chunk) != misplaced_leased_.end();
    }
    /// Guests whose leases have ended and whose uses are complete go home; what lies beyond the plan is given back. Does not wait for
    /// work.
    [[nodiscard]] Status send_home();
    /// A guest is not leased again where it is: passes that the host enqueues ahead would keep it there for ever. Waits for its uses.
    [[nodiscard]] Status send_home_before_use(std::span<const StorageId> wanted);

    /// Maps the image for the plan in force again, where a failed call left parts of it unmapped. Blocks then.
    [[nodiscard]] Status mend();

    /// What a capture changes, and none of which happens.
    struct State {
        CopyCursor calls;
        std::uint64_t current_step = 0, ended_steps = 0;
        std::vector<std::uint32_t> occupants;
    };

    /// The first step of a pass, of the one that runs, numbered across passes.
    [[nodiscard]] std::uint64_t first_step(std::uint64_t pass) const noexcept { return pass * plan_.steps(); }
    [[nodiscard]] std::uint64_t first_step() const noexcept { return first_step(calls_.pass()); }

    /// Whether calls have to look at what is leased, instead of at the plan alone.
    [[nodiscard]] bool must_verify() const noexcept {
        return calls_.must_verify() || unplanned_ > 0 || !misplaced_leased_.empty();
    }

    /// Everything is there and stays: a lease waits for nothing, and nothing waits for its end.
    [[nodiscard]] bool is_at_rest() const noexcept {
        return chunks_.all_stay() && next_resident_ == plan_.residents().size() && !has_pending() && !unmapped_ &&
               !lost_use_ && !calls_.is_capturing();
    }
    /// Counts a lease that has what it needs, and what it found there.
    LeaseToken account(std::span<const StorageId> wanted, const AccessPoint& access, bool in_order) noexcept;
    /// Whether it was a lease of a step of the plan in force.
    bool close_lease(const LeaseToken& token) noexcept;

    /// Waits for uses that were not recorded.
    [[nodiscard]] Status await_lost_uses();
    /// What fails here is tried again when the next lease is acquired; a capture fails.
    void try_pump() noexcept {
        if (auto pumped = pump(); !pumped && calls_.is_capturing()) { trouble_ = pumped.error(); }
    }
    /// Enqueues every call whose step has ended. Stops, without an error, at the first whose step has not; what comes from there
    /// on the transport may read already.
    [[nodiscard]] Status pump();
    [[nodiscard]] Status enqueue_calls();
    /// Tells the transport what the next calls bring, at most a pass of them. A one-shot plan: of the pass that runs.
    void read_ahead();
    void forget_ahead() {
        context_.copy_scheduler->transport().forget_ahead();
        announced_ = 0;
    }
    /// Residents, and calls [0, cut) of the pass, in their places.
    [[nodiscard]] Status reach_cut();
    [[nodiscard]] Status send_call(std::uint32_t k);
    [[nodiscard]] Status copy_stream_wait_for_all();
    [[nodiscard]] Status send(std::span<const transport::Fetch> pieces);
    /// A chunk was sent to its slot.
    void occupy(std::uint32_t chunk, const Status& sent) noexcept;

    /// Residents are brought once (once a pass of a one-shot plan), those that earlier steps need first. Stops, without an error, where
    /// a lease is in the way.
    [[nodiscard]] Status bring_residents(std::uint32_t needed_by);
    [[nodiscard]] Status bring_residents_before(std::size_t count);
    [[nodiscard]] bool are_residents_there(std::uint32_t needed_by) const noexcept {
        const auto residents = plan_.residents();
        return next_resident_ == residents.size() || residents[next_resident_].needed_by > needed_by;
    }
    /// Brings what is not at its place of some copies that start together, after all recorded uses. False: nothing was done, as a
    /// lease is in the way.
    [[nodiscard]] Result<bool> bring_around_leases(std::span<const plan::Copy> copies);
    /// The pieces of the chunks of a copy that are not there.
    void append_absent(const plan::Copy& copy);

    // Off the plan.

    [[nodiscard]] bool is_leased(std::uint32_t chunk) const noexcept {
        return std::ranges::any_of(contents_.storages(chunk),
                                   [&](std::uint32_t s) { return context_.states[s].leases > 0; });
    }
    [[nodiscard]] bool is_any_leased(std::span<const plan::Copy> copies) const noexcept;
    /// Puts the chunks of a copy back where the plan has them.
    [[nodiscard]] Status restore(const plan::Copy& copy);
    [[nodiscard]] Status move_chunk(std::uint32_t chunk, std::uint32_t slot);
    /// Precondition: what the chunk's address stands for is not in use.
    [[nodiscard]] Status remap(std::uint32_t chunk, std::uint32_t slot);

    /// Brings what is not there of these storages, over whatever is not leased. All or nothing.
    [[nodiscard]] Status bring_missing(std::span<const StorageId> wanted, bool arrived);
    /// A place for a missing chunk that takes nothing from a lease, nor from the other chunks of this request: its own, else one of the
    /// ring, else that of a resident.
    [[nodiscard]] Status make_room(std::uint32_t chunk);
    [[nodiscard]] bool is_free(std::uint32_t slot) const noexcept {
        const std::uint32_t occupant = chunks_.occupant(slot);
        return reserved_by_[slot] == none && (occupant == none || (marks_[occupant] != epoch_ && !is_leased(occupant)));
    }
    /// Whether it may leave by the catalog, whatever the plan says: what is pinned or written to may not.
    [[nodiscard]] bool may_leave(std::uint32_t chunk) const noexcept {
        return std::ranges::all_of(contents_.storages(chunk), [&](std::uint32_t s) {
            return context_.states[s].placement == Placement::streamed;
        });
    }
    /// Residents may leave: from here on what reads them is recorded, and what has is over. Blocks where it was not.
    [[nodiscard]] Status record_all();
    /// A free slot of the ring, else of the resident that is not needed for longest; or none.
    [[nodiscard]] std::uint32_t find_place() const noexcept;
    [[nodiscard]] Error no_room_for(std::uint32_t chunk) const;

    PlanFactory plan_factory_;
    Pool pool_;
    DeciderContext<Device> context_;
    plan::Plan plan_;
    ChunkTable chunks_;
    ChunkContents contents_;
    StepRetirement steps_;
    CopyCursor calls_;
    std::uint64_t cap_bytes_ = 0;
    bool is_open_ = false;
    bool unmapped_ = false;  // parts of the image may be unmapped: a call failed
    std::uint64_t generation_ = 0;
    std::uint64_t peak_held_ = 0;
    std::uint32_t plan_epoch_ = 0;          // plans that came into force
    std::vector<bool> never_leaves_;        // by storage
    std::vector<bool> has_sole_owner_;      // by call: brings a chunk to a slot of its own
    std::vector<std::size_t> resident_of_;  // by chunk: the copy of the plan's residents that it is of, if any

    std::uint64_t announced_ = 0;  // calls before this one are known to the transport
    std::uint64_t unplanned_ = 0;  // open leases that no step accounts for
    std::size_t next_resident_ = 0;
    std::vector<std::size_t> residents_before_;  // by call of the first pass
    bool lost_use_ = false;                      // a use could not be recorded

    State outside_;                           // before the capture
    std::vector<std::uint32_t> after_graph_;  // what a graph leaves in the slots
    std::optional<Error> trouble_;            // what failed in a capture

    std::vector<std::uint32_t> remapped_;          // chunks that divergence put elsewhere
    std::vector<std::uint32_t> misplaced_leased_;  // leased chunks that a change of the budget put elsewhere
    bool records_all_ = false;  // residents may not be at home: the ends of their leases are recorded

    // Of one request.
    std::uint64_t epoch_ = 0;
    std::uint64_t reserved_epoch_ = 0;
    std::vector<std::uint64_t> marks_;        // by chunk: the epoch in which it was wanted
    std::vector<std::uint32_t> reserved_by_;  // by slot: the missing chunk that will take it
    std::vector<std::uint32_t> missing_;
    std::vector<transport::Fetch> fetches_;
};

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::open(const DeciderContext<Device>& context, const pool::Needs&, std::uint64_t cap_bytes) {
    context_ = context;
    if (!plan_factory_.knows_link()) {
        auto link = try_measure_link(*context.device, cap_bytes);
        if (!link) { return link.error(); }
        plan_factory_.set_link(*link);
    }
    auto plan = plan_factory_.make(context_.catalog, cap_bytes, current_plan());
    if (!plan) { return plan.error(); }
    cap_bytes_ = cap_bytes;
    return adopt(std::move(*plan));
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::set_order(const UseOrder* order, std::span<const std::uint32_t> groups, StepIndex,
                                       std::uint64_t cap_bytes) {
    context_.order = order;
    context_.groups = groups;
    return set_cap(cap_bytes, 0);
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::reclaim_pending() {
    if (!has_pending() || unmapped_ || calls_.is_capturing()) { return {}; }
    if (auto polled = context_.copy_scheduler->poll(); !polled) { return polled; }
    if (auto sent = send_home(); !sent) { return sent; }
    records_all_ = !misplaced_leased_.empty() || !remapped_.empty() || next_resident_ < plan_.residents().size();
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::set_cap(std::uint64_t cap_bytes, StepIndex) {
    auto plan = plan_factory_.make(context_.catalog, cap_bytes, current_plan());
    if (!plan) { return plan.error(); }
    if (auto adopted = adopt(std::move(*plan)); !adopted) {
        static_cast<void>(mend().has_value());
        return adopted;
    }
    cap_bytes_ = cap_bytes;
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::begin_capture() {
    if (auto mended = mend(); !mended) { return mended; }
    if (is_streaming() && !plan_.is_cyclic()) {
        return Error{ErrorKind::unsupported,
                     "a one-shot schedule streams other bytes in each pass: a graph is captured of a cyclic one, "
                     "or where everything is resident"};
    }
    if (!plan_.is_captured() && is_streaming()) {
        if (plan_factory_.is_given()) {
            return Error{ErrorKind::unsupported,
                         "the plan that was given is not one for captured passes: make it with "
                         "plan::Options::captured"};
        }
        plan_factory_.set_captured(true);
        if (auto adopted = set_cap(cap_bytes_, 0); !adopted) {
            plan_factory_.set_captured(false);
            return adopted;
        }
    }
    if (auto reached = reach_cut(); !reached) { return reached; }
    outside_ = {calls_, steps_.current(), steps_.ended(), chunks_.occupants()};
    steps_.forget_consumers();
    calls_.begin_capture();
    trouble_.reset();
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::end_capture(bool is_recorded) {
    Status whole;
    const bool complete = !lost_use_ && calls_.is_capture_whole();
    if (is_recorded && !complete) {
        whole = trouble_.value_or(Error{ErrorKind::wrong_state, "not everything that the pass needs was captured"});
    }
    if (is_recorded && complete) { after_graph_ = chunks_.occupants(); }
    lost_use_ = false;
    trouble_.reset();
    calls_ = outside_.calls;
    steps_.go_to(outside_.current_step, outside_.ended_steps);
    steps_.forget_consumers();
    chunks_.set_occupants(outside_.occupants);
    return whole;
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::graph_launched() {
    calls_.advance_by_graph();
    steps_.go_to(first_step(), first_step());
    chunks_.set_occupants(after_graph_);
}

template <pool::PlannedPool Pool>
Result<LeaseToken> PlannedDecider<Pool>::ensure(std::span<const StorageId> wanted, const AccessPoint& access) {
    if (wanted.empty() && !access.is_announced) { return LeaseToken{}; }
    for (const StorageId id : wanted) { context_.states[index(id)].demand_missed = false; }
    if (is_at_rest()) { return account(wanted, access, false); }
    if (auto mended = mend(); !mended) { return mended.error(); }
    if (auto settled = reclaim_pending(); !settled) { return settled.error(); }
    if (auto gone = send_home_before_use(wanted); !gone) { return gone.error(); }
    const std::uint64_t step = first_step() + access.step;
    if (calls_.is_capturing() && (!access.is_announced || step < steps_.current())) {
        return Error{
            ErrorKind::divergence,
            "a captured pass follows its schedule: " +
                (wanted.empty() ? "step " + std::to_string(access.step) : context_.catalog.describe(wanted.front())) +
                " is not read at step " + std::to_string(steps_.current() - first_step())};
    }
    bool in_order = access.is_announced && step >= steps_.ended();
    bool arrived = false;  // by the plan
    if (in_order) {
        steps_.reach(step);
        steps_.advance(*context_.copy_scheduler);
        if (auto pumped = pump(); !pumped) { return pumped.error(); }
        if (auto brought = bring_residents(access.step); !brought) { return brought.error(); }
        in_order = step < steps_.ended() + steps_.window();
        arrived = in_order && calls_.has_enqueued(plan_.step_calls(access.step)) && are_residents_there(access.step);
    }
    if (!arrived || must_verify()) {
        if (calls_.is_capturing()) {
            if (trouble_) { return *trouble_; }
            return Error{ErrorKind::unsupported, "a captured pass holds one step at a time: step " +
                                                     std::to_string(access.step) +
                                                     " needs bytes that an open lease keeps from coming"};
        }
        if (auto brought = bring_missing(wanted, arrived); !brought) { return brought.error(); }
    }
    return account(wanted, access, in_order);
}

template <pool::PlannedPool Pool>
LeaseToken PlannedDecider<Pool>::account(std::span<const StorageId> wanted, const AccessPoint& access,
                                         bool in_order) noexcept {
    const std::uint64_t step = first_step() + access.step;
    if (in_order) {
        steps_.open_lease(step);
    } else {
        ++unplanned_;
    }
    for (const StorageId id : wanted) { context_.count_access(id, plan_.storage_bytes(index(id))); }
    return {step, plan_epoch_, in_order ? lease_of_step : unplanned_lease, access.is_whole};
}

template <pool::PlannedPool Pool>
bool PlannedDecider<Pool>::close_lease(const LeaseToken& token) noexcept {
    if (token.kind == no_lease) { return false; }
    const bool is_of_step = token.kind == lease_of_step && token.plan_epoch == plan_epoch_;
    if (is_of_step) {
        steps_.close_lease(token.step_index);
    } else {
        --unplanned_;
    }
    return is_of_step;
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::forget(const LeaseToken& token) noexcept {
    static_cast<void>(close_lease(token));
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::released(const LeaseToken& token, bool recorded) noexcept {
    lost_use_ = lost_use_ || !recorded;
    if (close_lease(token) && token.ends_step) { steps_.reach(token.step_index + 1); }
    if (token.plan_epoch == plan_epoch_) {
        if (is_at_rest()) { return; }
        steps_.advance(*context_.copy_scheduler);
    }
    try_pump();
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::pass_began(StepIndex) noexcept {
    steps_.reach(first_step());
    if (calls_.begin_pass()) { next_resident_ = 0; }
    try_pump();
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::pass_ended() noexcept {
    calls_.end_pass();
    steps_.reach(first_step());
    steps_.advance(*context_.copy_scheduler);
    try_pump();
}

template <pool::PlannedPool Pool>
CurrentPlan PlannedDecider<Pool>::current_plan() const {
    CurrentPlan result;
    if (!is_open_) { return result; }
    result.plan = &plan_;
    result.budget_bytes = cap_bytes_;
    result.held_bytes = pool_.held_bytes();
    for (std::uint32_t chunk = 0; chunk < chunks_.chunks(); ++chunk) {
        result.present.push_back(!chunks_.is_there(chunk) ? plan::Presence::absent
                                 : chunks_.stays(chunk)   ? plan::Presence::resident
                                                          : plan::Presence::streamed);
    }
    for (std::uint32_t i = 0; i < context_.states.size() && result.leased == no_storage; ++i) {
        if (context_.states[i].leases > 0 && plan_.storage_bytes(i) > 0) { result.leased = StorageId{i}; }
    }
    return result;
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::adopt(plan::Plan plan) {
    const bool is_same_image = is_open_ && plan.data().storage_offsets == plan_.data().storage_offsets &&
                               plan.image_bytes() == plan_.image_bytes();
    std::vector<std::uint32_t> pinned;
    for (std::uint32_t chunk = 0; is_same_image && chunk < chunks_.chunks(); ++chunk) {
        if (is_leased(chunk) || (chunks_.is_there(chunk) && !may_leave(chunk))) { pinned.push_back(chunk); }
    }
    ChunkPlacement placement = place_chunks(plan, pinned, is_same_image ? chunks_.all_there() : std::vector<bool>{});
    let_go(placement.kept);
    unmapped_ = true;
    ++generation_;
    forget_ahead();
    if (!is_same_image) {
        if (is_open_) {
            if (auto closed = pool_.try_close(); !closed) { return closed; }
            is_open_ = false;
        }
        if (auto opened = pool_.open(*context_.device, plan.image_bytes()); !opened) { return opened; }
        is_open_ = true;
    }
    if (auto placed = pool_.arrange(placement.slots, placement.table, placement.kept); !placed) {
        if (!is_same_image) { close(); }  // its addresses are not those of the plan in force
        return placed;
    }
    unmapped_ = false;
    peak_held_ = (std::max)(peak_held_, pool_.held_bytes());
    plan_ = std::move(plan);
    misplaced_leased_ = std::move(placement.misplaced_leased);
    records_all_ = !misplaced_leased_.empty();
    remapped_.clear();
    chunks_ = ChunkTable{plan_, std::move(placement)};
    contents_ = ChunkContents{plan_, pool_.base()};
    index_plan();
    start_anew();
    return {};
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::let_go(const std::vector<std::uint32_t>& kept) {
    if (!is_open_) { return; }
    std::vector<bool> is_kept(chunks_.chunks(), false);
    for (const std::uint32_t chunk : kept) { is_kept[chunk] = true; }
    for (std::uint32_t chunk = 0; chunk < chunks_.chunks(); ++chunk) {
        if (is_kept[chunk] || !chunks_.is_there(chunk)) { continue; }
        chunks_.lose(chunk);
        ++context_.counters->evictions;
        context_.counters->evicted_bytes += plan_.chunk_bytes();
    }
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::start_anew() {
    ++plan_epoch_;
    // Leases of steps of the plan before belong to no step of this one.
    unplanned_ += steps_.open_leases();
    steps_ = StepRetirement{plan_.steps(), context_.copy_scheduler->consumers()};
    calls_ = CopyCursor{plan_};
    next_resident_ = 0;
    const plan::Problem& problem = plan_factory_.problem();
    residents_before_ = plan::order_first_pass(plan_, problem.link, problem.compute_seconds, chunks_.all_there());
    if (unplanned_ > 0) { calls_.verify_a_pass(); }
    // The first calls leave out what is there.
    for (std::uint32_t k = 0; k < calls_.calls_a_pass(); ++k) {
        for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
            for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) {
                if (chunks_.is_there(chunk)) { calls_.verify_before(k + std::uint64_t{1}); }
            }
        }
    }
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::index_plan() {
    const std::vector<std::uint32_t> sharers = count_chunks(chunks_.all_slots());
    has_sole_owner_.assign(plan_.calls().size(), false);
    for (std::size_t k = 0; k < has_sole_owner_.size(); ++k) {
        for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
            for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) {
                if (sharers[chunks_.slot(chunk)] == 1) { has_sole_owner_[k] = true; }
            }
        }
    }
    resident_of_.assign(chunks_.chunks(), plan_.residents().size());
    for (std::size_t i = 0; i < plan_.residents().size(); ++i) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(plan_.residents()[i])) { resident_of_[chunk] = i; }
    }
    never_leaves_.assign(context_.states.size(), true);
    for (std::uint32_t i = 0; i < context_.states.size(); ++i) {
        for (const std::uint32_t chunk : contents_.chunks(StorageId{i})) {
            if (!chunks_.stays(chunk)) { never_leaves_[i] = false; }
        }
        if (plan_.storage_bytes(i) > 0) { context_.states[i].address = pool_.base() + plan_.storage_offset(i); }
    }
    marks_.assign(chunks_.chunks(), 0);
    epoch_ = reserved_epoch_ = 0;
    fetches_.reserve(chunks_.chunks());
    missing_.reserve(chunks_.chunks());
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::send_home() {
    for (std::size_t i = misplaced_leased_.size(); i-- > 0;) {
        const std::uint32_t chunk = misplaced_leased_[i];
        if (is_leased(chunk) || !std::ranges::all_of(contents_.storages(chunk), [&](std::uint32_t s) {
                return context_.copy_scheduler->is_unused(StorageId{s});
            })) {
            continue;
        }
        if (const std::uint32_t home = plan_.slot_of_chunk(chunk); chunks_.slot(chunk) != home) {
            if (auto moved = remap(chunk, home); !moved) { return moved; }
        }
        misplaced_leased_.erase(misplaced_leased_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (std::uint32_t slot = chunks_.slots(); slot-- > plan_.slots_held();) {
        if (!chunks_.is_empty(slot)) { continue; }
        if (auto given = pool_.give_back(slot); !given) { return given; }
        chunks_.remove(slot);
    }
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::send_home_before_use(std::span<const StorageId> wanted) {
    const bool is_any = !misplaced_leased_.empty() && std::ranges::any_of(misplaced_leased_, [&](std::uint32_t chunk) {
        return !is_leased(chunk) &&
               std::ranges::any_of(wanted, [&](StorageId id) { return contents_.chunks(id).contains(chunk); });
    });
    if (!is_any) { return {}; }
    ++context_.counters->host_waits;
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    return send_home();
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::mend() {
    if (!unmapped_) { return {}; }
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    return adopt(plan::Plan{plan_});
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::await_lost_uses() {
    if (!lost_use_) { return {}; }
    if (calls_.is_capturing()) { return Error{ErrorKind::device, "the end of a lease could not be captured"}; }
    if (auto drained = context_.copy_scheduler->drain_device(); !drained) { return drained; }
    lost_use_ = false;
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::pump() {
    if (unmapped_) { return {}; }
    Status pumped = enqueue_calls();
    if (pumped) { read_ahead(); }
    return pumped;
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::enqueue_calls() {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    if (calls_.may_bring_rest()) {
        if (auto brought = bring_residents(none); !brought) { return brought; }
    }
    while (calls_.may_enqueue()) {
        const std::uint64_t pass = calls_.pass_of_next();
        const std::uint32_t k = calls_.next_in_plan();
        const plan::Call& call = plan_.calls()[k];
        const bool waits = call.wait.exists() && (call.wait.pass == 0 || pass > calls_.first_pass());
        const std::uint64_t after =
            waits ? first_step(pass + static_cast<std::uint64_t>(std::int64_t{call.wait.pass})) + call.wait.step : 0;
        if (auto brought = bring_residents(call.needed_by); !brought) { return brought; }
        if (calls_.next() < residents_before_.size()) {
            if (auto brought = bring_residents_before(residents_before_[k]); !brought) { return brought; }
        }
        if (!are_residents_there(call.needed_by) || (waits && after >= steps_.ended())) { return {}; }
        if (must_verify()) {
            const auto brought = bring_around_leases(plan_.copies(call));
            if (!brought) { return brought.error(); }
            if (!*brought) { return {}; }
        } else {
            // A chunk that comes back to a slot of its own may be leased out of order.
            if (has_sole_owner_[k] && !calls_.is_capturing() && is_any_leased(plan_.copies(call))) { return {}; }
            if (waits) {
                if (auto waits = steps_.copy_stream_wait_for_end(*context_.copy_scheduler, after); !waits) {
                    return waits;
                }
            }
            if (auto sent = send_call(k); !sent) { return sent; }
        }
        calls_.advance();
    }
    return {};
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::read_ahead() {
    if (!is_streaming() || calls_.is_capturing() || unplanned_ > 0) { return; }
    if (must_verify()) {
        forget_ahead();
        return;
    }
    announced_ = (std::max)(announced_, calls_.next());
    AnyTransport<Device>& transport = context_.copy_scheduler->transport();
    while (announced_ < calls_.known_end() &&
           transport.read_ahead(contents_.call(static_cast<std::uint32_t>(announced_ % calls_.calls_a_pass())))) {
        ++announced_;
    }
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::reach_cut() {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    if (auto brought = bring_residents(none); !brought) { return brought; }
    for (std::size_t i = remapped_.size(); i-- > 0;) {
        const std::uint32_t chunk = remapped_[i];
        if (auto moved = move_chunk(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
        remapped_.pop_back();
    }
    if (auto waits = copy_stream_wait_for_all(); !waits) { return waits; }
    for (std::uint32_t k = 0; k < plan_.cut(); ++k) {
        bool there = true;
        for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
            for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) { there = there && chunks_.is_there(chunk); }
        }
        if (there) { continue; }
        if (auto sent = send_call(k); !sent) { return sent; }
    }
    calls_.reach_cut();
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::send_call(std::uint32_t k) {
    auto sent = send(contents_.call(k));
    for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) { occupy(chunk, sent); }
    }
    return sent;
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::copy_stream_wait_for_all() {
    for (ConsumerId id = 0; id < context_.copy_scheduler->consumers(); ++id) {
        if (auto waits = context_.copy_scheduler->copy_stream_wait(id, context_.copy_scheduler->last_point(id));
            !waits) {
            return waits;
        }
    }
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::send(std::span<const transport::Fetch> pieces) {
    if (pieces.empty()) { return {}; }
    auto arrival = context_.copy_scheduler->transfer(pieces);
    if (!arrival) { return arrival.error(); }
    for (const transport::Fetch& piece : pieces) {
        StorageState& state = context_.states[index(piece.storage)];
        state.arrival = *arrival;
        state.prefetched = true;
        context_.counters->fetched_bytes += piece.bytes;
    }
    ++context_.counters->calls;
    return {};
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::occupy(std::uint32_t chunk, const Status& sent) noexcept {
    if (!chunks_.bring(chunk, sent.has_value())) { return; }
    ++context_.counters->evictions;
    context_.counters->evicted_bytes += plan_.chunk_bytes();
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::bring_residents(std::uint32_t needed_by) {
    const auto residents = plan_.residents();
    std::size_t count = next_resident_;
    while (count < residents.size() && residents[count].needed_by <= needed_by) { ++count; }
    return bring_residents_before(count);
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::bring_residents_before(std::size_t count) {
    const auto residents = plan_.residents();
    while (next_resident_ < count) {
        const std::size_t begin = next_resident_;
        std::size_t end = begin;
        while (end < count && residents[end].needed_by == residents[begin].needed_by) { ++end; }
        const auto brought = bring_around_leases(residents.subspan(begin, end - begin));
        if (!brought) { return brought.error(); }
        if (!*brought) { return {}; }
        next_resident_ = end;
    }
    return {};
}

template <pool::PlannedPool Pool>
Result<bool> PlannedDecider<Pool>::bring_around_leases(std::span<const plan::Copy> copies) {
    bool is_blocked = false, overwrites = false, is_remapped = false;
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) {
            const std::uint32_t slot = plan_.slot_of_chunk(chunk);
            if (chunks_.is_there(chunk) && chunks_.slot(chunk) == slot) { continue; }
            const std::uint32_t occupant = chunks_.occupant(slot);
            is_blocked = is_blocked || is_leased(chunk) || is_misplaced_leased(chunk) ||
                         (occupant != none && (is_leased(occupant) || is_misplaced_leased(occupant)));
            overwrites = overwrites || !chunks_.stays(chunk) || records_all_;
            is_remapped = is_remapped || chunks_.slot(chunk) != slot;
        }
    }
    if (is_blocked) { return false; }
    if (is_remapped) {
        for (const plan::Copy& copy : copies) {
            if (auto restored = restore(copy); !restored) { return restored.error(); }
        }
    }
    fetches_.clear();
    for (const plan::Copy& copy : copies) { append_absent(copy); }
    if (fetches_.empty()) { return true; }
    if (overwrites) {
        if (auto waits = copy_stream_wait_for_all(); !waits) { return waits.error(); }
    }
    const Status sent = send(fetches_);
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) {
            if (!chunks_.is_there(chunk)) { occupy(chunk, sent); }
        }
    }
    if (!sent) { return sent.error(); }
    return true;
}

template <pool::PlannedPool Pool>
void PlannedDecider<Pool>::append_absent(const plan::Copy& copy) {
    const std::uint64_t chunk_bytes = plan_.chunk_bytes();
    const plan::Chunks range = plan_.chunks_of_copy(copy);
    for (std::uint32_t first = range.first; first < range.last;) {
        std::uint32_t last = first;
        while (last < range.last && !chunks_.is_there(last)) { ++last; }
        if (last > first) {
            contents_.append_pieces(plan_, (std::max)(copy.image_begin, first * chunk_bytes),
                                    (std::min)(copy.image_end, last * chunk_bytes), fetches_);
        }
        first = last + 1;
    }
}

template <pool::PlannedPool Pool>
bool PlannedDecider<Pool>::is_any_leased(std::span<const plan::Copy> copies) const noexcept {
    bool is_any = false;
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) { is_any = is_any || is_leased(chunk); }
    }
    return is_any;
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::restore(const plan::Copy& copy) {
    for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) {
        if (chunks_.slot(chunk) == plan_.slot_of_chunk(chunk)) { continue; }
        if (auto moved = move_chunk(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
        std::erase(remapped_, chunk);
    }
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::move_chunk(std::uint32_t chunk, std::uint32_t slot) {
    ++context_.counters->host_waits;
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    return remap(chunk, slot);
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::remap(std::uint32_t chunk, std::uint32_t slot) {
    chunks_.lose(chunk);
    ++generation_;
    if (auto moved = pool_.remap(chunk, slot); !moved) {
        unmapped_ = pool_.slot_of(chunk) != chunks_.slot(chunk);
        return moved;
    }
    chunks_.move(chunk, slot);
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::bring_missing(std::span<const StorageId> wanted, bool arrived) {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    ++epoch_;
    missing_.clear();
    bool touches_ring = false;
    for (const StorageId id : wanted) {
        for (const std::uint32_t chunk : contents_.chunks(id)) {
            touches_ring = touches_ring || !chunks_.stays(chunk) || chunks_.slot(chunk) != plan_.slot_of_chunk(chunk);
            if (std::exchange(marks_[chunk], epoch_) == epoch_) { continue; }
            if (!chunks_.is_there(chunk)) { missing_.push_back(chunk); }
        }
    }
    if (touches_ring && !(arrived && missing_.empty())) {
        // The calls of this pass may lag behind: those for this very step must not overwrite what it already reads.
        calls_.verify_a_pass();
    }
    if (missing_.empty()) { return {}; }
    if (std::ranges::any_of(misplaced_leased_, [&](std::uint32_t chunk) { return !is_leased(chunk); })) {
        // Their places may be what is missing.
        ++context_.counters->host_waits;
        if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
        if (auto sent = send_home(); !sent) { return sent; }
    }
    for (const std::uint32_t chunk : missing_) {
        if (auto made = make_room(chunk); !made) { return made; }
        reserved_by_[chunks_.slot(chunk)] = chunk;
    }
    if (auto waits = copy_stream_wait_for_all(); !waits) { return waits; }
    forget_ahead();  // these come first
    std::ranges::sort(missing_);
    fetches_.clear();
    for (std::size_t i = 0; i < missing_.size();) {
        std::size_t end = i + 1;
        while (end < missing_.size() && missing_[end] == missing_[end - 1] + 1) { ++end; }
        contents_.append_pieces(
            plan_, missing_[i] * plan_.chunk_bytes(),
            (std::min)((missing_[end - 1] + std::uint64_t{1}) * plan_.chunk_bytes(), plan_.image_bytes()), fetches_);
        i = end;
    }
    const auto sent = send(fetches_);
    for (const std::uint32_t chunk : missing_) {
        occupy(chunk, sent);
        for (const std::uint32_t s : contents_.storages(chunk)) { context_.states[s].demand_missed = true; }
    }
    if (!sent) { return sent.error(); }
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::make_room(std::uint32_t chunk) {
    if (reserved_epoch_ != epoch_) {
        reserved_by_.assign(chunks_.slots(), none);
        reserved_epoch_ = epoch_;
    }
    if (!is_free(chunks_.slot(chunk))) {
        const std::uint32_t place = find_place();
        if (place == none) { return no_room_for(chunk); }
        if (!chunks_.is_of_ring(place) || chunks_.stays(chunk)) {
            if (auto recording = record_all(); !recording) { return recording; }
        }
        const bool was_at_its_place = chunks_.slot(chunk) == plan_.slot_of_chunk(chunk);
        if (auto moved = move_chunk(chunk, place); !moved) { return moved; }
        calls_.verify_a_pass();
        if (was_at_its_place) { remapped_.push_back(chunk); }
        if (place == plan_.slot_of_chunk(chunk)) { std::erase(remapped_, chunk); }
    }
    const std::uint32_t resident = chunks_.occupant(chunks_.slot(chunk));
    if (resident == none || !chunks_.stays(resident)) { return {}; }
    // It is brought again once the slot is free.
    next_resident_ = (std::min)(next_resident_, resident_of_[resident]);
    return {};
}

template <pool::PlannedPool Pool>
Status PlannedDecider<Pool>::record_all() {
    if (records_all_) { return {}; }
    ++context_.counters->host_waits;
    if (auto drained = context_.copy_scheduler->drain_all(); !drained) { return drained; }
    records_all_ = true;
    return {};
}

template <pool::PlannedPool Pool>
std::uint32_t PlannedDecider<Pool>::find_place() const noexcept {
    for (std::uint32_t slot = 0; slot < chunks_.slots(); ++slot) {
        if (chunks_.is_of_ring(slot) && is_free(slot)) { return slot; }
    }
    if (!plan_.is_cyclic()) { return none; }  // what is there at the start of one pass is not brought again in it
    // Those that come round last: of the steps before this one, the nearest first.
    const auto residents = plan_.residents();
    const auto step = static_cast<std::uint32_t>(steps_.current() % plan_.steps());
    const auto next = static_cast<std::size_t>(std::ranges::lower_bound(residents, step, {}, &plan::Copy::needed_by) -
                                               residents.begin());
    for (std::size_t back = 1; back <= residents.size(); ++back) {
        for (const std::uint32_t chunk :
             plan_.chunks_of_copy(residents[(next + residents.size() - back) % residents.size()])) {
            const std::uint32_t slot = plan_.slot_of_chunk(chunk);
            if (chunks_.stays(chunk) && is_free(slot) && may_leave(chunk)) { return slot; }
        }
    }
    return none;
}

template <pool::PlannedPool Pool>
Error PlannedDecider<Pool>::no_room_for(std::uint32_t chunk) const {
    std::uint64_t leased = 0;
    for (const std::uint32_t occupant : chunks_.occupants()) {
        if (occupant != none && is_leased(occupant)) { leased += plan_.chunk_bytes(); }
    }
    const std::uint64_t asked = missing_.size() * plan_.chunk_bytes();
    return Error{ErrorKind::budget,
                 "no room for " + context_.catalog.describe(StorageId{contents_.storages(chunk).front()}) + ": " +
                     std::to_string(asked) + " bytes are missing, and of the budget of " +
                     std::to_string(plan_.budget_bytes()) + " are " + std::to_string(leased) +
                     " leased; end leases before, or raise it by what is leased at once",
                 BudgetNumbers{asked, plan_.budget_bytes(), leased, plan_.floor_bytes(), UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::core
