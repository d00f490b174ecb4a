// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/online/send_copies.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/core/online/storage_cache.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The online decider's demand misses: brings the storages that an access needs and that are absent, all of them in one transfer or
/// none. Leased storages are never evicted for it. Those of the access are only where the pool is so fragmented that nothing else helps:
/// then all of them leave, and come back into an empty pool. Not thread safe.
template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
class StorageMissHandler {
public:
    using Device = typename Pool::Device;

    /// Allocates; fetch() does not. What is passed outlives this object.
    void attach(StorageCache<Evictor, Pool>& cache, Speculation<Device>& speculation) {
        cache_ = &cache;
        speculation_ = &speculation;
        const std::size_t storages = cache.allocations().bytes().size();
        wanted_in_.assign(storages, 0);
        copies_.reserve(storages);
    }
    /// Whether a graph of the caller holds today's addresses: then no storage may leave.
    void set_captured_outside(bool is_captured) noexcept { is_captured_outside_ = is_captured; }

    /// Blocks only where nothing that may leave is left, or where storages have to leave for the first time; `start_over()` then tells the
    /// policies to begin anew. `missing` is a part of `wanted`: it is sorted, and storages of `wanted` that have to leave and come back are
    /// added. Precondition: the pool is open. Errors: budget, with the numbers; out_of_memory; or the device's own.
    template <class StartOver>
    [[nodiscard]] Status fetch(std::vector<StorageId>& missing, std::span<const StorageId> wanted,
                               const BudgetLimits& limits, StepIndex now, const StartOver& start_over);

private:
    /// Gives memory to everything in `missing`. False: the pool has no room.
    template <class StartOver>
    [[nodiscard]] Result<bool> place_all(std::span<const StorageId> missing, StepIndex now,
                                         const StartOver& start_over);
    /// Blocks. Empties the pool of everything but leased storages, and places all of `wanted` anew: a step fits into an empty pool
    /// (MemoryPool, call 4). False: the pool has no room beside what is leased.
    template <class StartOver>
    [[nodiscard]] Result<bool> place_all_anew(std::vector<StorageId>& missing, std::span<const StorageId> wanted,
                                              StepIndex now, const StartOver& start_over);
    /// Whether the cap holds all of `wanted` beside what is leased, if nothing fragments.
    [[nodiscard]] bool fits_beside_leases(std::span<const StorageId> wanted) const {
        const Asked asked = count(wanted);
        return asked.bytes + asked.held_bytes <= cache_->cap_bytes();
    }
    /// What an access takes, and what leases hold beside it.
    struct Asked {
        std::uint64_t bytes, held_bytes;
    };
    [[nodiscard]] Asked count(std::span<const StorageId> wanted) const {
        Asked asked{0, allocations().leased_bytes()};
        for (const StorageId id : wanted) {
            const StorageState& state = allocations().state(id);
            if (state.placement != Placement::streamed) { continue; }
            asked.bytes += allocations().occupied_bytes(id);
            if (state.leases > 0) { asked.held_bytes -= allocations().occupied_bytes(id); }
        }
        return asked;
    }
    /// So many storages of an access, whichever they are, have room together beside what is leased, if nothing fragments.
    [[nodiscard]] std::size_t most_at_once(std::span<const StorageId> wanted) const;
    /// The largest first.
    void sort_by_size(std::vector<StorageId>& storages) const {
        residency::detail::sort(storages, [&](StorageId a, StorageId b) {
            const std::uint64_t left = allocations().bytes(a);
            const std::uint64_t right = allocations().bytes(b);
            return left != right ? left > right : index(a) < index(b);
        });
    }
    [[nodiscard]] Result<bool> place(StorageId id, StepIndex now) {
        const auto may_leave = [&](StorageId victim) {
            return allocations().state(victim).leases == 0 && wanted_in_[victim] != misses_;
        };
        return cache_->place(id, now, may_leave, [] {});
    }
    /// Blocks. The pool has no room although the cap holds everything, as a pool that fragments may: from here on storages leave.
    [[nodiscard]] Status start_streaming(StorageId id);
    /// Blocks until the memory of what has left is free. Called when nothing that may leave is left.
    [[nodiscard]] Status recover();
    [[nodiscard]] Error no_room(std::span<const StorageId> missing, std::span<const StorageId> wanted,
                                const BudgetLimits& limits) const;

    [[nodiscard]] StorageAllocations<Pool>& allocations() const noexcept { return cache_->allocations(); }
    [[nodiscard]] const DeciderContext<Device>& context() const noexcept { return cache_->context(); }

    StorageCache<Evictor, Pool>* cache_ = nullptr;  // the decider's
    Speculation<Device>* speculation_ = nullptr;    // the decider's
    bool is_captured_outside_ = false;
    std::vector<transport::Fetch> copies_;          // of one access
    IdVector<StorageId, std::uint64_t> wanted_in_;  // by storage: the last miss whose access asked for it
    std::uint64_t misses_ = 0;                      // accesses that missed
};

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class StartOver>
Status StorageMissHandler<Evictor, Pool>::fetch(std::vector<StorageId>& missing, std::span<const StorageId> wanted,
                                                const BudgetLimits& limits, StepIndex now,
                                                const StartOver& start_over) {
    ++misses_;
    for (const StorageId id : wanted) { wanted_in_[id] = misses_; }
    sort_by_size(missing);
    copies_.clear();
    cache_->commit_placements();
    auto placed = place_all(missing, now, start_over);
    if constexpr (pool::RecoverablePool<Pool>) {
        if (placed && !*placed && fits_beside_leases(wanted)) {
            placed = place_all_anew(missing, wanted, now, start_over);
        }
    }
    Status done = !placed ? Status{placed.error()} : *placed ? Status{} : Status{no_room(missing, wanted, limits)};
    if (done) {
        const auto arrival = send_copies(context(), copies_);
        if (!arrival) { done = arrival.error(); }
    }
    if (!done) {
        cache_->roll_back_placements();
        return done;
    }
    for (const StorageId id : missing) { speculation_->stop(id); }
    return done;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class StartOver>
Result<bool> StorageMissHandler<Evictor, Pool>::place_all(std::span<const StorageId> missing, StepIndex now,
                                                          const StartOver& start_over) {
    for (const StorageId id : missing) {
        if (allocations().state(id).address != nullptr) {
            copies_.push_back(allocations().copy_of(id, speculation_->sent_bytes(id)));
            continue;
        }
        auto placed = place(id, now);
        if (placed && !*placed && cache_->everything_fits()) {
            auto started = start_streaming(id);
            if (started) { started = start_over(); }
            if (!started) { return started.error(); }
            placed = place(id, now);
        }
        if (placed && !*placed) {
            if (auto recovered = recover(); !recovered) { return recovered.error(); }
            placed = place(id, now);
        }
        if (!placed || !*placed) { return placed; }
        copies_.push_back(allocations().copy_of(id));
    }
    return true;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class StartOver>
Result<bool> StorageMissHandler<Evictor, Pool>::place_all_anew(std::vector<StorageId>& missing,
                                                               std::span<const StorageId> wanted, StepIndex now,
                                                               const StartOver& start_over) {
    copies_.clear();
    cache_->roll_back_placements();
    for (const StorageId id : wanted) {
        StorageState& state = allocations().state(id);
        if (!allocations().is_allocated(id) || state.leases > 0) { continue; }
        if (auto gone = cache_->evict(id); !gone) { return gone.error(); }
        if (!state.demand_missed) { missing.push_back(id); }
        state.demand_missed = true;
    }
    sort_by_size(missing);
    if (auto recovered = recover(); !recovered) { return recovered.error(); }
    return place_all(missing, now, start_over);
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageMissHandler<Evictor, Pool>::start_streaming(StorageId id) {
    if (is_captured_outside_) {
        return Error{ErrorKind::out_of_memory,
                     "no room for " + context().catalog.describe(id) +
                         " although the budget holds everything, and nothing may leave: a graph that was captured by "
                         "the caller holds addresses; set the budget anew, and capture again"};
    }
    if (auto drained = context().copy_scheduler->drain_device(); !drained) { return drained; }
    cache_->set_everything_fits(false);
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageMissHandler<Evictor, Pool>::recover() {
    auto done = context().copy_scheduler->drain();
    if constexpr (pool::RecoverablePool<Pool>) {
        if (done) { done = allocations().pool().recover(); }
    }
    return done;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
std::size_t StorageMissHandler<Evictor, Pool>::most_at_once(std::span<const StorageId> wanted) const {
    std::vector<StorageId> largest{wanted.begin(), wanted.end()};
    sort_by_size(largest);
    const std::uint64_t held = count(wanted).held_bytes, cap = cache_->cap_bytes();
    std::uint64_t rest = cap > held ? cap - held : 0;
    std::size_t most = 0;
    for (; most < largest.size() && allocations().occupied_bytes(largest[most]) <= rest; ++most) {
        rest -= allocations().occupied_bytes(largest[most]);
    }
    return most;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Error StorageMissHandler<Evictor, Pool>::no_room(std::span<const StorageId> missing, std::span<const StorageId> wanted,
                                                 const BudgetLimits& limits) const {
    using residency::detail::in_bytes;
    const auto refused =
        std::find_if(missing.begin(), missing.end(), [&](StorageId id) { return allocations().is_absent(id); });
    const std::uint64_t cap = cache_->cap_bytes();
    const Asked asked = count(wanted);
    const std::size_t most = most_at_once(wanted);
    std::string message = "no room for " + context().catalog.describe(*refused) + ": " + in_bytes(asked.bytes) +
                          " are asked for together, " + in_bytes(asked.held_bytes) +
                          " are leased beside them, the streamed share of the budget is " + in_bytes(cap) + "; ";
    if (asked.bytes + asked.held_bytes <= cap) {
        if (const auto memory = context().device->memory()) {
            message +=
                memory->free_bytes >= asked.bytes
                    ? "they fit, but not in the pieces that the pool takes memory in: a larger budget, or the "
                      "pool Slab where sizes are equal, has room; "
                    : "the device has " + in_bytes(memory->free_bytes) + " free beside it: others may hold the rest; ";
        }
    }
    if (most > 0 && most < wanted.size()) {
        message += "ask in groups of at most " + std::to_string(most) + (most == 1 ? " storage, " : " storages, ");
    }
    message +=
        "end leases before, or say how many storages are asked for together, so that the budget is checked when "
        "the Residency is made: policies.storages_at_once";
    return Error{ErrorKind::budget, std::move(message),
                 BudgetNumbers{asked.bytes, cap, asked.held_bytes, limits.floor_bytes, UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::core
