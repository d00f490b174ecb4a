// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/device/link.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Counts events, since construction or over one pass. An access counts once per storage; a storage that kernels read from host memory
/// counts as a hit of 0 bytes.
struct Counters {
    std::uint64_t passes = 0;              ///< that ended
    std::uint64_t acquires = 0;            ///< calls that gave a lease or a ticket
    std::uint64_t hits = 0;                ///< accesses that found the storage on the device, used before
    std::uint64_t prefetch_hits = 0;       ///< accesses that found a prefetched storage, its copy complete or enqueued
    std::uint64_t demand_misses = 0;       ///< accesses that had to fetch the storage (cold misses included)
    std::uint64_t hit_bytes = 0;           ///< of those storages
    std::uint64_t prefetch_hit_bytes = 0;  ///< of those storages
    std::uint64_t missed_bytes = 0;        ///< of those storages
    std::uint64_t calls = 0;               ///< copy calls
    std::uint64_t fetched_bytes = 0;       ///< copied to the device, residents at construction included
    std::uint64_t evictions = 0;           ///< storages that left the device; chunks, where a plan is in force
    std::uint64_t evicted_bytes = 0;       ///< of those
    std::uint64_t dropped_prefetches = 0;  ///< prefetch proposals for which there was no room
    std::uint64_t divergences = 0;         ///< acquisitions that the schedule did not announce
    /// Times that the library waited for the device on the host, outside construction and teardown: because there was no other way, or
    /// because the program asked for it (try_drain, Pass::try_wait). Not counted: a transport that waits after a call of its own failed.
    std::uint64_t host_waits = 0;
    std::uint64_t moved_bytes = 0;  ///< copied within the device, by changes of the budget
    /// Times that a planned composition planned: at construction, for another budget, a schedule that was not in force before, or what was
    /// learned. A return to a schedule at the same budget plans nothing.
    std::uint64_t plans_made = 0;
    /// Demand misses of an online composition whose storage had been on the device before, and was evicted.
    std::uint64_t capacity_misses = 0;
    std::uint64_t unpacked_bytes = 0;  ///< raw bytes of the packed storages that leases unpacked

    friend bool operator==(const Counters&, const Counters&) = default;  ///< compares all members
};

[[nodiscard]] constexpr Counters operator-(const Counters& a, const Counters& b) noexcept {
    return {a.passes - b.passes,
            a.acquires - b.acquires,
            a.hits - b.hits,
            a.prefetch_hits - b.prefetch_hits,
            a.demand_misses - b.demand_misses,
            a.hit_bytes - b.hit_bytes,
            a.prefetch_hit_bytes - b.prefetch_hit_bytes,
            a.missed_bytes - b.missed_bytes,
            a.calls - b.calls,
            a.fetched_bytes - b.fetched_bytes,
            a.evictions - b.evictions,
            a.evicted_bytes - b.evicted_bytes,
            a.dropped_prefetches - b.dropped_prefetches,
            a.divergences - b.divergences,
            a.host_waits - b.host_waits,
            a.moved_bytes - b.moved_bytes,
            a.plans_made - b.plans_made,
            a.capacity_misses - b.capacity_misses,
            a.unpacked_bytes - b.unpacked_bytes};
}

[[nodiscard]] constexpr Counters operator+(const Counters& a, const Counters& b) noexcept {
    return a - (Counters{} - b);
}

/// The outcome of one change of the budget, in device bytes as the driver counts them.
struct BudgetChange {
    std::uint64_t budget_before_bytes = 0;  ///< the old budget
    std::uint64_t budget_bytes = 0;         ///< the new one
    std::uint64_t held_before_bytes = 0;    ///< when the change began
    std::uint64_t held_bytes = 0;           ///< when the change returned
    std::uint64_t pending_bytes =
        0;  ///< held beyond the budget now: open leases, or uses that are not complete, keep them
    std::uint64_t given_back_later_bytes = 0;  ///< of the bytes that were pending at first
    std::uint64_t evicted_bytes = 0;           ///< of weights that left the device for it
    std::uint64_t moved_bytes = 0;             ///< of weights that were copied within the device for it
    /// On the device's clock: when the change returned, and when the last bytes came that were pending (the same where none were).
    /// Unset while some still are.
    std::chrono::nanoseconds returned_at{};
    std::optional<std::chrono::nanoseconds> complete_at{};  ///< unset while bytes are pending

    /// Free for others when the change returned.
    [[nodiscard]] constexpr std::uint64_t given_back_bytes() const noexcept {
        return held_before_bytes > held_bytes ? held_before_bytes - held_bytes : 0;
    }
    /// Nothing is held beyond the budget.
    [[nodiscard]] constexpr bool is_complete() const noexcept { return pending_bytes == 0; }

    friend bool operator==(const BudgetChange&, const BudgetChange&) = default;  ///< compares all members
};

/// A lease that was still open when later steps were acquired, on a weight that leaves the device: steps behind the one until which a plan
/// leaves it alone (ScheduleBuilder::live_until).
struct HeldLease {
    StorageId storage = no_storage;    ///< the first one that it covered; no_storage: there was no such lease
    std::uint32_t step = UINT32_MAX;   ///< the last step that it covered
    std::uint32_t until = UINT32_MAX;  ///< the last step that was acquired before it ended
};

/// The state of a Residency, in device bytes as the driver counts them.
struct Statistics {
    Counters total;                          ///< since construction
    Counters last_pass;                      ///< of the last pass that ended
    std::uint64_t budget_bytes = 0;          ///< the cap in force
    std::uint64_t floor_bytes = 0;           ///< the smallest budget that works
    std::uint64_t held_bytes = 0;            ///< what the library holds of the device: pool and residents
    std::uint64_t pending_bytes = 0;         ///< of these, above the budget: see BudgetChange
    std::uint64_t requested_bytes = 0;       ///< of the held bytes, occupied by storages now
    std::uint64_t peak_requested_bytes = 0;  ///< the most of these at any time
    std::uint64_t resident_bytes = 0;        ///< of storages that are never evicted by their placement
    std::uint64_t host_read_bytes = 0;       ///< storages that kernels read from host memory
    /// Where the order and the compute times of the steps come from. A guessed order that is wrong costs traffic until it is learned.
    LearningReport learning;
    /// The number of steps that the next pass is expected to have: fewer than the schedule if the last passes ended earlier.
    std::uint32_t pass_steps = 0;
    bool streaming = true;  ///< false: everything fits, and nothing is evicted
    /// The time of the last pass that was timed and is complete, from its first to its last operation on its stream. While everything is
    /// resident, the first sixteen passes in a row are timed, then one in sixteen.
    std::optional<std::chrono::nanoseconds> pass_time;
    /// The time per pass that no plan of copies beats; set for planned compositions.
    std::optional<std::chrono::nanoseconds> bound;

    StallStatistics stalls;      ///< with Options::time_stalls
    std::vector<LinkUse> links;  ///< with transport::Links: the device's own, then the neighbours' links and memory
    /// The lease of the last ended pass that was open over the most steps over which it should not be open. If a plan is in force, such a
    /// lease stops the copies whose memory it keeps, and all copies behind them.
    HeldLease held_lease;

    /// pass_time / bound − 1.
    [[nodiscard]] std::optional<double> regret() const noexcept {
        if (!pass_time || !bound || bound->count() == 0) { return std::nullopt; }
        return static_cast<double>(pass_time->count()) / static_cast<double>(bound->count()) - 1.0;
    }
};

}}  // namespace residency::RESIDENCY_ABI
