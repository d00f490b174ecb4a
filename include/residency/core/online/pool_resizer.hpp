// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/online/storage_cache.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Changes the cap of a storage cache. A change is pending while leased storages lie in memory that the pool has to give back; no other
/// storage is ever allocated there. A pool that is not a ResizablePool is closed and opened anew instead, and never has a pending change.
/// Not thread safe.
template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
class PoolResizer {
public:
    void attach(StorageCache<Evictor, Pool>& cache) noexcept { cache_ = &cache; }

    /// Blocks. Changes the cap, and tells the evictor. Precondition: recorded uses are complete.
    ///
    /// In a ResizablePool, leased storages stay where they are, and count. Other storages leave, as many as have to, in the evictor's
    /// order. Those that stay but lie in memory to be given back are copied within the device. On failure the old cap is in force, with
    /// fewer storages on the device.
    ///
    /// With any other pool, every storage leaves. With leases open: error wrong_state, and nothing has changed. If the device refuses the
    /// memory, the old cap is in force, or, if it refuses that too, the pool is closed, to be opened under the old cap.
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now);
    /// Blocks. Every storage leaves, and the pool is closed. No lease is open. Afterwards, and after a failure, the evictor has to be told,
    /// as set_cap() does, which opens the pool again.
    [[nodiscard]] Status close_pool();
    /// Moves or evicts storages whose leases have ended and whose uses are complete, and gives back the memory that they leave. Does not
    /// block.
    [[nodiscard]] Status reclaim_pending();
    [[nodiscard]] bool is_pending() const noexcept { return is_pending_; }
    /// Moves or evicts storages that are about to be leased, where they lie in memory to be given back: passes that the host enqueues
    /// ahead would keep it there for ever. Does not block.
    [[nodiscard]] Status move_before_use(std::span<const StorageId> wanted);

private:
    [[nodiscard]] Status resize(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now);
    /// Sets the pool back to the cap from before a change that failed, if that is still to be done.
    [[nodiscard]] Status restore_cap() {
        if (!cap_to_restore_) { return {}; }
        auto restored = cache_->pool().resize(*cap_to_restore_, cache_->places());
        if (restored) { cap_to_restore_.reset(); }
        return restored;
    }
    [[nodiscard]] Status reopen(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now);
    /// Blocks. Evicts everything, without a word to the evictor.
    [[nodiscard]] Status evict_all();
    /// Blocks. Evicts what is too much for the new cap, moves what has to move, and gives the rest of the memory back.
    [[nodiscard]] Status make_room(StepIndex now);
    [[nodiscard]] Status move_or_evict(StorageId id) {
        const auto moved = move_storage(id);
        if (!moved) { return moved.error(); }
        return *moved ? Status{} : cache_->evict(id);
    }
    [[nodiscard]] Result<bool> move_storage(StorageId id) {
        auto moved = cache_->move_storage(id);
        if (moved && *moved) { moved_.push_back(id); }
        return moved;
    }
    /// Blocks if the pool has no room before it gives memory back. Otherwise as move_storage().
    [[nodiscard]] Result<bool> move_or_wait(StorageId id);
    /// Records the arrival of what was moved, and the departure of what has left.
    [[nodiscard]] Status record_moves();

    [[nodiscard]] auto& copy_scheduler() noexcept { return *cache_->context().copy_scheduler; }
    [[nodiscard]] bool is_leased(StorageId id) noexcept { return cache_->state(id).leases > 0; }

    StorageCache<Evictor, Pool>* cache_ = nullptr;  // the decider's
    bool is_pending_ = false;
    std::optional<std::uint64_t> cap_to_restore_;  // bytes
    EventPoint departure_ = 0;                     // of the copy stream: what had to leave memory has left it
    std::vector<StorageId> ranking_;               // during a change: the evictor's order, the first to leave first
    std::vector<StorageId> moved_;                 // since record_moves()
};

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::set_cap(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now) {
    ranking_.clear();
    Status changed;
    if (!cache_->is_open()) {
        const std::uint64_t cap_before = cache_->cap_bytes();
        changed = cache_->open(cap_bytes, limits.ceiling_bytes);
        if (!changed) { cache_->set_cap(cap_before, limits.ceiling_bytes); }
    } else if constexpr (pool::ResizablePool<Pool>) {
        changed = resize(cap_bytes, limits, now);
    } else {
        changed = reopen(cap_bytes, limits, now);
    }
    auto ranked = ranking_.empty() ? cache_->rank_again(now) : cache_->rank_again(ranking_, now);
    return ranked ? std::move(changed) : std::move(ranked);
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::reclaim_pending() {
    if constexpr (pool::ResizablePool<Pool>) {
        if (!is_pending_ || !cache_->is_open()) { return {}; }
        if (auto restored = restore_cap(); !restored) { return restored; }
        if (auto polled = copy_scheduler().poll(); !polled) { return polled; }
        bool some_stay = false;
        Status done = cache_->give_back_again();
        cache_->for_each_allocated([&](StorageId id) {
            if (!done || !cache_->must_move(id)) { return; }
            if (is_leased(id) || !copy_scheduler().is_unused(id)) {
                some_stay = true;
            } else {
                done = move_or_evict(id);
            }
        });
        if (cache_->has_departure()) {
            if (auto recorded = record_moves(); !recorded) { return recorded; }
        }
        if (!done) { return done; }
        if (!copy_scheduler().has_arrived(departure_)) { return {}; }
        if (auto committed = cache_->pool().commit_resize(); !committed) { return committed; }
        is_pending_ = some_stay;
    }
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::move_before_use(std::span<const StorageId> wanted) {
    Status done;
    for (const StorageId id : wanted) {
        if (!cache_->is_allocated(id) || is_leased(id) || !cache_->must_move(id)) { continue; }
        done = move_or_evict(id);
        if (!done) { break; }
    }
    if (!moved_.empty()) {
        if (auto recorded = record_moves(); !recorded) { return recorded; }
    }
    return done;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::resize(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now) {
    const std::uint64_t cap_before = cache_->cap_bytes();
    const bool fitted_before = cache_->everything_fits();
    if (fitted_before) {
        cache_->set_everything_fits(false);
        if (auto ranked = cache_->rank_again(now); !ranked) { return ranked; }
    }
    auto& pool = cache_->pool();
    if (auto resized = pool.resize(cap_bytes, cache_->places()); !resized) {
        cache_->set_everything_fits(fitted_before);
        return resized;
    }
    is_pending_ = true;
    cap_to_restore_.reset();
    auto made = make_room(now);
    if (made) {
        cache_->set_cap(cap_bytes, limits.ceiling_bytes);
    } else {
        static_cast<void>(record_moves().has_value());
        cap_to_restore_ = cap_before;
        static_cast<void>(restore_cap().has_value());
    }
    return made;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::reopen(std::uint64_t cap_bytes, const BudgetLimits& limits, StepIndex now) {
    if (!cache_->everything_fits()) { cache_->take_ranking(now, ranking_); }
    const std::uint64_t cap_before = cache_->cap_bytes();
    if (cap_bytes == cap_before) { return {}; }
    if (const std::uint64_t leased = cache_->leased_bytes(); leased > 0) {
        return Error{ErrorKind::wrong_state,
                     "this pool cannot change its size while weights are leased, and leases keep " +
                         residency::detail::in_bytes(leased) + ": end every lease before the budget changes"};
    }
    if (auto emptied = evict_all(); !emptied) { return emptied; }
    if (auto closed = cache_->try_close(); !closed) { return closed; }
    auto opened = cache_->open(cap_bytes, limits.ceiling_bytes);
    if (!opened) { static_cast<void>(cache_->open(cap_before, limits.ceiling_bytes).has_value()); }
    return opened;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::close_pool() {
    if (cache_->is_open()) {
        if (auto emptied = evict_all(); !emptied) { return emptied; }
    }
    if (auto closed = cache_->try_close(); !closed) { return closed; }
    is_pending_ = false;
    cap_to_restore_.reset();
    departure_ = 0;
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::evict_all() {
    Status emptied;
    cache_->for_each_allocated([&](StorageId id) {
        if (emptied) { emptied = cache_->evict_untold(id); }
    });
    return emptied ? copy_scheduler().drain() : std::move(emptied);
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::make_room(StepIndex now) {
    auto& pool = cache_->pool();
    if (auto freed = cache_->give_back_again(); !freed) { return freed; }
    while (pool.is_over()) {
        const auto victim = cache_->victim(now, [&](StorageId id) { return !is_leased(id); });
        if (!victim) { break; }
        if (auto gone = cache_->evict(*victim); !gone) { return gone; }
    }
    cache_->take_ranking(now, ranking_);
    for (const StorageId id : ranking_) {
        if (is_leased(id) || !cache_->must_move(id)) { continue; }
        const auto moved = move_or_wait(id);
        if (!moved) { return moved.error(); }
        if (*moved) { continue; }
        if (auto gone = cache_->evict_untold(id); !gone) { return gone; }
    }
    if (auto recorded = record_moves(); !recorded) { return recorded; }
    if (auto drained = copy_scheduler().drain(); !drained) { return drained; }
    if (auto committed = pool.commit_resize(); !committed) { return committed; }
    is_pending_ = cache_->has_stuck_allocation();
    cache_->for_each_allocated([&](StorageId id) { is_pending_ = is_pending_ || cache_->must_move(id); });
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Result<bool> PoolResizer<Evictor, Pool>::move_or_wait(StorageId id) {
    auto moved = move_storage(id);
    if (!moved || *moved || cache_->state(id).partially_resident) { return moved; }
    if (auto drained = copy_scheduler().drain(); !drained) { return drained.error(); }
    if (auto reclaimed = cache_->pool().reclaim(); !reclaimed) { return reclaimed.error(); }
    return move_storage(id);
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status PoolResizer<Evictor, Pool>::record_moves() {
    const auto arrival = copy_scheduler().record_arrival();
    cache_->clear_departure();
    if (!arrival) {
        if (auto drained = copy_scheduler().drain_device(); !drained) { return drained; }
    }
    departure_ = arrival ? *arrival : EventPoint{0};
    for (const StorageId id : moved_) {
        if (arrival) { cache_->state(id).arrival = *arrival; }
    }
    moved_.clear();
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
