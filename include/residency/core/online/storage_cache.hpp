// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/core/online/storage_allocations.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The streamed storages on the device, and who leaves for whom. While the budget does not hold everything, the evictor knows exactly
/// the storages that have an allocation; otherwise nothing is evicted, and it is not asked. Not thread safe.
template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
class StorageCache {
public:
    using Device = typename Pool::Device;
    /// Steps for which a storage without a predicted step is kept from being evicted for another prediction.
    static constexpr StepIndex prediction_lifetime = 2;

    StorageCache(Evictor evictor, typename Pool::Config config)
        : evictor_{std::move(evictor)}, allocations_{std::move(config)} {}

    /// Allocates on the host; evictions and placements do not. What is passed outlives this object. `speculation` is told which storages
    /// leave, and names the first victims; null: there is none.
    void attach(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                Speculation<Device>* speculation) {
        context_ = &context;
        speculation_ = speculation;
        allocations_.attach(context, requirements, speculation);
        placed_.reserve(context.states.size());
    }
    /// Blocks while the device allocates. Opens the pool; everything fits from `ceiling_bytes` on.
    [[nodiscard]] Status open(std::uint64_t cap_bytes, std::uint64_t ceiling_bytes) {
        set_cap(cap_bytes, ceiling_bytes);
        return allocations_.open(cap_bytes);
    }
    /// Notes another cap of the pool. The evictor is told by rank_again().
    void set_cap(std::uint64_t cap_bytes, std::uint64_t ceiling_bytes) noexcept {
        cap_ = cap_bytes;
        everything_fits_ = cap_bytes >= ceiling_bytes;
    }
    [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return cap_; }
    /// Whether nothing has to leave.
    [[nodiscard]] bool everything_fits() const noexcept { return everything_fits_; }
    void set_everything_fits(bool fits) noexcept { everything_fits_ = fits; }

    /// The evictor starts over, and is told what is on the device, by id.
    [[nodiscard]] Status rank_again(StepIndex now) {
        if (auto attached = attach_evictor(); !attached) { return attached; }
        allocations_.for_each_allocated([&](StorageId id) { evictor_.inserted(id, now); });
        return {};
    }
    /// As above, telling the evictor of the storages in the order of `order`, which names everything that is on the device.
    [[nodiscard]] Status rank_again(std::span<const StorageId> order, StepIndex now) {
        if (auto attached = attach_evictor(); !attached) { return attached; }
        for (const StorageId id : order) {
            if (allocations_.is_allocated(id)) { evictor_.inserted(id, now); }
        }
        return {};
    }
    /// Takes every storage from the evictor, in the order in which they would leave. rank_again() has to follow.
    void take_ranking(StepIndex now, std::vector<StorageId>& order) {
        order.clear();
        while (const auto next = evictor_.victim(now, evict::AllMayLeave{})) {
            order.push_back(*next);
            evictor_.removed(*next);
        }
    }
    /// An access of storages that are on the device or on their way.
    void used(std::span<const StorageId> storages, StepIndex now) noexcept {
        if (everything_fits_) { return; }
        for (const StorageId id : storages) {
            if (allocations_.is_allocated(id)) { evictor_.used(id, now); }
        }
    }

    /// Gives a storage an allocation, evicting others as needed: mispredicted ones first, then by the evictor's order. `before_wait()` is
    /// called before the copy stream is made to wait for a use. False: nothing that may leave is left. Does not block.
    template <class MayLeave, class BeforeWait>
    [[nodiscard]] Result<bool> place(StorageId id, StepIndex now, const MayLeave& may_leave,
                                     const BeforeWait& before_wait);
    /// Gives a storage an allocation ahead of its use at `needed_by`, evicting only what is needed later. Best effort: false if there is
    /// no room, or the device failed.
    template <class BeforeWait>
    [[nodiscard]] bool place_ahead(StorageId id, StepIndex needed_by, StepIndex now,
                                   const BeforeWait& before_wait) noexcept;
    /// Placements from here on can be rolled back; earlier ones cannot.
    void commit_placements() noexcept { placed_.clear(); }
    /// Undoes the placements since commit_placements(), to which nothing was copied. What the pool does not take back stays.
    void roll_back_placements() noexcept;

    [[nodiscard]] Status evict(StorageId id) {
        auto gone = allocations_.evict(id);
        if (gone && !everything_fits_) { evictor_.removed(id); }
        return gone;
    }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex now, const MayLeave& may_leave) noexcept {
        return evictor_.victim(now, may_leave);
    }

    [[nodiscard]] StorageAllocations<Pool>& allocations() noexcept { return allocations_; }
    [[nodiscard]] const StorageAllocations<Pool>& allocations() const noexcept { return allocations_; }
    [[nodiscard]] const DeciderContext<Device>& context() const noexcept { return *context_; }
    [[nodiscard]] Evictor& evictor() noexcept { return evictor_; }

private:
    [[nodiscard]] Status attach_evictor() {
        return evictor_.attach({allocations_.occupied_bytes(), cap_, context_->order, context_->groups});
    }
    [[nodiscard]] bool may_leave_ahead(StorageId id, StepIndex needed_by, StepIndex now) const noexcept;

    [[no_unique_address]] Evictor evictor_;
    StorageAllocations<Pool> allocations_;
    const DeciderContext<Device>* context_ = nullptr;  // the decider's
    Speculation<Device>* speculation_ = nullptr;       // the decider's; null: none
    std::uint64_t cap_ = 0;                            // bytes
    bool everything_fits_ = false;
    std::vector<StorageId> placed_;  // since commit_placements()
};

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class MayLeave, class BeforeWait>
Result<bool> StorageCache<Evictor, Pool>::place(StorageId id, StepIndex now, const MayLeave& may_leave,
                                                const BeforeWait& before_wait) {
    for (;;) {
        auto allocated = allocations_.allocate(id);
        if (!allocated) { return allocated; }
        if (*allocated) {
            placed_.push_back(id);
            if (!everything_fits_) { evictor_.inserted(id, now); }
            return true;
        }
        if (everything_fits_) { return false; }
        auto victim = speculation_ != nullptr ? speculation_->victim(may_leave) : std::optional<StorageId>{};
        if (!victim) { victim = evictor_.victim(now, may_leave); }
        if (!victim) { return false; }
        if (!context_->copy_scheduler->is_free_to_overwrite(*victim)) { before_wait(); }
        if (auto gone = evict(*victim); !gone) { return gone.error(); }
    }
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class BeforeWait>
bool StorageCache<Evictor, Pool>::place_ahead(StorageId id, StepIndex needed_by, StepIndex now,
                                              const BeforeWait& before_wait) noexcept {
    const auto may_leave = [&](StorageId victim) { return may_leave_ahead(victim, needed_by, now); };
    const auto placed = place(id, now, may_leave, before_wait);
    if (!placed || !*placed) { return false; }
    StorageState& state = allocations_.state(id);
    state.prefetched = true;
    state.needed_by = needed_by == UseOrder::never ? now + prediction_lifetime : needed_by;
    return true;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
void StorageCache<Evictor, Pool>::roll_back_placements() noexcept {
    for (const StorageId id : placed_) {
        if (allocations_.take_back(id) && !everything_fits_) { evictor_.removed(id); }
    }
    placed_.clear();
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
bool StorageCache<Evictor, Pool>::may_leave_ahead(StorageId id, StepIndex needed_by, StepIndex now) const noexcept {
    const StorageState& state = allocations_.state(id);
    if (state.leases > 0 || state.partially_resident) { return false; }  // its copies are about to be sent
    if constexpr (requires { evictor_.stays(id); }) {
        if (evictor_.stays(id)) { return false; }
    }
    if (context_->order == nullptr || needed_by == UseOrder::never) {
        return !state.prefetched || state.needed_by < now;
    }
    return context_->order->next_use(id, now) > needed_by;
}

}}}  // namespace residency::RESIDENCY_ABI::core
