// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/session_state.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The budget in force, from text to bytes: never below the floor, and the cap of everything that the session holds on the device, apart
/// from bytes that open leases keep after a change (pending_bytes()).
template <Device D>
class BudgetControl {
public:
    /// `reserve_bytes`: of the free device memory, what an automatic budget leaves.
    BudgetControl(SessionState<D>& shared, const BudgetSources& sources, std::uint64_t reserve_bytes)
        : shared_{&shared}, sources_{sources}, reserve_bytes_{reserve_bytes} {}

    /// Resolves the sources for the first time. `resident_bytes`: what the session itself holds.
    [[nodiscard]] Status resolve(std::uint64_t resident_bytes) {
        resident_bytes_ = held_residents_bytes_ = resident_bytes;
        floor_bytes_ = resident_bytes_ + shared_->decider->limits().floor_bytes;
        auto resolved = sources_.try_resolve(context(sources_.winner().first.kind()));
        if (!resolved) { return resolved.error(); }
        budget_ = std::move(*resolved);
        return {};
    }
    /// Another budget. The caller has drained the streams; `held_before_bytes` is what was held before that. On failure the budget in
    /// force stays. Blocks.
    [[nodiscard]] Result<BudgetChange> set(ResolvedBudget budget, std::uint64_t held_before_bytes);
    /// Another budget while nothing is held on the device: the next memory is taken under it.
    [[nodiscard]] BudgetChange set_while_suspended(ResolvedBudget budget);
    /// What the session itself holds now, in device bytes.
    void set_held_residents_bytes(std::uint64_t bytes) noexcept { held_residents_bytes_ = bytes; }
    /// What `budget` comes to now, without a change.
    [[nodiscard]] Result<ResolvedBudget> try_resolve(const Budget& budget) {
        auto now = context(budget.kind());
        if (now.free_device_bytes) { *now.free_device_bytes += held_bytes(); }
        return budget.try_resolve(now);
    }
    /// An error of the decider's, with the numbers of the whole budget: what is not the decider's share of it is held.
    [[nodiscard]] Error of_whole(const Error& error) const {
        const auto* of_share = error.detail<BudgetNumbers>();
        if (of_share == nullptr) { return error; }
        BudgetNumbers numbers = *of_share;
        if (budget_.bytes > numbers.budget_bytes) { numbers.held_bytes += budget_.bytes - numbers.budget_bytes; }
        numbers.budget_bytes = budget_.bytes;
        numbers.floor_bytes = floor_bytes_;
        return {error.kind(), error.message(), numbers};
    }
    /// Why the memory of a budget could not be taken: where others hold so much of the device that it has less, the budget's own error.
    [[nodiscard]] Error why_not_taken(const ResolvedBudget& budget, const Error& error) const;
    /// Gives back what the last change left pending, as far as leases have ended and their uses are complete. Does not block.
    [[nodiscard]] Status reclaim_pending();

    /// The floor of a schedule that was prepared; an error if the budget in force is below it.
    [[nodiscard]] Status raise_floor();
    void set_floor_bytes(std::uint64_t bytes) noexcept { floor_bytes_ = bytes; }
    [[nodiscard]] std::uint64_t floor_bytes() const noexcept { return floor_bytes_; }

    [[nodiscard]] const ResolvedBudget& budget() const noexcept { return budget_; }
    [[nodiscard]] ResolvedBudget take_budget() noexcept { return std::move(budget_); }
    /// The share of the decider, in bytes.
    [[nodiscard]] std::uint64_t decider_cap_bytes() const noexcept { return budget_.bytes - resident_bytes_; }
    [[nodiscard]] std::uint64_t held_bytes() const {
        return held_residents_bytes_ + shared_->decider->memory_use().held_bytes;
    }
    [[nodiscard]] std::uint64_t pending_bytes() const {
        const std::uint64_t held = held_bytes();
        return held > budget_.bytes ? held - budget_.bytes : 0;
    }
    /// Tells the observer, if there is one, what is held now.
    void tell_memory() const {
        if (shared_->log.is_observed()) { shared_->log.holds(held_bytes(), budget_.bytes); }
    }
    /// The last change of the budget, and what became of it so far.
    [[nodiscard]] const BudgetChange& last_change() const noexcept { return change_; }

private:
    [[nodiscard]] BudgetContext context(BudgetKind kind);
    /// The streamed bytes that the steps which set the floor read, before the pool rounds.
    [[nodiscard]] std::uint64_t floor_step_bytes(const BudgetLimits& limits) const;
    /// How many storages stream, `storages` at most, and the bytes of so many of the largest.
    [[nodiscard]] std::pair<std::uint32_t, std::uint64_t> largest(std::uint32_t storages) const;
    /// The step that sets the floor, of a schedule that the caller gave; otherwise UINT32_MAX, since the caller knows no steps.
    [[nodiscard]] std::uint32_t floor_step(const BudgetLimits& limits) const noexcept {
        return shared_->order.origin() == OrderOrigin::declared ? limits.floor_step : UINT32_MAX;
    }
    /// Which storage makes equal slots so large that most of their memory is wasted, and what to do; empty: none does.
    [[nodiscard]] std::string pool_advice(const BudgetLimits& limits) const;
    /// The largest storage that streams, of those that set the floor where that is known; no_storage: none streams.
    [[nodiscard]] StorageId largest_storage(const BudgetLimits& limits) const;

    SessionState<D>* shared_;
    BudgetSources sources_;
    std::uint64_t reserve_bytes_;
    std::uint64_t resident_bytes_ = 0;        // held by the session, not by the decider
    std::uint64_t held_residents_bytes_ = 0;  // of these, now: none while suspended
    std::uint64_t floor_bytes_ = 0;
    ResolvedBudget budget_;
    BudgetChange change_;
};

template <Device D>
Result<BudgetChange> BudgetControl<D>::set(ResolvedBudget budget, std::uint64_t held_before_bytes) {
    const Counters before = shared_->counters;
    const StepIndex now = shared_->cursor.now();
    if (auto changed = shared_->decider->set_cap(budget.bytes - resident_bytes_, now); !changed) {
        return why_not_taken(budget, changed.error());
    }
    change_ = {};
    change_.budget_before_bytes = budget_.bytes;
    change_.budget_bytes = budget.bytes;
    change_.held_before_bytes = held_before_bytes;
    change_.held_bytes = held_bytes();
    change_.evicted_bytes = shared_->counters.evicted_bytes - before.evicted_bytes;
    change_.moved_bytes = shared_->counters.moved_bytes - before.moved_bytes;
    change_.returned_at = shared_->device->host_time();
    budget_ = std::move(budget);
    change_.pending_bytes = pending_bytes();
    if (change_.is_complete()) { change_.complete_at = change_.returned_at; }
    return change_;
}

template <Device D>
Error BudgetControl<D>::why_not_taken(const ResolvedBudget& budget, const Error& error) const {
    using residency::detail::in_bytes;
    if (error.kind() != ErrorKind::out_of_memory) { return error; }
    const auto memory = shared_->device->memory();
    if (!memory) { return error; }
    const std::uint64_t held = held_bytes();
    const auto in_stock = shared_->decider->stock_free_bytes();
    const std::uint64_t free = in_stock.value_or(memory->free_bytes) + held;
    if (free >= budget.bytes) { return error; }
    std::string message = budget.text + ": the ";
    if (in_stock) {
        message += "stock of chunks has " + in_bytes(free) + " for this model";
    } else {
        message += "device has not the " + in_bytes(budget.bytes) + ", of its " + in_bytes(memory->total_bytes) +
                   " are " + in_bytes(memory->free_bytes) + " free";
        if (held > 0) { message += ", this Residency holds " + in_bytes(held); }
        message += ", and others hold " + in_bytes(memory->total_bytes - (std::min)(memory->total_bytes, free));
    }
    message += "; the smallest budget that works is " + in_bytes(floor_bytes_) +
               (in_stock                             ? residency::detail::room_in_stock()
                : floor_bytes_ <= free               ? ": give less"
                : floor_bytes_ > memory->total_bytes ? residency::detail::device_too_small(memory->total_bytes)
                                                     : ": others have to give memory back first");
    return {ErrorKind::budget, std::move(message),
            BudgetNumbers{budget.asked_bytes, budget.bytes, resident_bytes_, floor_bytes_,
                          floor_step(shared_->decider->limits()), free}};
}

template <Device D>
BudgetChange BudgetControl<D>::set_while_suspended(ResolvedBudget budget) {
    change_ = {};
    change_.budget_before_bytes = budget_.bytes;
    change_.budget_bytes = budget.bytes;
    change_.held_before_bytes = change_.held_bytes = held_bytes();
    change_.returned_at = shared_->device->host_time();
    change_.complete_at = change_.returned_at;
    budget_ = std::move(budget);
    return change_;
}

template <Device D>
Status BudgetControl<D>::reclaim_pending() {
    if (!shared_->decider->has_pending() && change_.is_complete()) { return {}; }
    auto reclaimed = shared_->decider->reclaim_pending();
    const std::uint64_t still = pending_bytes();
    if (change_.pending_bytes > still) {
        change_.given_back_later_bytes += change_.pending_bytes - still;
        change_.pending_bytes = still;
        if (still == 0) { change_.complete_at = shared_->device->host_time(); }
    }
    return reclaimed;
}

template <Device D>
Status BudgetControl<D>::raise_floor() {
    const BudgetLimits limits = shared_->decider->limits();
    const std::uint64_t floor = resident_bytes_ + limits.floor_bytes;
    if (floor > budget_.bytes) {
        std::string message = "the budget of " + residency::detail::in_bytes(budget_.bytes) + " is below the " +
                              residency::detail::in_bytes(floor) + " that this schedule needs";
        if (floor_step(limits) != UINT32_MAX) {
            message += ", whose step " + std::to_string(limits.floor_step) + " needs the most at once";
        } else if (limits.floor_storages > 1) {
            const auto [storages, bytes] = largest(limits.floor_storages);
            message += ": the " + std::to_string(storages) + " largest storages (policies.storages_at_once) have " +
                       residency::detail::in_bytes(bytes) + ", before the pool rounds";
        }
        message += residency::detail::leases_in_words(limits.leases_at_once);
        if (const std::string advice = pool_advice(limits); !advice.empty()) { message += "; " + advice; }
        return Error{ErrorKind::budget, message + "; raise the budget first",
                     BudgetNumbers{floor, budget_.bytes, resident_bytes_, floor, floor_step(limits)}};
    }
    floor_bytes_ = floor;
    return {};
}

template <Device D>
std::uint64_t BudgetControl<D>::floor_step_bytes(const BudgetLimits& limits) const {
    const Schedule& schedule = shared_->schedule();
    std::vector<StorageId> storages;
    for (std::uint32_t i = limits.floor_step; i < schedule.size() && i - limits.floor_step < limits.floor_steps; ++i) {
        const auto& of_step = schedule[i].storages;
        storages.insert(storages.end(), of_step.begin(), of_step.end());
    }
    residency::detail::sort(storages);
    storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
    std::uint64_t bytes = 0;
    for (const StorageId id : storages) {
        const Storage& storage = shared_->catalog.storage(id);
        if (storage.placement == Placement::streamed) { bytes += storage.bytes; }
    }
    return bytes;
}

template <Device D>
std::pair<std::uint32_t, std::uint64_t> BudgetControl<D>::largest(std::uint32_t storages) const {
    std::vector<std::uint64_t> sizes;
    for (const Storage& storage : shared_->catalog.storages()) {
        if (storage.placement == Placement::streamed && storage.bytes > 0) { sizes.push_back(storage.bytes); }
    }
    residency::detail::sort(sizes, std::greater<>{});
    sizes.resize((std::min<std::size_t>)(sizes.size(), storages));
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : sizes) { sum += bytes; }
    return {static_cast<std::uint32_t>(sizes.size()), sum};
}

template <Device D>
std::string BudgetControl<D>::pool_advice(const BudgetLimits& limits) const {
    const Catalog& catalog = shared_->catalog;
    StorageId largest = no_storage;
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const Storage& storage = catalog.storage(StorageId{i});
        if (storage.placement != Placement::streamed || storage.bytes > limits.wasteful_slot_bytes) { continue; }
        if (largest == no_storage || storage.bytes > catalog.storage(largest).bytes) { largest = StorageId{i}; }
    }
    if (limits.wasteful_slot_bytes == 0 || largest == no_storage) { return {}; }
    return "every slot of the pool is as large as " + catalog.describe(largest) + ", " +
           residency::detail::in_bytes(limits.wasteful_slot_bytes) +
           ", and most storages are much smaller: place that one resident or host, or take another pool";
}

template <Device D>
StorageId BudgetControl<D>::largest_storage(const BudgetLimits& limits) const {
    const Catalog& catalog = shared_->catalog;
    StorageId largest = no_storage;
    const auto take = [&](StorageId id) {
        const Storage& storage = catalog.storage(id);
        if (storage.placement != Placement::streamed) { return; }
        if (largest == no_storage || storage.bytes > catalog.storage(largest).bytes) { largest = id; }
    };
    if (limits.floor_step < shared_->schedule().size()) {
        for (const StorageId id : shared_->schedule().storages(limits.floor_step)) { take(id); }
    } else {
        for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) { take(StorageId{i}); }
    }
    return largest;
}

template <Device D>
BudgetContext BudgetControl<D>::context(BudgetKind kind) {
    const BudgetLimits limits = shared_->decider->limits();
    const Schedule& schedule = shared_->schedule();
    BudgetContext result;
    result.streamed_bytes = shared_->catalog.streamed_bytes();
    result.resident_bytes = shared_->catalog.resident_bytes();
    result.everything_bytes = resident_bytes_ + limits.ceiling_bytes;
    result.resident_from_bytes = resident_bytes_ + limits.resident_from_bytes;
    result.floor_bytes = floor_bytes_;
    result.floor_step = floor_step(limits);
    if (result.floor_step < schedule.size()) {
        result.floor_step_name = schedule[limits.floor_step].name;
        result.floor_step_bytes = floor_step_bytes(limits);
    } else if (limits.floor_storages > 1) {
        std::tie(result.floor_storages, result.floor_step_bytes) = largest(limits.floor_storages);
    } else if (const StorageId largest = largest_storage(limits); largest != no_storage) {
        const auto weights = shared_->catalog.weights_of(largest);
        if (!weights.empty() && limits.floor_steps == 1) {
            result.floor_weight = shared_->catalog.weight(weights.front()).name;
        }
        result.floor_step_bytes =
            limits.floor_step < schedule.size() ? floor_step_bytes(limits) : shared_->catalog.storage(largest).bytes;
    }
    if (kind == BudgetKind::automatic || kind == BudgetKind::percent_of_free) {
        if (const auto memory = shared_->device->memory()) {
            result.free_device_bytes = memory->free_bytes;
            result.device_bytes = memory->total_bytes;
        }
    }
    result.leases_at_once = limits.leases_at_once;
    result.has_packed_bytes = shared_->decider->unpacks();
    result.pool_advice = pool_advice(limits);
    result.reserve_bytes = reserve_bytes_;
    if (const auto in_stock = shared_->decider->stock_free_bytes(); in_stock && result.free_device_bytes) {
        result.free_device_bytes = *in_stock;
        result.is_free_in_stock = true;
        result.reserve_bytes = 0;  // the stock has nobody else's memory
    }
    return result;
}

}}}  // namespace residency::RESIDENCY_ABI::core
