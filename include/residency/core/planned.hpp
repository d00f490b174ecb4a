// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/decider.hpp"
#include "residency/core/executor.hpp"
#include "residency/core/measure_link.hpp"
#include "residency/core/plan_problem.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/tenant.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/virtual.hpp"

namespace residency::inline RESIDENCY_ABI::core {

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
template <pool::PlannedPool Pool, class Transport>
class Planned {
public:
    using Device = typename Pool::Device;
    static constexpr bool holds_residents = true;

    struct Config {
        plan::Options options{};
        std::optional<plan::Link> link{};  // unset: measured when the Residency is made
        std::optional<plan::Plan> plan{};  // instead of making one
        typename Pool::Config pool{};
    };

    explicit Planned(Config config) : config_{std::move(config)}, pool_{config_.pool} {}

    /// What the plan has to solve, hence its floor. Called before open(), and again with another schedule.
    [[nodiscard]] Status prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Needs&);
    [[nodiscard]] std::uint64_t floor_bytes() const noexcept { return sizes_.floor_bytes; }
    [[nodiscard]] std::uint32_t floor_step() const noexcept { return sizes_.step; }
    [[nodiscard]] std::uint64_t ceiling_bytes() const noexcept { return sizes_.everything_bytes; }

    [[nodiscard]] Status open(const Stage<Device, Transport>& stage, const pool::Needs&, std::uint64_t cap_bytes);

    /// The prepared problem replaces the one in force; what stays at its place keeps its bytes. The streams are drained.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> groups, Moment,
                                   std::uint64_t cap_bytes);
    /// Goes on with a change of budget where leases have ended and their uses are complete. Does not wait for work.
    [[nodiscard]] Status settle();
    [[nodiscard]] bool is_settled() const noexcept { return !records_all_; }
    [[nodiscard]] Status restart() noexcept { return {}; }
    [[nodiscard]] std::span<const double> planned_seconds() const noexcept { return problem_.compute_seconds; }
    /// Another budget. The streams are drained. On failure the plan in force stays. Blocks.
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, Moment = 0);

    /// A graph of a pass will be recorded. Everything is complete, no lease is open. From the state that this leaves, calls
    /// [cut, calls) of a pass and [0, cut) of the next lead to itself. Blocks where the plan in force is not one for graphs.
    [[nodiscard]] Status begin_capture();
    /// Nothing of what was recorded has run: goes back to where it was. An error where the graph lacks something of its pass.
    [[nodiscard]] Status end_capture(bool is_recorded);
    /// Whatever the host did since, the graph finds what it needs.
    [[nodiscard]] Status before_graph() { return reach_cut(); }
    void graph_launched();

    [[nodiscard]] Status ensure(std::span<const StorageId> wanted, Position& position);
    /// What ensure() counted, taken back.
    void forget(const Position& position) noexcept;

    void released(std::span<const StorageId>, const Position& position, bool recorded) noexcept;
    void pass_began(Moment) noexcept;
    void pass_ended() noexcept;

    [[nodiscard]] bool never_leaves(StorageId id) const noexcept { return never_leaves_[index(id)] && !records_all_; }
    [[nodiscard]] bool is_streaming() const noexcept { return calls_ > 0; }
    void captured_outside() noexcept {}  // where nothing is streamed, nothing leaves before the budget changes
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return is_open_ ? pool_.held_bytes() : 0; }
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return held_bytes(); }
    [[nodiscard]] std::uint64_t peak_requested_bytes() const noexcept { return peak_held_; }
    [[nodiscard]] std::optional<std::chrono::nanoseconds> bound() const noexcept {
        return std::chrono::nanoseconds{std::llround(plan_.bound_seconds() * 1e9)};
    }
    /// What one graph brings.
    [[nodiscard]] std::uint64_t bytes_per_pass() const noexcept { return plan_.bytes_per_pass(); }
    [[nodiscard]] const plan::Plan& plan() const noexcept { return plan_; }
    /// Counts the times that an address came to lie on other memory.
    [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

    void close() noexcept {
        if (is_open_) { pool_.close(); }
        is_open_ = false;
    }
    void abandon() noexcept {
        if (is_open_) { pool_.abandon(); }
        is_open_ = false;
    }

private:
    static constexpr std::uint32_t none = plan::none;

    [[nodiscard]] Result<plan::Plan> make_plan(std::uint64_t cap_bytes) const;

    /// What memory holds, for a planner that would rather keep it.
    void tell_present(plan::Options& options) const;
    [[nodiscard]] StorageId first_leased() const noexcept;
    /// What is leased keeps its address: the image stays as it is.
    [[nodiscard]] Result<plan::Plan> make_plan_under_leases(plan::Problem problem, const plan::Options& options,
                                                            StorageId leased) const;

    /// Of every slot: the chunks that lie on it.
    [[nodiscard]] static std::vector<std::uint32_t> count_chunks(std::span<const std::uint32_t> table);
    /// A new plan comes into force: the image is arranged for it, and what is there and its slot holds first keeps its bytes; so
    /// does what is leased. Leased chunks that cannot all have their places in the plan are *guests* on other slots, the more than
    /// the plan has on slots beyond it. On failure the mapping is torn.
    [[nodiscard]] Status adopt(plan::Plan plan);
    /// Adds to what is kept, beside leased chunks, what is there and the first that a pass of the plan brings to its slot.
    void keep_first(const plan::Plan& plan, const std::vector<std::uint32_t>& table, std::uint32_t slots,
                    std::vector<std::uint32_t>& kept) const;
    /// Slots for leased chunks, one each: their own where they can, else one of the ring, else any, else further ones. The number of
    /// slots there are then. What is not at its own is a guest.
    [[nodiscard]] static std::uint32_t seat(std::span<const std::uint32_t> pinned,
                                            const std::vector<std::uint32_t>& sharers, std::uint32_t slots,
                                            std::vector<std::uint32_t>& table, std::vector<std::uint32_t>& guests);
    [[nodiscard]] bool is_guest(std::uint32_t chunk) const noexcept {
        return std::ranges::find(guests_, chunk) != guests_.end();
    }
    /// Guests whose leases have ended and whose uses are complete go home; what lies beyond the plan is given back. Does not wait for
    /// work.
    [[nodiscard]] Status send_home();
    /// A guest is not leased again where it is: passes that the host enqueues ahead would keep it there for ever. Waits for its uses.
    [[nodiscard]] Status send_home_before_use(std::span<const StorageId> wanted);
    /// A slot beyond the plan, on which nothing lies any more.
    [[nodiscard]] Status give_back(std::uint32_t slot);

    /// What the hot path looks up: which storages lie on a chunk, the pieces of every call, and which storages never leave.
    void index_chunks();
    /// The parts of storages that lie in a range of the image.
    void append_pieces(std::uint64_t begin, std::uint64_t end, std::vector<transport::Fetch>& pieces) const;
    [[nodiscard]] std::span<const std::uint32_t> storages_on(std::uint32_t chunk) const noexcept {
        return std::span<const std::uint32_t>{chunk_storages_}.subspan(
            chunk_offsets_[chunk], chunk_offsets_[chunk + 1] - chunk_offsets_[chunk]);
    }

    /// Maps the image for the plan in force again, where a failed call left parts of it unmapped. Blocks then.
    [[nodiscard]] Status mend();

    struct State {
        std::uint64_t pass = 0, current = 0, ended = 0, next_call = 0;
        std::vector<bool> there;
        std::vector<std::uint32_t> occupant;
    };
    void restore_state(State& state) noexcept;

    /// Steps whose ends are told apart.
    [[nodiscard]] std::uint64_t window() const noexcept { return 2 * std::uint64_t{steps_}; }
    /// Whether calls have to look at what is leased, instead of at the plan alone.
    [[nodiscard]] bool is_cautious() const noexcept {
        return next_call_ < cautious_until_ || unplanned_ > 0 || !guests_.empty();
    }

    /// Everything is there and stays: a lease waits for nothing, and nothing waits for its end.
    [[nodiscard]] bool is_at_rest() const noexcept {
        return all_stay_ && next_resident_ == plan_.residents().size() && is_settled() && !torn_ && !lost_use_ &&
               !capturing_;
    }
    /// Counts a lease that has what it needs, and what it found there.
    void account(std::span<const StorageId> wanted, Position& position, bool in_order) noexcept;

    /// Steps end in order: those before the current one, once no lease of theirs is open.
    void advance() noexcept;

    /// Waits for uses that were not recorded.
    [[nodiscard]] Status await_lost_uses();
    /// What fails here is tried again when the next lease is acquired; a capture fails.
    void try_pump() noexcept {
        if (auto pumped = pump(); !pumped && capturing_) { trouble_ = pumped.error(); }
    }
    /// Enqueues every call whose step has ended. Stops, without an error, at the first whose step has not; what comes from there
    /// on the transport may read already.
    [[nodiscard]] Status pump();
    [[nodiscard]] Status enqueue_calls();
    static constexpr bool reads_ahead = requires(Transport& transport, std::span<const transport::Fetch> pieces) {
        { transport.read_ahead(pieces) } -> std::same_as<bool>;
        transport.forget_ahead();
    };
    /// Tells the transport what the next calls bring, at most a pass of them. A one-shot plan: of the pass that runs.
    void read_ahead();
    void forget_ahead() {
        if constexpr (reads_ahead) { stage_.executor->transport().forget_ahead(); }
        announced_ = 0;
    }
    /// Residents, and calls [0, cut) of the pass, in their places.
    [[nodiscard]] Status reach_cut();
    [[nodiscard]] std::span<const transport::Fetch> pieces_of(std::uint32_t k) const noexcept {
        return std::span<const transport::Fetch>{call_pieces_}.subspan(call_offsets_[k],
                                                                       call_offsets_[k + 1] - call_offsets_[k]);
    }
    [[nodiscard]] Status send_call(std::uint32_t k);
    [[nodiscard]] Status follow_end(std::uint64_t step);
    [[nodiscard]] Status follow_all();
    [[nodiscard]] Status send(std::span<const transport::Fetch> pieces);
    template <class Visit>
    void for_each_chunk(const plan::Copy& copy, const Visit& visit) const {
        const std::uint64_t chunk_bytes = plan_.chunk_bytes();
        for (std::uint64_t chunk = copy.image_begin / chunk_bytes; chunk * chunk_bytes < copy.image_end; ++chunk) {
            visit(static_cast<std::uint32_t>(chunk));
        }
    }
    /// A chunk was sent to its slot. Where that failed, nobody knows what the slot holds.
    void occupy(std::uint32_t chunk, const Status& sent) noexcept;

    /// Residents are brought once (once a pass of a one-shot plan), those that earlier steps need first. Stops, without an error, where
    /// a lease is in the way.
    [[nodiscard]] Status bring_residents(std::uint32_t needed_by);
    [[nodiscard]] Status bring_residents_before(std::size_t count);
    /// Which residents go before which call of the first pass: those needed by then, and others where that makes the pass faster.
    void order_first_pass();
    /// How long the first pass takes, and the order for it: by call, the residents that go before it. They are those that its step or
    /// the next `ahead` ones need and, with `fills`, as many as keep the link busy until the call may start.
    [[nodiscard]] double first_pass_seconds(bool fills, std::uint32_t ahead, std::vector<std::size_t>& order) const;
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
        return std::ranges::any_of(storages_on(chunk), [&](std::uint32_t s) { return stage_.tenants[s].leases > 0; });
    }
    [[nodiscard]] bool is_any_leased(std::span<const plan::Copy> copies) const noexcept;
    /// Puts the chunks of a copy back where the plan has them.
    [[nodiscard]] Status restore(const plan::Copy& copy);
    [[nodiscard]] Status move_chunk(std::uint32_t chunk, std::uint32_t slot);
    /// Precondition: what the chunk's address stands for is not in use.
    [[nodiscard]] Status remap(std::uint32_t chunk, std::uint32_t slot);

    /// Brings what is not there of these storages, over whatever is not leased. All or nothing.
    [[nodiscard]] Status bring_missing(std::span<const StorageId> wanted, bool arrived);
    /// A place for a missing chunk that takes nothing from a lease, nor from the other chunks of this request.
    [[nodiscard]] Status settle(std::uint32_t chunk);

    Config config_;
    Pool pool_;
    Stage<Device, Transport> stage_;
    plan::Problem problem_;
    plan::ChunkFloor sizes_;
    plan::Plan plan_;
    std::uint64_t cap_bytes_ = 0;
    bool is_open_ = false;
    bool torn_ = false;  // parts of the image may be unmapped: a call failed
    std::uint64_t steps_ = 0;
    std::uint64_t calls_ = 0;
    std::uint64_t generation_ = 0;
    std::uint64_t peak_held_ = 0;

    // By chunk of the image.
    std::vector<std::uint32_t> slot_;  // where it lies now
    std::vector<bool> there_;          // its bytes are in its slot, or on their way
    std::vector<bool> stays_;          // it never leaves
    bool all_stay_ = false;
    std::vector<std::size_t> chunk_offsets_;  // CSR: the storages that lie on it
    std::vector<std::uint32_t> chunk_storages_;
    std::vector<std::uint64_t> marks_;      // the epoch in which it was wanted
    std::vector<std::uint32_t> displaced_;  // not where the plan has it
    // By slot.
    std::vector<std::uint32_t> occupant_;     // the chunk whose bytes it holds, or none
    std::vector<std::uint32_t> reserved_by_;  // the missing chunk that will take it
    std::vector<bool> ring_slot_;
    // By storage.
    std::vector<std::uint32_t> chunk_begin_, chunk_end_;
    std::vector<bool> never_leaves_;
    // By call.
    std::vector<transport::Fetch> call_pieces_;
    std::vector<std::size_t> call_offsets_;
    std::vector<bool> has_lonely_;  // brings a chunk to a slot of its own

    std::uint64_t pass_ = 0;       // passes that ended
    std::uint64_t started_ = 0;    // of a one-shot plan: the pass that runs, plus 1; 0 between passes
    std::uint64_t current_ = 0;    // the step that runs, counted across passes: those before it take no more leases
    std::uint64_t ended_ = 0;      // steps before this one have ended, and their ends are recorded
    std::uint64_t next_call_ = 0;  // counted across passes
    std::uint64_t announced_ = 0;  // calls up to this one are known to the transport
    std::uint64_t cautious_until_ = 0;  // a call
    std::uint64_t unplanned_ = 0;       // open leases that no step accounts for
    std::size_t next_resident_ = 0;
    std::vector<std::size_t> residents_before_;  // by call of the first pass
    bool capturing_ = false;
    std::uint64_t captured_pass_ = 0;
    State outside_;                      // before the capture
    State after_graph_;                  // what a graph leaves: which chunks are where
    std::optional<Error> trouble_;       // what failed in a capture
    bool lost_use_ = false;              // a use could not be recorded
    std::vector<std::uint32_t> guests_;  // leased chunks that a change of the budget found no places of their own for
    bool records_all_ = false;           // residents may not be at home: the ends of their leases are recorded
    std::uint64_t era_ = 0;              // plans that came into force
    std::vector<std::uint32_t> open_;    // by step of the window: its leases
    std::vector<std::vector<Point>> ends_;  // by reader, by step of the window: the point that its end is
    std::vector<std::uint32_t> missing_;
    std::vector<transport::Fetch> fetches_;
    std::uint64_t epoch_ = 0;
    std::uint64_t reserved_epoch_ = 0;
};

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                         const pool::Needs&) {
    plan::Problem problem =
        make_problem(catalog, schedule, config_.link.value_or(plan::Link{}), pool_.chunk_bytes(device));
    const bool is_written =
        std::ranges::any_of(catalog.storages(), [](const Storage& storage) { return storage.is_mutable; });
    // What kernels have written cannot be brought again: the image stays as it is, from the beginning as for the smallest budget.
    if (is_open_ && is_written) { problem.image_offsets = plan_.data().storage_offsets; }
    auto sizes = plan::chunk_floor(problem);
    if (!sizes) { return sizes.error(); }
    if (!is_open_ && is_written && !config_.plan) {
        const plan::Image aligned = plan::lay_out(problem, plan::ImageOrder::aligned);
        const plan::Image grouped = plan::lay_out(problem, plan::ImageOrder::grouped);
        const auto floor = [&](const plan::Image& image) { return plan::floor_chunks(image, problem.steps()).chunks; };
        problem.image_offsets = floor(aligned) < floor(grouped) ? aligned.offsets : grouped.offsets;
        sizes = plan::chunk_floor(problem);
        if (!sizes) { return sizes.error(); }
    }
    problem_ = std::move(problem);
    sizes_ = *sizes;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::open(const Stage<Device, Transport>& stage, const pool::Needs&,
                                      std::uint64_t cap_bytes) {
    stage_ = stage;
    if (!config_.link) {
        auto link = try_measure_link(*stage.device, cap_bytes);
        if (!link) { return link.error(); }
        config_.link = problem_.link = *link;
    }
    auto plan = make_plan(cap_bytes);
    if (!plan) { return plan.error(); }
    cap_bytes_ = cap_bytes;
    return adopt(std::move(*plan));
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::set_order(const UseOrder* order, std::span<const std::uint32_t> groups, Moment,
                                           std::uint64_t cap_bytes) {
    stage_.order = order;
    stage_.groups = groups;
    return set_cap(cap_bytes);
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::settle() {
    if (is_settled() || torn_ || capturing_) { return {}; }
    if (auto polled = stage_.executor->poll(); !polled) { return polled; }
    if (auto sent = send_home(); !sent) { return sent; }
    records_all_ = !guests_.empty() || !displaced_.empty() || next_resident_ < plan_.residents().size();
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::set_cap(std::uint64_t cap_bytes, Moment) {
    auto plan = make_plan(cap_bytes);
    if (!plan) { return plan.error(); }
    if (auto adopted = adopt(std::move(*plan)); !adopted) {
        static_cast<void>(mend().has_value());
        return adopted;
    }
    cap_bytes_ = cap_bytes;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::begin_capture() {
    if (auto mended = mend(); !mended) { return mended; }
    if (calls_ > 0 && !plan_.is_cyclic()) {
        return Error{ErrorKind::unsupported,
                     "a one-shot schedule streams other bytes in each pass: a graph is captured of a cyclic one, "
                     "or where everything is resident"};
    }
    if (!plan_.is_captured() && calls_ > 0) {
        if (config_.plan) {
            return Error{ErrorKind::unsupported,
                         "the plan that was given is not one for captured passes: make it with "
                         "plan::Options::captured"};
        }
        config_.options.captured = true;
        if (auto adopted = set_cap(cap_bytes_); !adopted) {
            config_.options.captured = false;
            return adopted;
        }
    }
    if (auto reached = reach_cut(); !reached) { return reached; }
    outside_ = {pass_, current_, ended_, next_call_, there_, occupant_};
    ends_.clear();
    capturing_ = true;
    trouble_.reset();
    captured_pass_ = pass_;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::end_capture(bool is_recorded) {
    Status whole;
    const bool complete = !lost_use_ && next_call_ == (calls_ > 0 ? (captured_pass_ + 1) * calls_ + plan_.cut() : 0);
    if (is_recorded && !complete) {
        whole = trouble_.value_or(Error{ErrorKind::wrong_state, "not everything that the pass needs was captured"});
    }
    if (is_recorded && complete) { after_graph_ = {0, 0, 0, 0, std::move(there_), std::move(occupant_)}; }
    capturing_ = lost_use_ = false;
    trouble_.reset();
    restore_state(outside_);
    ends_.clear();
    return whole;
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::graph_launched() {
    ++pass_;
    current_ = ended_ = pass_ * steps_;
    next_call_ = pass_ * calls_ + plan_.cut();
    there_ = after_graph_.there;
    occupant_ = after_graph_.occupant;
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::ensure(std::span<const StorageId> wanted, Position& position) {
    position.is_counted = position.is_unplanned = false;
    if (wanted.empty() && !position.is_announced) { return {}; }
    for (const StorageId id : wanted) { stage_.tenants[index(id)].missed = false; }
    if (is_at_rest()) {
        account(wanted, position, false);
        return {};
    }
    if (auto mended = mend(); !mended) { return mended; }
    if (auto settled = settle(); !settled) { return settled; }
    if (auto gone = send_home_before_use(wanted); !gone) { return gone; }
    if (capturing_ && (!position.is_announced || pass_ * steps_ + position.step < current_)) {
        return Error{ErrorKind::divergence, "a captured pass follows its schedule: " +
                                                (wanted.empty() ? "step " + std::to_string(position.step)
                                                                : stage_.catalog.describe(wanted.front())) +
                                                " is not read at step " + std::to_string(current_ - pass_ * steps_)};
    }
    const std::uint64_t step = pass_ * steps_ + position.step;
    bool in_order = position.is_announced && step >= ended_;
    bool arrived = false;  // by the plan
    if (in_order) {
        current_ = (std::max)(current_, step);
        advance();
        if (auto pumped = pump(); !pumped) { return pumped; }
        if (auto brought = bring_residents(position.step); !brought) { return brought; }
        in_order = step < ended_ + window();
        arrived = in_order && next_call_ >= pass_ * calls_ + plan_.step_calls(position.step) &&
                  are_residents_there(position.step);
    }
    if (!arrived || is_cautious()) {
        if (capturing_) {
            if (trouble_) { return *trouble_; }
            return Error{ErrorKind::unsupported, "a captured pass holds one step at a time: step " +
                                                     std::to_string(position.step) +
                                                     " needs bytes that an open lease keeps from coming"};
        }
        if (auto brought = bring_missing(wanted, arrived); !brought) { return brought; }
    }
    account(wanted, position, in_order);
    return {};
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::account(std::span<const StorageId> wanted, Position& position, bool in_order) noexcept {
    position.absolute = pass_ * steps_ + position.step;
    position.era = era_;
    position.is_counted = in_order;
    position.is_unplanned = !in_order;
    if (in_order) {
        ++open_[static_cast<std::size_t>(position.absolute % window())];
    } else {
        ++unplanned_;
    }
    for (const StorageId id : wanted) { stage_.count_access(id, problem_.storage_bytes[index(id)]); }
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::forget(const Position& position) noexcept {
    if (position.era != era_) {
        if (position.is_counted || position.is_unplanned) { --unplanned_; }
        return;
    }
    if (position.is_counted) { --open_[static_cast<std::size_t>(position.absolute % window())]; }
    if (position.is_unplanned) { --unplanned_; }
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::released(std::span<const StorageId>, const Position& position, bool recorded) noexcept {
    lost_use_ = lost_use_ || !recorded;
    if (position.era != era_) {
        if (position.is_counted || position.is_unplanned) { --unplanned_; }
        try_pump();
        return;
    }
    if (position.is_counted) {
        const auto slot = static_cast<std::size_t>(position.absolute % window());
        --open_[slot];
        if (position.is_whole) { current_ = (std::max)(current_, position.absolute + 1); }
    }
    if (position.is_unplanned) { --unplanned_; }
    if (is_at_rest()) { return; }
    advance();
    try_pump();
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::pass_began(Moment) noexcept {
    current_ = (std::max)(current_, pass_ * steps_);
    if (!plan_.is_cyclic()) {
        started_ = pass_ + 1;
        if (pass_ > 0) {
            next_call_ = pass_ * calls_;
            cautious_until_ = next_call_ + calls_;
            next_resident_ = 0;
        }
    }
    try_pump();
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::pass_ended() noexcept {
    ++pass_;
    started_ = 0;
    current_ = pass_ * steps_;
    advance();
    try_pump();
}

template <pool::PlannedPool Pool, class Transport>
Result<plan::Plan> Planned<Pool, Transport>::make_plan(std::uint64_t cap_bytes) const {
    plan::Problem problem = problem_;
    problem.budget_bytes = cap_bytes;
    plan::Options options = config_.options;
    options.catalog_hash = stage_.catalog.hash();
    if (!config_.plan) {
        if (is_open_ && plan_.is_cyclic()) { tell_present(options); }
        if (const StorageId leased = first_leased(); leased != no_storage) {
            return make_plan_under_leases(std::move(problem), options, leased);
        }
        auto best = plan::make_plan(problem, options);
        if (!best || !is_open_ || !problem.image_offsets.empty() ||
            best->data().storage_offsets == plan_.data().storage_offsets) {
            return best;
        }
        // The image stays as it is where that is as good: what is at its place need not move.
        problem.image_offsets = plan_.data().storage_offsets;
        const auto sizes = plan::chunk_floor(problem);
        if (!sizes || sizes->floor_bytes > cap_bytes) { return best; }
        auto same = plan::make_plan(problem, options);
        const bool is_as_good = same &&
                                same->bytes_per_pass() <= best->bytes_per_pass() + best->bytes_per_pass() / 50 &&
                                same->predicted_seconds() <= best->predicted_seconds() * 1.02;
        return is_as_good ? same : best;
    }
    const plan::Plan& given = *config_.plan;
    if (given.catalog_hash() != options.catalog_hash) {
        return Error{ErrorKind::mismatch, "the plan was made for another catalog: its hash is " +
                                              std::to_string(given.catalog_hash()) + ", this catalog's is " +
                                              std::to_string(options.catalog_hash)};
    }
    if (given.held_bytes() > cap_bytes || given.chunk_bytes() != problem_.chunk_bytes || !given.is_static() ||
        given.layout() != plan::Layout::chunks) {
        return Error{ErrorKind::mismatch, "the plan holds " + std::to_string(given.held_bytes()) +
                                              " bytes in chunks of " + std::to_string(given.chunk_bytes()) +
                                              "; the budget is " + std::to_string(cap_bytes) +
                                              ", the chunks of this pool are " + std::to_string(problem_.chunk_bytes)};
    }
    if (auto fits = plan::check(given, problem_); !fits) { return fits.error(); }
    return given;
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::tell_present(plan::Options& options) const {
    options.present_offsets = plan_.data().storage_offsets;
    options.present.assign(there_.size(), plan::Presence::absent);
    for (std::size_t chunk = 0; chunk < there_.size(); ++chunk) {
        if (!there_[chunk]) { continue; }
        options.present[chunk] = stays_[chunk] ? plan::Presence::resident : plan::Presence::passing;
    }
}

template <pool::PlannedPool Pool, class Transport>
StorageId Planned<Pool, Transport>::first_leased() const noexcept {
    for (std::uint32_t i = 0; i < stage_.tenants.size(); ++i) {
        if (stage_.tenants[i].leases > 0 && problem_.storage_bytes[i] > 0) { return StorageId{i}; }
    }
    return no_storage;
}

template <pool::PlannedPool Pool, class Transport>
Result<plan::Plan> Planned<Pool, Transport>::make_plan_under_leases(plan::Problem problem, const plan::Options& options,
                                                                    StorageId leased) const {
    problem.image_offsets = plan_.data().storage_offsets;
    const auto sizes = plan::chunk_floor(problem);
    if (!sizes) { return sizes.error(); }
    if (sizes->floor_bytes > problem.budget_bytes) {
        return Error{
            ErrorKind::wrong_state,
            "a lease of " + stage_.catalog.describe(leased) + " (" +
                std::to_string(problem.storage_bytes[index(leased)]) +
                " bytes) is open, so that the image stays as it is laid out, and that takes " +
                std::to_string(sizes->floor_bytes) + " bytes at least: end the lease, or give more than " +
                std::to_string(problem.budget_bytes),
            BudgetNumbers{problem.budget_bytes, cap_bytes_, pool_.held_bytes(), sizes->floor_bytes, sizes->step}};
    }
    return plan::make_plan(problem, options);
}

template <pool::PlannedPool Pool, class Transport>
std::vector<std::uint32_t> Planned<Pool, Transport>::count_chunks(std::span<const std::uint32_t> table) {
    std::vector<std::uint32_t> counts;
    for (const std::uint32_t slot : table) {
        if (slot == none) { continue; }
        if (slot >= counts.size()) { counts.resize(slot + std::size_t{1}, 0); }
        ++counts[slot];
    }
    return counts;
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::adopt(plan::Plan plan) {
    std::vector<std::uint32_t> table{plan.data().chunk_slot.begin(), plan.data().chunk_slot.end()};
    const std::vector<std::uint32_t> sharers = count_chunks(table);
    const bool is_same_image = is_open_ && plan.data().storage_offsets == plan_.data().storage_offsets &&
                               plan.image_bytes() == plan_.image_bytes();
    std::vector<std::uint32_t> kept;
    for (std::uint32_t chunk = 0; is_same_image && chunk < table.size(); ++chunk) {
        if (is_leased(chunk)) { kept.push_back(chunk); }
    }
    std::vector<std::uint32_t> guests;
    const std::uint32_t slots = seat(kept, sharers, plan.slots_held(), table, guests);
    const std::vector<bool> was_there = there_;
    if (is_same_image) {
        there_.resize(table.size(), false);  // a failed change of the image leaves the length of another
        keep_first(plan, table, slots, kept);
    }
    there_.assign(table.size(), false);
    for (const std::uint32_t chunk : kept) { there_[chunk] = true; }
    for (std::size_t chunk = 0; is_open_ && chunk < was_there.size(); ++chunk) {
        if (!was_there[chunk] || (chunk < there_.size() && there_[chunk])) { continue; }
        ++stage_.counters->evictions;
        stage_.counters->evicted_bytes += plan_.chunk_bytes();
    }
    torn_ = true;
    ++generation_;
    forget_ahead();
    if (!is_same_image) {
        if (is_open_) {
            if (auto closed = pool_.try_close(); !closed) { return closed; }
            is_open_ = false;
        }
        if (auto opened = pool_.open(*stage_.device, plan.image_bytes()); !opened) { return opened; }
        is_open_ = true;
    }
    if (auto arranged = pool_.arrange(slots, table, kept); !arranged) {
        if (!is_same_image) { close(); }  // its addresses are not those of the plan in force
        return arranged;
    }
    torn_ = false;
    peak_held_ = (std::max)(peak_held_, pool_.held_bytes());
    plan_ = std::move(plan);
    steps_ = plan_.steps();
    calls_ = plan_.calls().size();
    slot_ = table;
    occupant_.assign(slots, none);
    guests_ = std::move(guests);
    records_all_ = !guests_.empty();
    displaced_.clear();
    marks_.assign(table.size(), 0);
    epoch_ = reserved_epoch_ = 0;
    fetches_.reserve(table.size());
    missing_.reserve(table.size());
    for (std::size_t chunk = 0; chunk < table.size(); ++chunk) {
        if (there_[chunk]) { occupant_[table[chunk]] = static_cast<std::uint32_t>(chunk); }
    }
    stays_.assign(table.size(), false);
    ring_slot_.assign(slots, false);
    std::fill_n(ring_slot_.begin(), plan_.slots_held(), true);
    for (const plan::Copy& resident : plan_.residents()) {
        for_each_chunk(resident, [&](std::uint32_t chunk) {
            const std::uint32_t slot = plan_.slot_of_chunk(chunk);
            stays_[chunk] = sharers[slot] == 1;
            ring_slot_[slot] = !stays_[chunk];
        });
    }
    all_stay_ = std::ranges::all_of(stays_, std::identity{});
    index_chunks();
    for (const std::uint32_t leases : open_) { unplanned_ += leases; }
    ++era_;
    open_.assign(static_cast<std::size_t>(window()), 0);
    ends_.assign(stage_.executor->readers(), std::vector<Point>(static_cast<std::size_t>(window()), 0));
    // Passes are counted anew, so that nothing waits for what happened before: it is complete.
    pass_ = started_ = ended_ = current_ = next_call_ = cautious_until_ = next_resident_ = 0;
    // The first calls leave out what is there.
    for (std::uint32_t k = 0; k < calls_; ++k) {
        for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
            for_each_chunk(copy, [&](std::uint32_t chunk) {
                if (there_[chunk]) { cautious_until_ = k + std::uint64_t{1}; }
            });
        }
    }
    order_first_pass();
    // Leases of steps of the plan before belong to no step of this one.
    if (unplanned_ > 0) { cautious_until_ = calls_; }
    for (std::uint32_t i = 0; i < stage_.tenants.size(); ++i) {
        Tenant& tenant = stage_.tenants[i];
        if (problem_.storage_bytes[i] > 0) { tenant.address = pool_.base() + plan_.storage_offset(i); }
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::keep_first(const plan::Plan& plan, const std::vector<std::uint32_t>& table,
                                          std::uint32_t slots, std::vector<std::uint32_t>& kept) const {
    std::vector<bool> taken(slots, false), is_kept(table.size(), false);
    for (const std::uint32_t chunk : kept) { taken[table[chunk]] = is_kept[chunk] = true; }
    for (const std::span<const plan::Copy> copies : {plan.residents(), plan.copies()}) {
        for (const plan::Copy& copy : copies) {
            for_each_chunk(copy, [&](std::uint32_t chunk) {
                if (is_kept[chunk] || taken[table[chunk]]) { return; }
                taken[table[chunk]] = true;
                if (there_[chunk]) { kept.push_back(chunk); }
            });
        }
    }
}

template <pool::PlannedPool Pool, class Transport>
std::uint32_t Planned<Pool, Transport>::seat(std::span<const std::uint32_t> pinned,
                                             const std::vector<std::uint32_t>& sharers, std::uint32_t slots,
                                             std::vector<std::uint32_t>& table, std::vector<std::uint32_t>& guests) {
    std::vector<bool> taken(slots, false);
    for (const std::uint32_t chunk : pinned) {
        if (table[chunk] == none || taken[table[chunk]]) {
            guests.push_back(chunk);
        } else {
            taken[table[chunk]] = true;
        }
    }
    for (const std::uint32_t chunk : guests) {
        std::uint32_t place = none;
        for (std::uint32_t slot = 0; slot < taken.size(); ++slot) {
            if (taken[slot]) { continue; }
            if (slot < sharers.size() && sharers[slot] > 1) {
                place = slot;
                break;
            }
            if (place == none) { place = slot; }
        }
        if (place == none) {
            place = static_cast<std::uint32_t>(taken.size());
            taken.push_back(false);
        }
        taken[place] = true;
        table[chunk] = place;
    }
    return static_cast<std::uint32_t>(taken.size());
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::send_home() {
    for (std::size_t i = guests_.size(); i-- > 0;) {
        const std::uint32_t chunk = guests_[i];
        if (is_leased(chunk) || !std::ranges::all_of(storages_on(chunk), [&](std::uint32_t s) {
                return stage_.executor->is_unused(StorageId{s});
            })) {
            continue;
        }
        if (const std::uint32_t home = plan_.slot_of_chunk(chunk); slot_[chunk] != home) {
            if (auto moved = remap(chunk, home); !moved) { return moved; }
        }
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (auto slot = static_cast<std::uint32_t>(occupant_.size()); slot-- > plan_.slots_held();) {
        if (std::ranges::find(slot_, slot) != slot_.end()) { continue; }
        if (auto given = give_back(slot); !given) { return given; }
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::send_home_before_use(std::span<const StorageId> wanted) {
    const bool is_any = !guests_.empty() && std::ranges::any_of(guests_, [&](std::uint32_t chunk) {
        return !is_leased(chunk) && std::ranges::any_of(wanted, [&](StorageId id) {
            return chunk >= chunk_begin_[index(id)] && chunk < chunk_end_[index(id)];
        });
    });
    if (!is_any) { return {}; }
    ++stage_.counters->host_waits;
    if (auto drained = stage_.executor->drain(); !drained) { return drained; }
    return send_home();
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::give_back(std::uint32_t slot) {
    if (auto given = pool_.give_back(slot); !given) { return given; }
    const auto last = static_cast<std::uint32_t>(occupant_.size() - 1);
    for (std::uint32_t& of : slot_) {
        if (of == last) { of = slot; }
    }
    occupant_[slot] = occupant_[last];
    occupant_.pop_back();
    ring_slot_.pop_back();
    return {};
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::index_chunks() {
    const std::uint64_t chunk_bytes = plan_.chunk_bytes();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> on_chunk;
    chunk_begin_.assign(stage_.tenants.size(), 0);
    chunk_end_.assign(stage_.tenants.size(), 0);
    never_leaves_.assign(stage_.tenants.size(), true);
    for (std::uint32_t s = 0; s < stage_.tenants.size(); ++s) {
        const std::uint64_t bytes = problem_.storage_bytes[s];
        if (bytes == 0) { continue; }
        chunk_begin_[s] = static_cast<std::uint32_t>(plan_.storage_offset(s) / chunk_bytes);
        chunk_end_[s] = static_cast<std::uint32_t>((plan_.storage_offset(s) + bytes - 1) / chunk_bytes + 1);
        for (std::uint32_t chunk = chunk_begin_[s]; chunk < chunk_end_[s]; ++chunk) {
            on_chunk.emplace_back(chunk, s);
            if (!stays_[chunk]) { never_leaves_[s] = false; }
        }
    }
    std::ranges::sort(on_chunk);
    chunk_offsets_.assign(stays_.size() + 1, 0);
    chunk_storages_.clear();
    for (const auto& [chunk, storage] : on_chunk) {
        ++chunk_offsets_[chunk + 1];
        chunk_storages_.push_back(storage);
    }
    for (std::size_t i = 1; i < chunk_offsets_.size(); ++i) { chunk_offsets_[i] += chunk_offsets_[i - 1]; }

    const std::vector<std::uint32_t> sharers = count_chunks(slot_);
    call_pieces_.clear();
    call_offsets_.assign(1, 0);
    has_lonely_.clear();
    for (const plan::Call& call : plan_.calls()) {
        bool lonely = false;
        for (const plan::Copy& copy : plan_.copies(call)) {
            append_pieces(copy.image_begin, copy.image_end, call_pieces_);
            for_each_chunk(copy, [&](std::uint32_t chunk) { lonely = lonely || sharers[slot_[chunk]] == 1; });
        }
        has_lonely_.push_back(lonely);
        call_offsets_.push_back(call_pieces_.size());
    }
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::append_pieces(std::uint64_t begin, std::uint64_t end,
                                             std::vector<transport::Fetch>& pieces) const {
    const std::uint64_t chunk_bytes = plan_.chunk_bytes();
    std::uint32_t last = none;
    for (std::uint64_t chunk = begin / chunk_bytes; chunk * chunk_bytes < end; ++chunk) {
        for (const std::uint32_t s : storages_on(static_cast<std::uint32_t>(chunk))) {
            const std::uint64_t from = (std::max)(begin, plan_.storage_offset(s));
            const std::uint64_t to = (std::min)(end, plan_.storage_offset(s) + problem_.storage_bytes[s]);
            if (from >= to || s == last) { continue; }
            // A storage goes on over the chunks of the range; it is named at the first.
            if (chunk * chunk_bytes > from) { continue; }
            last = s;
            pieces.push_back({StorageId{s}, from - plan_.storage_offset(s), to - from, pool_.base() + from});
        }
    }
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::mend() {
    if (!torn_) { return {}; }
    if (auto drained = stage_.executor->drain(); !drained) { return drained; }
    return adopt(plan::Plan{plan_});
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::restore_state(State& state) noexcept {
    pass_ = state.pass;
    current_ = state.current;
    ended_ = state.ended;
    next_call_ = state.next_call;
    there_ = std::move(state.there);
    occupant_ = std::move(state.occupant);
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::advance() noexcept {
    while (ended_ < current_ && open_[static_cast<std::size_t>(ended_ % window())] == 0) {
        for (ReaderId id = 0; id < ends_.size(); ++id) {
            ends_[id][static_cast<std::size_t>(ended_ % window())] = stage_.executor->last_point(id);
        }
        for (auto id = static_cast<ReaderId>(ends_.size()); id < stage_.executor->readers(); ++id) {
            ends_.emplace_back(static_cast<std::size_t>(window()), stage_.executor->last_point(id));
        }
        ++ended_;
    }
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::await_lost_uses() {
    if (!lost_use_) { return {}; }
    if (capturing_) { return Error{ErrorKind::device, "the end of a lease could not be captured"}; }
    if (auto drained = stage_.executor->drain_device(); !drained) { return drained; }
    lost_use_ = false;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::pump() {
    if (torn_) { return {}; }
    Status pumped = enqueue_calls();
    if (pumped) { read_ahead(); }
    return pumped;
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::enqueue_calls() {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    if (next_call_ >= calls_ && (plan_.is_cyclic() || pass_ < started_)) {
        if (auto brought = bring_residents(none); !brought) { return brought; }
    }
    while (calls_ > 0) {
        const std::uint64_t pass = next_call_ / calls_;
        if (capturing_ ? next_call_ >= (captured_pass_ + 1) * calls_ + plan_.cut()
                       : pass >= started_ && !plan_.is_cyclic()) {
            return {};
        }
        const auto k = static_cast<std::uint32_t>(next_call_ % calls_);
        const plan::Call& call = plan_.calls()[k];
        // A graph runs after the one before.
        const bool waits = call.wait.exists() && (call.wait.pass == 0 || pass > (capturing_ ? captured_pass_ : 0));
        const std::uint64_t after =
            waits ? (pass + static_cast<std::uint64_t>(std::int64_t{call.wait.pass})) * steps_ + call.wait.step : 0;
        if (auto brought = bring_residents(call.needed_by); !brought) { return brought; }
        if (next_call_ < residents_before_.size()) {
            if (auto brought = bring_residents_before(residents_before_[k]); !brought) { return brought; }
        }
        if (!are_residents_there(call.needed_by) || (waits && after >= ended_)) { return {}; }
        if (is_cautious()) {
            const auto brought = bring_around_leases(plan_.copies(call));
            if (!brought) { return brought.error(); }
            if (!*brought) { return {}; }
        } else {
            // A chunk that comes back to a slot of its own may be leased out of order.
            if (has_lonely_[k] && !capturing_ && is_any_leased(plan_.copies(call))) { return {}; }
            if (waits) {
                if (auto followed = follow_end(after); !followed) { return followed; }
            }
            if (auto sent = send_call(k); !sent) { return sent; }
        }
        ++next_call_;
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::read_ahead() {
    if constexpr (reads_ahead) {
        if (calls_ == 0 || capturing_ || unplanned_ > 0) { return; }
        if (is_cautious()) {
            forget_ahead();
            return;
        }
        announced_ = (std::max)(announced_, next_call_);
        const std::uint64_t end = plan_.is_cyclic() ? next_call_ + calls_ : started_ * calls_;
        Transport& transport = stage_.executor->transport();
        while (announced_ < end && transport.read_ahead(pieces_of(static_cast<std::uint32_t>(announced_ % calls_)))) {
            ++announced_;
        }
    }
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::reach_cut() {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    if (auto brought = bring_residents(none); !brought) { return brought; }
    for (std::size_t i = displaced_.size(); i-- > 0;) {
        const std::uint32_t chunk = displaced_[i];
        if (auto moved = move_chunk(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
        displaced_.pop_back();
    }
    if (auto followed = follow_all(); !followed) { return followed; }
    for (std::uint32_t k = 0; k < plan_.cut(); ++k) {
        const bool there = std::ranges::all_of(plan_.copies(plan_.calls()[k]), [&](const plan::Copy& copy) {
            bool all = true;
            for_each_chunk(copy, [&](std::uint32_t chunk) { all = all && there_[chunk]; });
            return all;
        });
        if (there) { continue; }
        if (auto sent = send_call(k); !sent) { return sent; }
    }
    cautious_until_ = 0;
    next_call_ = pass_ * calls_ + plan_.cut();
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::send_call(std::uint32_t k) {
    auto sent = send(pieces_of(k));
    for (const plan::Copy& copy : plan_.copies(plan_.calls()[k])) {
        for_each_chunk(copy, [&](std::uint32_t chunk) { occupy(chunk, sent); });
    }
    return sent;
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::follow_end(std::uint64_t step) {
    for (ReaderId id = 0; id < ends_.size(); ++id) {
        if (auto followed = stage_.executor->follow(id, ends_[id][static_cast<std::size_t>(step % window())]);
            !followed) {
            return followed;
        }
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::follow_all() {
    for (ReaderId id = 0; id < stage_.executor->readers(); ++id) {
        if (auto followed = stage_.executor->follow(id, stage_.executor->last_point(id)); !followed) {
            return followed;
        }
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::send(std::span<const transport::Fetch> pieces) {
    if (pieces.empty()) { return {}; }
    auto arrival = stage_.executor->transfer(pieces);
    if (!arrival) { return arrival.error(); }
    for (const transport::Fetch& piece : pieces) {
        Tenant& tenant = stage_.tenants[index(piece.storage)];
        tenant.arrival = *arrival;
        tenant.fresh = true;
        stage_.counters->fetched_bytes += piece.bytes;
    }
    ++stage_.counters->calls;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::occupy(std::uint32_t chunk, const Status& sent) noexcept {
    std::uint32_t& occupant = occupant_[slot_[chunk]];
    if (occupant != none && occupant != chunk) {
        ++stage_.counters->evictions;
        stage_.counters->evicted_bytes += plan_.chunk_bytes();
    }
    if (occupant != none) { there_[occupant] = false; }
    occupant = sent ? chunk : none;
    there_[chunk] = static_cast<bool>(sent);
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::bring_residents(std::uint32_t needed_by) {
    const auto residents = plan_.residents();
    std::size_t count = next_resident_;
    while (count < residents.size() && residents[count].needed_by <= needed_by) { ++count; }
    return bring_residents_before(count);
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::bring_residents_before(std::size_t count) {
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

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::order_first_pass() {
    residents_before_.clear();
    if (!plan_.is_cyclic() || calls_ == 0) { return; }
    std::vector<std::size_t> order;
    double least = first_pass_seconds(false, 0, order);
    for (const bool fills : {false, true}) {
        for (const std::uint32_t ahead : {0U, 1U, 2U, 4U, 8U}) {
            if (!fills && ahead == 0) { continue; }
            const double seconds = first_pass_seconds(fills, ahead, order);
            if (seconds >= least * (1 - 1e-6)) { continue; }
            least = seconds;
            residents_before_ = order;
        }
    }
}

template <pool::PlannedPool Pool, class Transport>
double Planned<Pool, Transport>::first_pass_seconds(bool fills, std::uint32_t ahead,
                                                    std::vector<std::size_t>& order) const {
    const plan::Link& link = problem_.link;
    const auto residents = plan_.residents();
    const auto absent_seconds = [&](std::span<const plan::Copy> copies) {
        std::uint64_t bytes = 0;
        for (const plan::Copy& copy : copies) {
            for_each_chunk(copy, [&](std::uint32_t chunk) { bytes += there_[chunk] ? 0 : plan_.chunk_bytes(); });
        }
        return bytes == 0 ? 0.0 : link.latency_seconds + static_cast<double>(bytes) / link.bytes_per_second;
    };
    // By step: when that is there which no step before needs; when it has ended.
    std::vector<double> arrived(static_cast<std::size_t>(steps_), 0.0);
    std::vector<double> ended(static_cast<std::size_t>(steps_), 0.0);
    std::size_t known = 0;
    const auto end_of = [&](std::size_t step) {
        for (; known <= step; ++known) {
            ended[known] = (std::max)(known == 0 ? 0.0 : ended[known - 1], arrived[known]) +
                           problem_.compute(static_cast<std::uint32_t>(known));
        }
        return ended[step];
    };
    double now = 0;
    std::size_t resident = 0;
    const auto bring_one = [&] {
        const std::uint32_t step = residents[resident].needed_by;
        now += absent_seconds(residents.subspan(resident++, 1));
        if (step != none) { arrived[step] = (std::max)(arrived[step], now); }
    };
    order.clear();
    for (const plan::Call& call : plan_.calls()) {
        while (resident < residents.size() && residents[resident].needed_by <= call.needed_by + ahead) { bring_one(); }
        if (call.wait.exists() && call.wait.pass == 0) {
            const double free = end_of(call.wait.step);
            while (fills && resident < residents.size() && now < free) { bring_one(); }
            now = (std::max)(now, free);
        }
        order.push_back(resident);
        now += absent_seconds(plan_.copies(call));
        arrived[call.needed_by] = (std::max)(arrived[call.needed_by], now);
    }
    while (resident < residents.size()) { bring_one(); }
    return end_of(static_cast<std::size_t>(steps_) - 1);
}

template <pool::PlannedPool Pool, class Transport>
Result<bool> Planned<Pool, Transport>::bring_around_leases(std::span<const plan::Copy> copies) {
    bool is_blocked = false, overwrites = false, is_displaced = false;
    for (const plan::Copy& copy : copies) {
        for_each_chunk(copy, [&](std::uint32_t chunk) {
            const std::uint32_t slot = plan_.slot_of_chunk(chunk);
            if (there_[chunk] && slot_[chunk] == slot) { return; }
            is_blocked = is_blocked || is_leased(chunk) || is_guest(chunk) ||
                         (occupant_[slot] != none && (is_leased(occupant_[slot]) || is_guest(occupant_[slot])));
            overwrites = overwrites || !stays_[chunk] || records_all_;
            is_displaced = is_displaced || slot_[chunk] != slot;
        });
    }
    if (is_blocked) { return false; }
    if (is_displaced) {
        for (const plan::Copy& copy : copies) {
            if (auto restored = restore(copy); !restored) { return restored.error(); }
        }
    }
    fetches_.clear();
    for (const plan::Copy& copy : copies) { append_absent(copy); }
    if (fetches_.empty()) { return true; }
    if (overwrites) {
        if (auto followed = follow_all(); !followed) { return followed.error(); }
    }
    const Status sent = send(fetches_);
    for (const plan::Copy& copy : copies) {
        for_each_chunk(copy, [&](std::uint32_t chunk) {
            if (!there_[chunk]) { occupy(chunk, sent); }
        });
    }
    if (!sent) { return sent.error(); }
    return true;
}

template <pool::PlannedPool Pool, class Transport>
void Planned<Pool, Transport>::append_absent(const plan::Copy& copy) {
    const std::uint64_t chunk_bytes = plan_.chunk_bytes();
    for (std::uint64_t begin = copy.image_begin; begin < copy.image_end;) {
        auto chunk = static_cast<std::uint32_t>(begin / chunk_bytes);
        std::uint64_t end = (std::min)(copy.image_end, (chunk + std::uint64_t{1}) * chunk_bytes);
        if (there_[chunk]) {
            begin = end;
            continue;
        }
        while (end < copy.image_end && !there_[++chunk]) {
            end = (std::min)(copy.image_end, (chunk + std::uint64_t{1}) * chunk_bytes);
        }
        append_pieces(begin, end, fetches_);
        begin = end;
    }
}

template <pool::PlannedPool Pool, class Transport>
bool Planned<Pool, Transport>::is_any_leased(std::span<const plan::Copy> copies) const noexcept {
    bool is_any = false;
    for (const plan::Copy& copy : copies) {
        for_each_chunk(copy, [&](std::uint32_t chunk) { is_any = is_any || is_leased(chunk); });
    }
    return is_any;
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::restore(const plan::Copy& copy) {
    const std::uint64_t chunk_bytes = plan_.chunk_bytes();
    for (std::uint64_t c = copy.image_begin / chunk_bytes; c * chunk_bytes < copy.image_end; ++c) {
        const auto chunk = static_cast<std::uint32_t>(c);
        if (slot_[chunk] == plan_.slot_of_chunk(chunk)) { continue; }
        if (auto moved = move_chunk(chunk, plan_.slot_of_chunk(chunk)); !moved) { return moved; }
        std::erase(displaced_, chunk);
    }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::move_chunk(std::uint32_t chunk, std::uint32_t slot) {
    ++stage_.counters->host_waits;
    if (auto drained = stage_.executor->drain(); !drained) { return drained; }
    return remap(chunk, slot);
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::remap(std::uint32_t chunk, std::uint32_t slot) {
    if (occupant_[slot_[chunk]] == chunk) { occupant_[slot_[chunk]] = none; }
    there_[chunk] = false;
    ++generation_;
    if (auto moved = pool_.remap(chunk, slot); !moved) {
        torn_ = pool_.slot_of(chunk) != slot_[chunk];
        return moved;
    }
    slot_[chunk] = slot;
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::bring_missing(std::span<const StorageId> wanted, bool arrived) {
    if (auto awaited = await_lost_uses(); !awaited) { return awaited; }
    ++epoch_;
    missing_.clear();
    bool touches_ring = false;
    for (const StorageId id : wanted) {
        for (std::uint32_t chunk = chunk_begin_[index(id)]; chunk < chunk_end_[index(id)]; ++chunk) {
            touches_ring = touches_ring || !stays_[chunk];
            if (std::exchange(marks_[chunk], epoch_) == epoch_) { continue; }
            if (!there_[chunk]) { missing_.push_back(chunk); }
        }
    }
    if (touches_ring && !(arrived && missing_.empty())) {
        // The calls of this pass may lag behind: those for this very step must not overwrite what it already reads.
        cautious_until_ = (std::max)({cautious_until_, next_call_ + calls_, (pass_ + 1) * calls_});
    }
    if (missing_.empty()) { return {}; }
    if (std::ranges::any_of(guests_, [&](std::uint32_t chunk) { return !is_leased(chunk); })) {
        // Their places may be what is missing.
        ++stage_.counters->host_waits;
        if (auto drained = stage_.executor->drain(); !drained) { return drained; }
        if (auto sent = send_home(); !sent) { return sent; }
    }
    for (const std::uint32_t chunk : missing_) {
        if (auto settled = settle(chunk); !settled) { return settled; }
        reserved_by_[slot_[chunk]] = chunk;
    }
    if (auto followed = follow_all(); !followed) { return followed; }
    forget_ahead();  // these come first
    std::ranges::sort(missing_);
    fetches_.clear();
    for (std::size_t i = 0; i < missing_.size();) {
        std::size_t end = i + 1;
        while (end < missing_.size() && missing_[end] == missing_[end - 1] + 1) { ++end; }
        append_pieces(missing_[i] * plan_.chunk_bytes(),
                      (std::min)((missing_[end - 1] + std::uint64_t{1}) * plan_.chunk_bytes(), plan_.image_bytes()),
                      fetches_);
        i = end;
    }
    const auto sent = send(fetches_);
    for (const std::uint32_t chunk : missing_) {
        occupy(chunk, sent);
        for (const std::uint32_t s : storages_on(chunk)) { stage_.tenants[s].missed = true; }
    }
    if (!sent) { return sent.error(); }
    return {};
}

template <pool::PlannedPool Pool, class Transport>
Status Planned<Pool, Transport>::settle(std::uint32_t chunk) {
    if (reserved_epoch_ != epoch_) {
        reserved_by_.assign(occupant_.size(), none);
        reserved_epoch_ = epoch_;
    }
    const auto is_free = [&](std::uint32_t slot) {
        const std::uint32_t occupant = occupant_[slot];
        return reserved_by_[slot] == none && (occupant == none || (marks_[occupant] != epoch_ && !is_leased(occupant)));
    };
    if (is_free(slot_[chunk])) { return {}; }
    for (std::uint32_t slot = 0; slot < occupant_.size(); ++slot) {
        if (!ring_slot_[slot] || !is_free(slot)) { continue; }
        const bool was_at_its_place = slot_[chunk] == plan_.slot_of_chunk(chunk);
        if (auto moved = move_chunk(chunk, slot); !moved) { return moved; }
        if (was_at_its_place) { displaced_.push_back(chunk); }
        if (slot == plan_.slot_of_chunk(chunk)) { std::erase(displaced_, chunk); }
        return {};
    }
    std::uint64_t leased = 0;
    for (const std::uint32_t occupant : occupant_) {
        if (occupant != none && !stays_[occupant] && is_leased(occupant)) { leased += plan_.chunk_bytes(); }
    }
    const std::uint64_t asked = missing_.size() * plan_.chunk_bytes();
    return Error{ErrorKind::budget,
                 "no room for " + stage_.catalog.describe(StorageId{storages_on(chunk).front()}) + ": " +
                     std::to_string(asked) + " bytes are missing, " + std::to_string(leased) +
                     " of the ring are leased; end leases before, or raise the "
                     "budget of " +
                     std::to_string(plan_.budget_bytes()) + " by what is leased at once",
                 BudgetNumbers{asked, plan_.budget_bytes(), leased, plan_.floor_bytes(), UINT32_MAX}};
}

}  // namespace residency::inline RESIDENCY_ABI::core
