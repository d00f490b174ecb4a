// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/core/decider.hpp"
#include "residency/core/send_copies.hpp"
#include "residency/core/speculation.hpp"
#include "residency/core/storage_cache.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/id_vector.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The online decider's demand misses: brings the storages that an access needs and that are absent, all of them in one transfer or
/// none. Neither leased storages nor those of the access are evicted for it. Not thread safe.
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
    /// policies to begin anew. Sorts `missing`, a part of `wanted`. Errors: budget, with the numbers; out_of_memory; or the device's own.
    template <class StartOver>
    [[nodiscard]] Status fetch(std::vector<StorageId>& missing, std::span<const StorageId> wanted,
                               const BudgetLimits& limits, StepIndex now, const StartOver& start_over);

private:
    template <class StartOver>
    [[nodiscard]] Status place_all(std::span<const StorageId> missing, const BudgetLimits& limits, StepIndex now,
                                   const StartOver& start_over);
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
    [[nodiscard]] Error no_room(StorageId id, std::span<const StorageId> missing, const BudgetLimits& limits) const;

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
    if (!allocations().is_open()) {
        return Error{ErrorKind::out_of_memory, "the device has refused the memory of this budget: set another one"};
    }
    ++misses_;
    for (const StorageId id : wanted) { wanted_in_[id] = misses_; }
    residency::detail::sort(missing, [&](StorageId a, StorageId b) {
        const std::uint64_t left = allocations().bytes(a);
        const std::uint64_t right = allocations().bytes(b);
        return left != right ? left > right : index(a) < index(b);
    });
    copies_.clear();
    cache_->commit_placements();
    auto done = place_all(missing, limits, now, start_over);
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
Status StorageMissHandler<Evictor, Pool>::place_all(std::span<const StorageId> missing, const BudgetLimits& limits,
                                                    StepIndex now, const StartOver& start_over) {
    for (const StorageId id : missing) {
        if (allocations().state(id).address != nullptr) {
            copies_.push_back(allocations().copy_of(id, speculation_->sent_bytes(id)));
            continue;
        }
        auto placed = place(id, now);
        if (placed && !*placed && cache_->everything_fits()) {
            auto started = start_streaming(id);
            if (started) { started = start_over(); }
            if (!started) { return started; }
            placed = place(id, now);
        }
        if (placed && !*placed) {
            if (auto recovered = recover(); !recovered) { return recovered; }
            placed = place(id, now);
        }
        if (!placed) { return placed.error(); }
        if (!*placed) { return no_room(id, missing, limits); }
        copies_.push_back(allocations().copy_of(id));
    }
    return {};
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
Error StorageMissHandler<Evictor, Pool>::no_room(StorageId id, std::span<const StorageId> missing,
                                                 const BudgetLimits& limits) const {
    std::uint64_t asked = 0;
    for (const StorageId each : missing) { asked += allocations().occupied_bytes(each); }
    const std::uint64_t cap = cache_->cap_bytes();
    const std::uint64_t leased = allocations().leased_bytes();
    return Error{ErrorKind::budget,
                 "no room for " + context().catalog.describe(id) + ": " + std::to_string(asked) +
                     " bytes are asked for together, " + std::to_string(leased) +
                     " are leased, the streamed share of the budget is " + std::to_string(cap) +
                     "; end leases before, or give the budget the sum of what is leased at once",
                 BudgetNumbers{asked, cap, leased, limits.floor_bytes, UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::core
