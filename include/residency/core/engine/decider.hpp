// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/engine/copy_scheduler.hpp"
#include "residency/core/engine/storage_state.hpp"
#include "residency/core/measure/event_hook.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/use_order.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/transport_policy.hpp"

// The seam between a session and what decides for it. A session owns passes, leases and the order of streams; it knows no policy. A
// decider owns the device memory of the weights and says which bytes come and leave; it knows no lease beyond a count.

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a decider works with. The session owns all of it, and outlives the decider.
template <Device D>
struct DeciderContext {
    Catalog catalog;
    std::span<StorageState> states;  ///< by storage
    Counters* counters = nullptr;
    const UseOrder* order = nullptr;  ///< null: there is no schedule
    std::span<const std::uint32_t>
        first_steps;      ///< by storage: the first step that reads it; empty: there is no schedule
    bool poison = false;  ///< evicted bytes are overwritten
    D* device = nullptr;
    CopyScheduler<D>* copy_scheduler = nullptr;
    EventHook* events = nullptr;     ///< null: nobody is told
    std::optional<plan::Link> link;  ///< of a transport that uses more than the device's own; none: it is that
    MemorySource* memory = nullptr;  ///< to measure in, during open()

    /// Counts an access to storage `id`, of `bytes` bytes on the device.
    void count_access(StorageId id, std::uint64_t bytes) const noexcept {
        StorageState& state = states[index(id)];
        if (state.placement == Placement::host) { bytes = 0; }
        if (state.demand_missed) {
            ++counters->demand_misses;
            counters->capacity_misses += state.was_evicted ? 1U : 0U;
            counters->missed_bytes += bytes;
        } else if (state.prefetched) {
            ++counters->prefetch_hits;
            counters->prefetch_hit_bytes += bytes;
        } else {
            ++counters->hits;
            counters->hit_bytes += bytes;
        }
        state.was_missed = state.demand_missed;
        state.demand_missed = state.prefetched = false;
    }
};

/// What a decider notes about one lease. The session keeps it and hands it back when the lease ends; it reads `undisturbed_steps` alone.
struct LeaseToken {
    std::uint64_t step_index = 0;         ///< the step that the lease belongs to, as the decider counts
    std::uint32_t plan_epoch = 0;         ///< the plan in force when the lease began
    std::uint8_t kind = 0;                ///< the decider's own
    std::uint32_t steps_ended = 0;        ///< how many steps end with the lease, that one first; 0: none
    std::uint32_t undisturbed_steps = 0;  ///< after that one: none of them overwrites the bytes
};

/// The budgets that a decider can work with, in device bytes.
struct BudgetLimits {
    std::uint64_t floor_bytes = 0;
    std::uint32_t floor_step = UINT32_MAX;  ///< the step that sets the floor; UINT32_MAX: none
    std::uint32_t floor_steps = 1;          ///< the steps, from that one on, whose weights are there together
    std::uint32_t leases_at_once = 1;       ///< policies.leases_at_once, for which the floor has room
    std::uint32_t floor_storages = 0;       ///< where no step sets the floor, this number of the largest storages does
    std::uint64_t resident_from_bytes = 0;  ///< nothing streams from here on
    std::uint64_t ceiling_bytes = 0;        ///< everything fits from here on, what no step reads with it
    std::uint64_t wasteful_slot_bytes =
        0;  ///< of equal slots that storages leave empty by half or more; 0: there are none
};

/// The error of policies.leases_at_once = 0.
[[nodiscard]] inline Error no_leases_at_once() {
    return {ErrorKind::invalid_argument,
            "policies.leases_at_once is 0: give the number of leases that are open together, 1 or more (1: each ends "
            "before the next one begins)"};
}

/// The device memory of a decider, in bytes.
struct MemoryUse {
    std::uint64_t held_bytes = 0;            ///< as the driver counts
    std::uint64_t requested_bytes = 0;       ///< of these, handed out to storages
    std::uint64_t peak_requested_bytes = 0;  ///< the largest value so far
};

/// How a pass begins.
struct PassStart {
    bool repeats_one_shot = false;    ///< a one-shot schedule begins again from its first step
    bool in_foreign_capture = false;  ///< the caller captures the pass: the graph will hold today's addresses
};

/// Brings memory to the state that a graph expects, and adopts the state that it leaves. Calls come between passes, with no lease open
/// and every stream drained, except where stated.
class GraphDecider {
public:
    GraphDecider() = default;
    GraphDecider(const GraphDecider&) = delete;
    GraphDecider& operator=(const GraphDecider&) = delete;
    virtual ~GraphDecider() = default;

    /// A pass is going to be recorded. Blocks if the plan in force is not one for graphs.
    [[nodiscard]] virtual Status begin_capture() = 0;
    /// The recording is over, and nothing of it has run: restores the state from before it. An error if the graph lacks a part of its
    /// pass.
    [[nodiscard]] virtual Status end_capture(bool is_recorded) = 0;
    /// Brings what the graph expects to find. Called before the first launch after eager work; streams need not be drained.
    [[nodiscard]] virtual Status before_graph() = 0;
    /// A graph was enqueued: adopts the state that it leaves behind.
    virtual void graph_launched() = 0;
    /// Counts the changes of the mapping. A graph is valid for one of them.
    [[nodiscard]] virtual std::uint64_t mapping_generation() const noexcept = 0;
};

/// Decides which bytes are on the device. Every byte that it holds is inside the cap it was given last, apart from bytes that open leases
/// keep after the cap was lowered. Not thread safe; all calls come from the session.
template <Device D>
class Decider {
public:
    Decider() = default;
    Decider(const Decider&) = delete;
    Decider& operator=(const Decider&) = delete;
    virtual ~Decider() = default;

    // Budgets and schedules: between passes.

    /// Computes limits() for a schedule. Called before open(), and again for another schedule. Holds nothing on the device.
    [[nodiscard]] virtual Status prepare(const D& device, const Catalog& catalog, const Schedule& schedule,
                                         const pool::Requirements& requirements) = 0;
    [[nodiscard]] virtual BudgetLimits limits() const noexcept = 0;
    /// The prepared catalog as the transport brings it: the same storages, each with the bytes in which it travels.
    [[nodiscard]] virtual Catalog stored_catalog(const Catalog& catalog) const { return catalog; }
    /// Whether storages that must stay resident are part of the decider's memory. Otherwise the session holds them.
    [[nodiscard]] virtual bool holds_residents() const noexcept = 0;
    /// Blocks while the device allocates.
    [[nodiscard]] virtual Status open(const DeciderContext<D>& context, const pool::Requirements& requirements,
                                      std::uint64_t cap_bytes) = 0;
    /// In place of open(): the storages in the order in which it would lay them out, under the same cap; none: it has no such order.
    [[nodiscard]] virtual Result<std::vector<StorageId>> storage_order(const Catalog&, std::uint64_t) {
        return std::vector<StorageId>{};
    }
    /// Another schedule, after prepare(). The streams are drained. What is on the device stays where the new order allows it.
    [[nodiscard]] virtual Status set_order(const UseOrder* order, std::span<const std::uint32_t> first_steps,
                                           StepIndex now, std::uint64_t cap_bytes) = 0;
    /// Another cap. The streams are drained; leases may be open, and what they cover stays at its address. Blocks. On failure the old
    /// cap is in force.
    [[nodiscard]] virtual Status set_cap(std::uint64_t cap_bytes, StepIndex now) = 0;
    /// Continues a change of the cap where leases have ended and their uses are complete. Does not block.
    [[nodiscard]] virtual Status reclaim_pending() = 0;
    [[nodiscard]] virtual bool has_pending() const noexcept = 0;
    /// Takes back the memory that a failed call left unmapped, or beyond the cap. Blocks if there is any.
    [[nodiscard]] virtual Status repair() { return {}; }
    /// Gives all device memory back; what it held is lost. No lease is open, and the streams are drained. On failure, resume() is not
    /// called before another call of this has succeeded.
    [[nodiscard]] virtual Status suspend() = 0;
    /// Takes memory again, after suspend(). Blocks while the device allocates. On failure suspend() follows.
    [[nodiscard]] virtual Status resume(std::uint64_t cap_bytes, StepIndex now) = 0;
    /// Between suspend() and resume(): takes memory that it had and that nobody else has now, and enqueues copies of what stays there, up to
    /// `most_bytes`. Returns the bytes of these copies. Does not block. suspend() gives the memory back.
    [[nodiscard]] virtual Result<std::uint64_t> bring_asleep(std::uint64_t) { return std::uint64_t{0}; }
    /// Precondition: the streams are drained.
    virtual void close() noexcept = 0;
    /// The device is broken: forgets everything without a device call.
    virtual void abandon() noexcept = 0;

    // Passes and leases.

    [[nodiscard]] virtual Status prepare_pass(const PassStart&) { return {}; }
    virtual void pass_began(StepIndex now) noexcept = 0;
    virtual void pass_ended() noexcept = 0;
    /// Passes are expected to end after the first `steps` steps of the schedule from now on: nothing is brought for later ones. `order`: of
    /// passes that do; step indexes from `now` on count such passes. Called between passes, or before an access to a later step.
    [[nodiscard]] virtual Status expect_steps(std::uint32_t steps, const UseOrder& order, StepIndex now) = 0;
    /// Makes distinct storages resident or their copies enqueued, all or none, and writes the token of the lease.
    [[nodiscard]] virtual Status ensure(std::span<const StorageId> storages, const AccessPoint& access,
                                        LeaseToken& token) = 0;
    /// A lease has ended while the decider does not rest. `recorded`: its use was recorded, or needed no record.
    virtual void released(const LeaseToken& token, bool recorded) noexcept = 0;
    /// The lease did not come about, or belonged to a capture: takes back what ensure() counted.
    virtual void forget(const LeaseToken& token) noexcept = 0;
    /// Whether the end of a lease on these storages has to be recorded. May change while the lease is open.
    [[nodiscard]] virtual bool needs_record(std::span<const StorageId> storages) const noexcept = 0;
    /// Whether all storages are on the device to stay, and nothing is to come or to move: then needs_record() is false for any of them, and
    /// released() is not called.
    [[nodiscard]] bool rests() const noexcept { return rests_; }

    /// Whether leases call unpack(). The same from open() on.
    [[nodiscard]] virtual bool unpacks() const noexcept { return false; }
    /// Enqueues, on a stream of a lease that has waited for the copies of its storages, what makes of them what kernels read. Does not
    /// block.
    [[nodiscard]] virtual Status unpack(std::span<const StorageId>, ConsumerId) { return {}; }
    /// An error where the bytes of one of these storages cannot be replaced at their source.
    [[nodiscard]] virtual Status check_refresh(std::span<const StorageId>) const { return {}; }

    /// Appends what of a storage lies on the device, so that it can be copied again. Precondition: the streams are drained.
    [[nodiscard]] virtual Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) = 0;

    /// Enqueues copies of whole storages that must stay resident, where holds_residents(). Precondition: no lease is open.
    [[nodiscard]] virtual Status bring_residents(std::span<const StorageId>) { return {}; }
    /// If nothing streams, enqueues copies of what steps read and the device does not hold, so that no pass brings anything. What an open
    /// lease is in the way of comes later. Precondition: the streams are drained. Blocks where something lies elsewhere than planned.
    [[nodiscard]] virtual Status bring_everything() { return {}; }
    /// Withdraws what was announced to the transport.
    virtual void forget_ahead() {}

    /// Whether speculative copies are sent in pieces while the host waits.
    [[nodiscard]] virtual bool is_speculative() const noexcept { return false; }
    /// Sends the next speculative pieces if earlier ones have arrived. False: there are none to wait for.
    [[nodiscard]] virtual bool send_speculative(StepIndex) noexcept { return false; }

    // Facts.

    /// Memory to measure in, of the stock that it takes its own from. Null: it takes it from the device.
    [[nodiscard]] virtual std::unique_ptr<MemorySource> stock_memory(D&) const { return nullptr; }
    /// What there is free in that stock. None: it takes its memory from the device.
    [[nodiscard]] virtual std::optional<std::uint64_t> stock_free_bytes() const { return std::nullopt; }
    /// False: everything fits, and nothing leaves.
    [[nodiscard]] virtual bool is_streaming() const noexcept = 0;
    [[nodiscard]] virtual MemoryUse memory_use() const = 0;
    /// The time per pass that no plan of copies beats; unset where the decider has no plan.
    [[nodiscard]] virtual std::optional<std::chrono::nanoseconds> bound() const noexcept { return std::nullopt; }
    /// Whether other compute times or another order of the steps give another plan.
    [[nodiscard]] virtual bool makes_plans() const noexcept { return false; }
    /// Takes the rate that copies were seen to reach, in bytes per second. True: the link was measured slower than that, so that a plan for
    /// the present schedule is to be made again.
    [[nodiscard]] virtual bool correct_link(double) noexcept { return false; }
    /// Of the links that plans count on, `share` of their rate is left, and `least` bytes per second at least. Plans made from now on are
    /// for that. True: a plan for the present schedule is to be made again.
    [[nodiscard]] virtual bool lose_links([[maybe_unused]] double share, [[maybe_unused]] double least) noexcept {
        return false;
    }
    /// The compute time of each step, in seconds, that the plan in force assumes; empty where none is assumed.
    [[nodiscard]] virtual std::span<const double> planned_step_seconds() const noexcept { return {}; }
    /// Null: passes of this composition cannot be captured.
    [[nodiscard]] virtual GraphDecider* graphs() noexcept { return nullptr; }
    [[nodiscard]] virtual const GraphDecider* graphs() const noexcept { return nullptr; }

protected:
    bool rests_ = false;  ///< what rests() says: a call that changes it writes it
};

}}}  // namespace residency::RESIDENCY_ABI::core
