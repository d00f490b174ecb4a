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
#include "residency/core/measure/statistics.hpp"
#include "residency/core/online/pool_resizer.hpp"
#include "residency/core/online/prefetch_ahead.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/core/online/storage_cache.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides access by access, for whole storages: the evictor says who leaves, the prefetcher what comes ahead of its use, and the pool
/// where it lies. Fetches what an access misses, all of it or nothing, and joins a cache of storages, the change of its cap, and what is
/// brought ahead: whole storages, or, if the prefetcher is interruptible, speculative copies. What an access asks for is never evicted for
/// what is brought ahead.
template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
class OnlineDecider final : public Decider<typename Pool::Device> {
public:
    using Device = typename Pool::Device;
    struct Config {
        Evictor evictor{};
        Prefetcher prefetcher{};
        typename Pool::Config pool{};
        /// The number of streamed storages that one acquisition asks for where no step of the schedule says it, such as the experts that a
        /// router chooses. The floor holds this number of the largest storages together. 0: the steps alone set the floor; without a
        /// schedule, the largest storage does.
        std::uint32_t storages_at_once = 0;
    };

    explicit OnlineDecider(Config config)
        : prefetcher_{std::move(config.prefetcher)},
          cache_{std::move(config.evictor), std::move(config.pool)},
          storages_at_once_{config.storages_at_once} {}

    [[nodiscard]] Status prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Requirements& requirements) override {
        requirements_ = requirements;
        limits_ = cache_.limits(device, catalog, schedule, requirements, storages_at_once_);
        return {};
    }
    [[nodiscard]] BudgetLimits limits() const noexcept override { return limits_; }
    [[nodiscard]] bool holds_residents() const noexcept override { return false; }
    [[nodiscard]] Status open(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                              std::uint64_t cap_bytes) override;
    /// Empties the pool if it is laid out for other steps.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> first_steps, StepIndex now,
                                   std::uint64_t cap_bytes) override {
        this->rests_ = false;
        context_.order = order;
        context_.first_steps = first_steps;
        auto opened = lay_out_for_steps(cap_bytes);
        auto started = start_policies_over(now);
        return opened ? std::move(started) : std::move(opened);
    }
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override;
    [[nodiscard]] Status reclaim_pending() override { return pool_resizer_.reclaim_pending(); }
    [[nodiscard]] bool has_pending() const noexcept override { return pool_resizer_.is_pending(); }
    /// Opens the pool if a change that failed, and could not be undone, left it closed. Blocks then.
    [[nodiscard]] Status repair() override;
    [[nodiscard]] Status suspend() override {
        this->rests_ = false;
        return pool_resizer_.close_pool();
    }
    [[nodiscard]] Status resume(std::uint64_t cap_bytes, StepIndex now) override { return set_cap(cap_bytes, now); }
    void close() noexcept override {
        cache_.close();
        speculation_.close();
    }
    void abandon() noexcept override { cache_.abandon(); }

    /// Resets policy history for a new one-shot pass; device contents stay.
    [[nodiscard]] Status prepare_pass(const PassStart& start) override {
        if (start.in_foreign_capture) { is_captured_outside_ = true; }
        return start.repeats_one_shot ? start_policies_over(0) : Status{};
    }
    void pass_began(StepIndex now) noexcept override {
        if constexpr (Prefetcher::interruptible) { bring_ahead(now); }
    }
    void pass_ended() noexcept override {}
    [[nodiscard]] Status expect_steps(std::uint32_t, const UseOrder& order, StepIndex now) override {
        ranking_.clear();
        if (!cache_.everything_fits()) { cache_.take_ranking(now, ranking_); }
        expected_order_ = order;
        context_.order = &expected_order_;
        ahead_.reset();
        if (auto ranked = cache_.rank_again(ranking_, now); !ranked) { return ranked; }
        return attach_prefetcher();
    }
    [[nodiscard]] Status ensure(std::span<const StorageId> wanted, const AccessPoint& access,
                                LeaseToken& token) override;
    void released(const LeaseToken& token, bool) noexcept override {
        ++ended_;
        bring_ahead(token.step_index);
    }
    void forget(const LeaseToken&) noexcept override { ++ended_; }
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept override {
        if (cache_.everything_fits() && !has_pending()) { return false; }
        for (const StorageId id : storages) {
            if (cache_.state(id).placement == Placement::streamed) { return true; }
        }
        return false;
    }
    [[nodiscard]] Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) override {
        if (!cache_.is_allocated(id)) { return {}; }
        transport::Fetch whole = cache_.copy_of(id);
        if (cache_.state(id).partially_resident) { whole.bytes = speculation_.sent_bytes(id); }
        if (whole.bytes > 0) { fetches.push_back(whole); }
        return {};
    }
    [[nodiscard]] bool is_speculative() const noexcept override { return Prefetcher::interruptible; }
    [[nodiscard]] bool send_speculative(StepIndex now) noexcept override {
        if (!Prefetcher::interruptible) { return false; }
        bring_ahead(now);
        return !has_nothing_to_bring() && speculation_.is_in_flight();
    }

    [[nodiscard]] bool is_streaming() const noexcept override { return !cache_.everything_fits(); }
    [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return cache_.cap_bytes(); }
    [[nodiscard]] MemoryUse memory_use() const override { return cache_.memory_use(); }
    [[nodiscard]] Evictor& evictor() noexcept { return cache_.evictor(); }
    [[nodiscard]] Prefetcher& prefetcher() noexcept { return prefetcher_; }

private:
    /// Both policies forget their history; the evictor is told what is on the device.
    [[nodiscard]] Status start_policies_over(StepIndex now) {
        if (auto ranked = cache_.rank_again(now); !ranked) { return ranked; }
        return attach_prefetcher();
    }
    /// Opens the pool anew if it is not laid out for the steps that were prepared last. Precondition: the streams are drained, and no
    /// lease is open.
    [[nodiscard]] Status lay_out_for_steps(std::uint64_t cap_bytes) {
        if (cache_.is_open()) {
            if (!pool::StepwisePool<Pool>) { return {}; }
            if (cache_.requirements().largest_scheduled_bytes == requirements_.largest_scheduled_bytes) { return {}; }
            if (auto closed = pool_resizer_.close_pool(); !closed) { return closed; }
        }
        cache_.set_requirements(requirements_);
        ahead_.reset();
        return cache_.open(cap_bytes, limits_.ceiling_bytes);
    }
    [[nodiscard]] Status attach_prefetcher() {
        return prefetcher_.attach({cache_.occupied_bytes(), cache_.cap_bytes(), context_.order});
    }

    [[nodiscard]] bool has_nothing_to_bring() const noexcept {
        return !cache_.is_open() || (cache_.has_all() && !speculation_.has_copy());
    }
    /// Demand misses: brings missing_, a part of `wanted`, in one transfer, or nothing. Leased storages are never evicted for it. Those of
    /// `wanted` are only where the pool is so fragmented that nothing else helps: then all of them leave, become missing_ too, and come back
    /// into an empty pool. Blocks only where nothing that may leave is left, or where storages have to leave for the first time.
    /// Errors: budget, with the numbers; out_of_memory; or the device's own. Precondition: the pool is open.
    [[nodiscard]] Status fetch_missing(std::span<const StorageId> wanted, StepIndex now);
    /// Gives memory to everything in missing_. False: the pool has no room.
    [[nodiscard]] Result<bool> place_missing(StepIndex now);
    /// Blocks. Empties the pool of everything but leased storages, and places all of `wanted` anew: a step fits into an empty pool
    /// (MemoryPool, call 4). False: the pool has no room beside what is leased.
    [[nodiscard]] Result<bool> place_anew(std::span<const StorageId> wanted, StepIndex now);
    /// Whether the cap holds all of `wanted` beside what is leased, if nothing fragments.
    [[nodiscard]] bool fits_beside_leases(std::span<const StorageId> wanted) const {
        const Asked asked = count(wanted);
        return asked.bytes + asked.held_bytes <= cache_.cap_bytes();
    }
    /// What an access takes, and what leases hold beside it.
    struct Asked {
        std::uint64_t bytes, held_bytes;
    };
    [[nodiscard]] Asked count(std::span<const StorageId> wanted) const {
        Asked asked{0, cache_.leased_bytes()};
        for (const StorageId id : wanted) {
            const StorageState& state = cache_.state(id);
            if (state.placement != Placement::streamed) { continue; }
            asked.bytes += cache_.occupied_bytes(id);
            if (state.leases > 0) { asked.held_bytes -= cache_.occupied_bytes(id); }
        }
        return asked;
    }
    /// So many storages of an access, whichever they are, have room together beside what is leased, if nothing fragments.
    [[nodiscard]] std::size_t most_at_once(std::span<const StorageId> wanted) const;
    /// The largest first.
    void sort_by_size(std::vector<StorageId>& storages) const {
        residency::detail::sort(storages, [&](StorageId a, StorageId b) {
            const std::uint64_t left = cache_.bytes(a);
            const std::uint64_t right = cache_.bytes(b);
            return left != right ? left > right : index(a) < index(b);
        });
    }
    [[nodiscard]] Result<bool> place(StorageId id, StepIndex now) {
        const auto may_leave = [&](StorageId victim) {
            return cache_.state(victim).leases == 0 && wanted_in_[victim] != misses_;
        };
        return cache_.place(id, now, may_leave, [] {});
    }
    /// Blocks. The pool has no room although the cap holds everything, as a pool that fragments may: from here on storages leave.
    [[nodiscard]] Status start_streaming(StorageId id);
    /// Blocks until the memory of what has left is free. Called when nothing that may leave is left.
    [[nodiscard]] Status recover();
    [[nodiscard]] Error no_room(std::span<const StorageId> wanted) const;
    /// Brings what the prefetcher proposes. Best effort: nothing here fails a pass. Does not block.
    void bring_ahead(StepIndex now) noexcept;
    /// Gives memory to the next predicted storage.
    [[nodiscard]] SpeculativeCopy begin_copy(StepIndex now) noexcept;

    [[no_unique_address]] Prefetcher prefetcher_;
    DeciderContext<Device> context_;
    BudgetLimits limits_;
    StorageCache<Evictor, Pool> cache_;
    PoolResizer<Evictor, Pool> pool_resizer_;
    Speculation<Device> speculation_;     // idle unless the prefetcher is interruptible
    PrefetchAhead<Evictor, Pool> ahead_;  // idle if the prefetcher is interruptible
    std::uint32_t storages_at_once_;
    pool::Requirements requirements_;   // of the schedule that was prepared last
    UseOrder expected_order_;           // where passes are expected to end before the last step
    std::vector<StorageId> ranking_;    // while that changes: the evictor's order
    std::uint64_t ended_ = 0;           // leases and tickets, those while it rests not counted
    bool is_captured_outside_ = false;  // a graph of the caller holds today's addresses: no storage may leave

    // Of one access:
    std::vector<StorageId> missing_;
    std::vector<transport::Fetch> copies_;
    IdVector<StorageId, std::uint64_t> wanted_in_;  // by storage: the last miss whose access asked for it
    std::uint64_t misses_ = 0;                      // accesses that missed
};

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::open(const DeciderContext<Device>& context,
                                                      const pool::Requirements& requirements, std::uint64_t cap_bytes) {
    context_ = context;
    missing_.reserve(context.states.size());
    copies_.reserve(context.states.size());
    wanted_in_.assign(context.states.size(), 0);
    cache_.attach(context_, requirements, Prefetcher::interruptible ? &speculation_ : nullptr);
    pool_resizer_.attach(cache_);
    ahead_.attach(cache_);
    if constexpr (Prefetcher::interruptible) { speculation_.attach(context_, cache_.bytes()); }
    if (auto opened = cache_.open(cap_bytes, limits_.ceiling_bytes); !opened) { return opened; }
    return start_policies_over(0);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::set_cap(std::uint64_t cap_bytes, StepIndex now) {
    this->rests_ = is_captured_outside_ = false;
    ahead_.reset();
    auto changed = pool_resizer_.set_cap(cap_bytes, limits_, now);
    auto attached = attach_prefetcher();
    return attached ? std::move(changed) : std::move(attached);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::repair() {
    if (cache_.is_open() || requirements_.storages.empty()) { return {}; }
    if (auto opened = lay_out_for_steps(cache_.cap_bytes()); !opened) {
        return opened.error().in("for the memory of the budget, which the device refused before");
    }
    return start_policies_over(0);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::ensure(std::span<const StorageId> wanted, const AccessPoint& access,
                                                        LeaseToken& token) {
    const StepIndex now = access.step_index;
    if (this->rests_) {
        if constexpr (Prefetcher::interruptible) { speculation_.judge(wanted, false, now); }
        for (const StorageId id : wanted) {
            cache_.state(id).demand_missed = false;
            context_.count_access(id, cache_.bytes(id));
        }
        token = LeaseToken{now, 0, 0, 0};
        return {};
    }
    if (has_pending()) {
        if (auto moved = pool_resizer_.move_before_use(wanted); !moved) { return moved; }
    }
    missing_.clear();
    for (const StorageId id : wanted) {
        StorageState& state = cache_.state(id);
        state.demand_missed = (state.address == nullptr || state.partially_resident) && cache_.bytes(id) > 0;
        if (state.demand_missed) { missing_.push_back(id); }
    }
    if constexpr (Prefetcher::interruptible) { speculation_.judge(wanted, !missing_.empty(), now); }
    if (!missing_.empty()) {
        if (auto repaired = repair(); !repaired) { return repaired; }
        if constexpr (Prefetcher::interruptible) { prefetcher_.clear(); }
        if (auto fetched = fetch_missing(wanted, now); !fetched) { return fetched; }
    }
    for (const StorageId id : wanted) { context_.count_access(id, cache_.bytes(id)); }
    cache_.used(wanted, now);
    if (!missing_.empty()) {
        // As if leased already: what is brought ahead must not take their places.
        for (const StorageId id : wanted) { ++cache_.state(id).leases; }
        bring_ahead(now);
        for (const StorageId id : wanted) { --cache_.state(id).leases; }
    }
    token = LeaseToken{now, 0, 0, 0};
    this->rests_ = cache_.everything_fits() && cache_.has_all() && !speculation_.has_copy() && !has_pending() &&
                   !cache_.lacks_bytes();
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::fetch_missing(std::span<const StorageId> wanted, StepIndex now) {
    ++misses_;
    for (const StorageId id : wanted) { wanted_in_[id] = misses_; }
    sort_by_size(missing_);
    copies_.clear();
    cache_.commit_placements();
    auto placed = place_missing(now);
    if constexpr (pool::RecoverablePool<Pool>) {
        if (placed && !*placed && fits_beside_leases(wanted)) { placed = place_anew(wanted, now); }
    }
    Status done = !placed ? Status{placed.error()} : *placed ? Status{} : Status{no_room(wanted)};
    if (done) {
        const auto sent = context_.copy_scheduler->transfer(copies_);
        if (!sent) { done = sent.error(); }
    }
    if (!done) {
        cache_.roll_back_placements();
        return done;
    }
    for (const StorageId id : missing_) {
        cache_.state(id).partially_resident = false;
        speculation_.stop(id);
    }
    return done;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Result<bool> OnlineDecider<Evictor, Prefetcher, Pool>::place_missing(StepIndex now) {
    for (const StorageId id : missing_) {
        if (cache_.state(id).address != nullptr) {
            copies_.push_back(cache_.copy_of(id, speculation_.sent_bytes(id)));
            continue;
        }
        auto placed = place(id, now);
        if (placed && !*placed && cache_.everything_fits()) {
            auto started = start_streaming(id);
            if (started) { started = start_policies_over(now); }
            if (!started) { return started.error(); }
            placed = place(id, now);
        }
        if (placed && !*placed) {
            if (auto recovered = recover(); !recovered) { return recovered.error(); }
            placed = place(id, now);
        }
        if (!placed || !*placed) { return placed; }
        copies_.push_back(cache_.copy_of(id));
    }
    return true;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Result<bool> OnlineDecider<Evictor, Prefetcher, Pool>::place_anew(std::span<const StorageId> wanted, StepIndex now) {
    copies_.clear();
    cache_.roll_back_placements();
    for (const StorageId id : wanted) {
        StorageState& state = cache_.state(id);
        if (!cache_.is_allocated(id) || state.leases > 0) { continue; }
        if (auto gone = cache_.evict(id); !gone) { return gone.error(); }
        if (!state.demand_missed) { missing_.push_back(id); }
        state.demand_missed = true;
    }
    sort_by_size(missing_);
    if (auto recovered = recover(); !recovered) { return recovered.error(); }
    return place_missing(now);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::start_streaming(StorageId id) {
    if (is_captured_outside_) {
        return Error{ErrorKind::out_of_memory,
                     "no room for " + context_.catalog.describe(id) +
                         " although the budget holds everything, and nothing may leave: a graph that was captured by "
                         "the caller holds addresses; set the budget anew, and capture again"};
    }
    if (auto drained = context_.copy_scheduler->drain_device(); !drained) { return drained; }
    cache_.set_everything_fits(false);
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::recover() {
    auto done = context_.copy_scheduler->drain();
    if constexpr (pool::RecoverablePool<Pool>) {
        if (done) { done = cache_.pool().recover(); }
    }
    return done;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
std::size_t OnlineDecider<Evictor, Prefetcher, Pool>::most_at_once(std::span<const StorageId> wanted) const {
    std::vector<StorageId> largest{wanted.begin(), wanted.end()};
    sort_by_size(largest);
    const std::uint64_t held = count(wanted).held_bytes, cap = cache_.cap_bytes();
    std::uint64_t rest = cap > held ? cap - held : 0;
    std::size_t most = 0;
    for (; most < largest.size() && cache_.occupied_bytes(largest[most]) <= rest; ++most) {
        rest -= cache_.occupied_bytes(largest[most]);
    }
    return most;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Error OnlineDecider<Evictor, Prefetcher, Pool>::no_room(std::span<const StorageId> wanted) const {
    using residency::detail::in_bytes;
    const auto refused =
        std::find_if(missing_.begin(), missing_.end(), [&](StorageId id) { return cache_.is_absent(id); });
    const std::uint64_t cap = cache_.cap_bytes();
    const Asked asked = count(wanted);
    const std::size_t most = most_at_once(wanted);
    std::string message = "no room for " + context_.catalog.describe(*refused) + ": " + in_bytes(asked.bytes) +
                          " are asked for together, " + in_bytes(asked.held_bytes) +
                          " are leased beside them, the streamed share of the budget is " + in_bytes(cap) + "; ";
    if (asked.bytes + asked.held_bytes <= cap) {
        if (const auto memory = context_.device->memory()) {
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
                 BudgetNumbers{asked.bytes, cap, asked.held_bytes, limits_.floor_bytes, UINT32_MAX}};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::bring_ahead(StepIndex now) noexcept {
    if (has_nothing_to_bring()) { return; }
    if constexpr (Prefetcher::interruptible) {
        speculation_.send_pieces(
            now, !cache_.everything_fits(), [&] { return begin_copy(now); },
            [&](StorageId id) { return cache_.evict(id).has_value(); });
    } else {
        ahead_.bring(prefetcher_, ended_, now);
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
SpeculativeCopy OnlineDecider<Evictor, Prefetcher, Pool>::begin_copy(StepIndex now) noexcept {
    SpeculativeCopy next;
    if (cache_.has_all()) { return next; }
    cache_.commit_placements();
    prefetcher_.propose(now, [&](StorageId id, StepIndex needed_by) {
        if (!cache_.is_absent(id)) { return true; }
        const std::uint64_t evictions = context_.counters->evictions;
        if (cache_.place_ahead(id, needed_by, now, [] {})) {
            next = {id, 0, context_.counters->evictions > evictions};
        } else {
            ++context_.counters->dropped_prefetches;
        }
        return false;
    });
    return next;
}

}}}  // namespace residency::RESIDENCY_ABI::core
