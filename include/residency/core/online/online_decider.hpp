// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/core/online/pool_resizer.hpp"
#include "residency/core/online/prefetch_ahead.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/core/online/storage_cache.hpp"
#include "residency/core/online/storage_miss_handler.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides access by access, for whole storages: the evictor says who leaves, the prefetcher what comes ahead of its use, and the pool
/// where it lies. Joins a cache of storages, the change of its cap, demand fetches, and what is brought ahead: whole storages, or, if the
/// prefetcher is interruptible, speculative copies. What an access asks for is never evicted for what is brought ahead.
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
        limits_ = allocations().limits(device, catalog, schedule, requirements, storages_at_once_);
        return {};
    }
    [[nodiscard]] BudgetLimits limits() const noexcept override { return limits_; }
    [[nodiscard]] bool holds_residents() const noexcept override { return false; }
    [[nodiscard]] Status open(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                              std::uint64_t cap_bytes) override;
    /// Empties the pool if it is laid out for other steps.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> groups, StepIndex now,
                                   std::uint64_t cap_bytes) override {
        context_.order = order;
        context_.groups = groups;
        auto opened = lay_out_for_steps(cap_bytes);
        auto started = start_policies_over(now);
        return opened ? std::move(started) : std::move(opened);
    }
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override;
    [[nodiscard]] Status reclaim_pending() override { return pool_resizer_.reclaim_pending(); }
    [[nodiscard]] bool has_pending() const noexcept override { return pool_resizer_.is_pending(); }
    /// Opens the pool if a change that failed, and could not be undone, left it closed. Blocks then.
    [[nodiscard]] Status repair() override;
    [[nodiscard]] Status suspend() override { return pool_resizer_.close_pool(); }
    [[nodiscard]] Status resume(std::uint64_t cap_bytes, StepIndex now) override { return set_cap(cap_bytes, now); }
    void close() noexcept override {
        allocations().close();
        speculation_.close();
    }
    void abandon() noexcept override { allocations().abandon(); }

    /// Resets policy history for a new one-shot pass; device contents stay.
    [[nodiscard]] Status prepare_pass(const PassStart& start) override {
        if (start.in_foreign_capture) { demand_.set_captured_outside(true); }
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
        --leases_;
        bring_ahead(token.step_index);
    }
    void forget(const LeaseToken&) noexcept override { --leases_; }
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept override {
        if (cache_.everything_fits() && !has_pending()) { return false; }
        for (const StorageId id : storages) {
            if (allocations().state(id).placement == Placement::streamed) { return true; }
        }
        return false;
    }
    [[nodiscard]] Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) override {
        if (!allocations().is_allocated(id)) { return {}; }
        transport::Fetch whole = allocations().copy_of(id);
        if (allocations().state(id).partially_resident) { whole.bytes = speculation_.sent_bytes(id); }
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
    [[nodiscard]] MemoryUse memory_use() const override { return allocations().memory_use(); }
    [[nodiscard]] Evictor& evictor() noexcept { return cache_.evictor(); }
    [[nodiscard]] Prefetcher& prefetcher() noexcept { return prefetcher_; }

private:
    [[nodiscard]] auto& allocations() noexcept { return cache_.allocations(); }
    [[nodiscard]] const auto& allocations() const noexcept { return cache_.allocations(); }

    /// Both policies forget their history; the evictor is told what is on the device.
    [[nodiscard]] Status start_policies_over(StepIndex now) {
        if (auto ranked = cache_.rank_again(now); !ranked) { return ranked; }
        return attach_prefetcher();
    }
    /// Opens the pool anew if it is not laid out for the steps that were prepared last. Precondition: the streams are drained, and no
    /// lease is open.
    [[nodiscard]] Status lay_out_for_steps(std::uint64_t cap_bytes) {
        if (allocations().is_open()) {
            if (!pool::StepwisePool<Pool>) { return {}; }
            if (allocations().requirements().largest_scheduled_bytes == requirements_.largest_scheduled_bytes) {
                return {};
            }
            if (auto closed = pool_resizer_.close_pool(); !closed) { return closed; }
        }
        allocations().set_requirements(requirements_);
        ahead_.reset();
        return cache_.open(cap_bytes, limits_.ceiling_bytes);
    }
    [[nodiscard]] Status attach_prefetcher() {
        return prefetcher_.attach({allocations().occupied_bytes(), cache_.cap_bytes(), context_.order});
    }

    [[nodiscard]] bool has_nothing_to_bring() const noexcept {
        return !allocations().is_open() || (allocations().has_all() && !speculation_.has_copy());
    }
    /// Brings what the prefetcher proposes. Best effort: nothing here fails a pass. Does not block.
    void bring_ahead(StepIndex now) noexcept;
    /// Gives memory to the next predicted storage.
    [[nodiscard]] SpeculativeCopy begin_copy(StepIndex now) noexcept;

    [[no_unique_address]] Prefetcher prefetcher_;
    DeciderContext<Device> context_;
    BudgetLimits limits_;
    StorageCache<Evictor, Pool> cache_;
    PoolResizer<Evictor, Pool> pool_resizer_;
    Speculation<Device> speculation_;  // idle unless the prefetcher is interruptible
    StorageMissHandler<Evictor, Pool> demand_;
    PrefetchAhead<Evictor, Pool> ahead_;  // idle if the prefetcher is interruptible
    std::uint32_t storages_at_once_;
    pool::Requirements requirements_;  // of the schedule that was prepared last
    UseOrder expected_order_;          // where passes are expected to end before the last step
    std::vector<StorageId> ranking_;   // while that changes: the evictor's order
    std::uint64_t leases_ = 0;         // open leases and tickets
    std::vector<StorageId> missing_;   // of one access
};

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::open(const DeciderContext<Device>& context,
                                                      const pool::Requirements& requirements, std::uint64_t cap_bytes) {
    context_ = context;
    missing_.reserve(context.states.size());
    cache_.attach(context_, requirements, Prefetcher::interruptible ? &speculation_ : nullptr);
    pool_resizer_.attach(cache_);
    demand_.attach(cache_, speculation_);
    ahead_.attach(cache_);
    if constexpr (Prefetcher::interruptible) { speculation_.attach(context_, allocations().bytes()); }
    if (auto opened = cache_.open(cap_bytes, limits_.ceiling_bytes); !opened) { return opened; }
    return start_policies_over(0);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::set_cap(std::uint64_t cap_bytes, StepIndex now) {
    demand_.set_captured_outside(false);
    ahead_.reset();
    auto changed = pool_resizer_.set_cap(cap_bytes, limits_, now);
    auto attached = attach_prefetcher();
    return attached ? std::move(changed) : std::move(attached);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::repair() {
    if (allocations().is_open() || requirements_.storages.empty()) { return {}; }
    if (auto opened = cache_.open(cache_.cap_bytes(), limits_.ceiling_bytes); !opened) {
        return opened.error().in("for the memory of the budget, which the device refused before");
    }
    return start_policies_over(0);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::ensure(std::span<const StorageId> wanted, const AccessPoint& access,
                                                        LeaseToken& token) {
    const StepIndex now = access.step_index;
    if (has_pending()) {
        if (auto moved = pool_resizer_.move_before_use(wanted); !moved) { return moved; }
    }
    missing_.clear();
    for (const StorageId id : wanted) {
        StorageState& state = allocations().state(id);
        state.demand_missed = (state.address == nullptr || state.partially_resident) && allocations().bytes(id) > 0;
        if (state.demand_missed) { missing_.push_back(id); }
    }
    if constexpr (Prefetcher::interruptible) { speculation_.judge(wanted, !missing_.empty(), now); }
    if (!missing_.empty()) {
        if (auto repaired = repair(); !repaired) { return repaired; }
        if constexpr (Prefetcher::interruptible) { prefetcher_.clear(); }
        const auto start_over = [&] { return start_policies_over(now); };
        if (auto fetched = demand_.fetch(missing_, wanted, limits_, now, start_over); !fetched) { return fetched; }
    }
    for (const StorageId id : wanted) { context_.count_access(id, allocations().bytes(id)); }
    cache_.used(wanted, now);
    ++leases_;
    if (!missing_.empty()) {
        // As if leased already: what is brought ahead must not take their places.
        for (const StorageId id : wanted) { ++allocations().state(id).leases; }
        bring_ahead(now);
        for (const StorageId id : wanted) { --allocations().state(id).leases; }
    }
    token = LeaseToken{now, 0, 0, 0};
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::bring_ahead(StepIndex now) noexcept {
    if (has_nothing_to_bring()) { return; }
    if constexpr (Prefetcher::interruptible) {
        speculation_.send_pieces(
            now, !cache_.everything_fits(), [&] { return begin_copy(now); },
            [&](StorageId id) { return cache_.evict(id).has_value(); });
    } else {
        ahead_.bring(prefetcher_, leases_, now);
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
SpeculativeCopy OnlineDecider<Evictor, Prefetcher, Pool>::begin_copy(StepIndex now) noexcept {
    SpeculativeCopy next;
    if (allocations().has_all()) { return next; }
    cache_.commit_placements();
    prefetcher_.propose(now, [&](StorageId id, StepIndex needed_by) {
        if (!allocations().is_absent(id)) { return true; }
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
