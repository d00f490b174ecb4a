// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The streamed storages on the device, and who leaves for whom: each has an allocation of the pool, at the address in its state, or none,
/// with a null address. While the budget does not hold everything, the evictor knows exactly the storages that have an allocation;
/// otherwise nothing is evicted, and it is not asked. Not thread safe.
template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
class StorageCache {
public:
    using Device = typename Pool::Device;
    /// Steps for which a storage without a predicted step is kept from being evicted for another prediction.
    static constexpr StepIndex prediction_lifetime = 2;

    StorageCache(Evictor evictor, typename Pool::Config config)
        : evictor_{std::move(evictor)}, pool_{std::move(config)} {}

    /// The budgets that the pool can work with under a schedule. The floor holds every step, and the largest `at_once` storages together;
    /// without a schedule at least the largest one.
    [[nodiscard]] BudgetLimits limits(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                      const pool::Requirements& requirements, std::uint32_t at_once) const;

    /// Allocates on the host; nothing else does, apart from calls that block. What is passed outlives this object. `speculation` is told
    /// which storages leave, and names the first victims; null: there is none.
    void attach(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                Speculation<Device>* speculation);

    // The pool.

    /// Blocks while the device allocates. Opens the pool, if any storage is streamed, once what failed calls have left is given back;
    /// everything fits from `ceiling_bytes` on.
    [[nodiscard]] Status open(std::uint64_t cap_bytes, std::uint64_t ceiling_bytes);
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    /// What the pool was opened for.
    [[nodiscard]] const pool::Requirements& requirements() const noexcept { return requirements_; }
    /// Sets other requirements. open() follows.
    void set_requirements(const pool::Requirements& requirements) noexcept { requirements_ = requirements; }
    /// Deallocates everything, and closes the pool. Precondition: every stream is drained.
    void close() noexcept;
    /// Closes the pool. Precondition: everything was evicted. On failure the pool is still open, or it is closed and some memory is still
    /// held: another call of this or of open() goes on from there.
    [[nodiscard]] Status try_close();
    /// The device is broken: forgets the pool without a device call.
    void abandon() noexcept {
        if (is_open_ || is_closing_) { pool_.abandon(); }
        not_taken_back_.clear();
        is_open_ = is_closing_ = false;
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

    [[nodiscard]] Pool& pool() noexcept { return pool_; }
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
    [[nodiscard]] MemoryUse memory_use() const {
        if (!is_open_ && !is_closing_) { return {0, 0, peak_requested_}; }
        return {pool_.held_bytes(), pool_.requested_bytes(), peak_requested_};
    }

    // What is where.

    [[nodiscard]] std::uint64_t bytes(StorageId id) const noexcept { return bytes_[id]; }
    [[nodiscard]] std::uint64_t occupied_bytes(StorageId id) const noexcept { return occupied_bytes_[id]; }
    /// The size of each storage.
    [[nodiscard]] const IdVector<StorageId, std::uint64_t>& bytes() const noexcept { return bytes_; }
    /// What each storage takes of the cap, in bytes.
    [[nodiscard]] const IdVector<StorageId, std::uint64_t>& occupied_bytes() const noexcept { return occupied_bytes_; }
    [[nodiscard]] StorageState& state(StorageId id) const noexcept { return context_->states[index(id)]; }
    [[nodiscard]] bool is_allocated(StorageId id) const noexcept {
        return state(id).placement == Placement::streamed && state(id).address != nullptr && bytes_[id] > 0;
    }
    /// Whether `id` could have an allocation and has none.
    [[nodiscard]] bool is_absent(StorageId id) const noexcept {
        return state(id).placement == Placement::streamed && state(id).address == nullptr && bytes_[id] > 0;
    }
    [[nodiscard]] bool has_all() const noexcept { return allocated_ == streamed_; }
    /// Whether an allocation has not all of its bytes, on the device or enqueued. Looks at all of them.
    [[nodiscard]] bool lacks_bytes() const noexcept {
        for (const StorageState& state : context_->states) {
            if (state.partially_resident) { return true; }
        }
        return false;
    }
    /// Counts allocations and deallocations.
    [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
    template <class Visit>
    void for_each_allocated(const Visit& visit) const {
        for (std::uint32_t i = 0; is_open_ && i < context_->states.size(); ++i) {
            if (is_allocated(StorageId{i})) { visit(StorageId{i}); }
        }
    }
    /// Everything that is allocated; leased storages are fixed, and so is what the device has refused to take back.
    [[nodiscard]] std::vector<pool::Place> places() const {
        std::vector<pool::Place> all;
        for_each_allocated([&](StorageId id) { all.push_back({state(id).address, bytes_[id], state(id).leases > 0}); });
        all.insert(all.end(), not_taken_back_.begin(), not_taken_back_.end());
        return all;
    }
    /// What open leases keep of the cap, in bytes.
    [[nodiscard]] std::uint64_t leased_bytes() const {
        std::uint64_t sum = 0;
        for_each_allocated([&](StorageId id) { sum += state(id).leases > 0 ? occupied_bytes_[id] : 0; });
        return sum;
    }
    /// The copy of a storage's bytes from `from_bytes` on. Precondition: is_allocated(id).
    [[nodiscard]] transport::Fetch copy_of(StorageId id, std::uint64_t from_bytes = 0) const noexcept {
        const bool begins_allocation = !Pool::one_range && from_bytes == 0;
        return {id, from_bytes, bytes_[id] - from_bytes, state(id).address + from_bytes, begins_allocation};
    }

    // Who comes and who leaves.

    /// The evictor starts over, and is told what is on the device, by id.
    [[nodiscard]] Status rank_again(StepIndex now) {
        if (auto attached = attach_evictor(); !attached) { return attached; }
        for_each_allocated([&](StorageId id) { evictor_.inserted(id, now); });
        return {};
    }
    /// As above, telling the evictor of the storages in the order of `order`, which names everything that is on the device.
    [[nodiscard]] Status rank_again(std::span<const StorageId> order, StepIndex now) {
        if (auto attached = attach_evictor(); !attached) { return attached; }
        for (const StorageId id : order) {
            if (is_allocated(id)) { evictor_.inserted(id, now); }
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
            if (is_allocated(id)) { evictor_.used(id, now); }
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

    /// False: the pool has no room now. Precondition: is_open(), is_absent(id). Does not block. The evictor is not told.
    [[nodiscard]] Result<bool> allocate(StorageId id);
    /// Deallocates in the order of the copy stream, after the recorded uses. Does not block.
    [[nodiscard]] Status evict(StorageId id) {
        auto gone = evict_untold(id);
        if (gone && !everything_fits_) { evictor_.removed(id); }
        return gone;
    }
    /// As evict(), without a word to the evictor, which starts over.
    [[nodiscard]] Status evict_untold(StorageId id);
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex now, const MayLeave& may_leave) noexcept {
        return evictor_.victim(now, may_leave);
    }

    // Another cap.

    /// Copies a storage to another allocation, in the order of the copy stream. False: it stays where it is, because the pool has no room
    /// or because not all of its bytes were sent. The caller records the arrival.
    [[nodiscard]] Result<bool> move_storage(StorageId id);
    /// Whether `id` lies in memory that the pool has to give back.
    [[nodiscard]] bool must_move([[maybe_unused]] StorageId id) const noexcept {
        if constexpr (pool::ResizablePool<Pool>) {
            return pool_.must_move(state(id).address);
        } else {
            return false;
        }
    }
    /// Whether storages left memory that the pool has to give back since clear_departure().
    [[nodiscard]] bool has_departure() const noexcept { return has_departure_; }
    void clear_departure() noexcept { has_departure_ = false; }
    /// Gives back, in the order of the copy stream, what the device refused to take back when copies within the device failed.
    [[nodiscard]] Status give_back_again();
    /// Whether there is such an allocation in memory that the pool has to give back.
    [[nodiscard]] bool has_stuck_allocation() const noexcept {
        if constexpr (pool::ResizablePool<Pool>) {
            for (const pool::Place& place : not_taken_back_) {
                if (pool_.must_move(place.at)) { return true; }
            }
        }
        return false;
    }

    [[nodiscard]] const DeciderContext<Device>& context() const noexcept { return *context_; }
    [[nodiscard]] Evictor& evictor() noexcept { return evictor_; }

private:
    static constexpr std::byte poison_byte{0xDB};

    [[nodiscard]] Status attach_evictor() {
        return evictor_.attach({occupied_bytes_, cap_, context_->order, context_->first_steps});
    }
    [[nodiscard]] bool may_leave_ahead(StorageId id, StepIndex needed_by, StepIndex now) const noexcept;
    [[nodiscard]] auto copy_stream() const noexcept { return context_->copy_scheduler->copy_stream(); }
    /// Deallocates what no copy was sent to.
    [[nodiscard]] Status take_back(StorageId id);
    /// A storage has no allocation any more.
    void left(StorageId id) noexcept;

    [[no_unique_address]] Evictor evictor_;
    Pool pool_;
    const DeciderContext<Device>* context_ = nullptr;    // the decider's
    Speculation<Device>* speculation_ = nullptr;         // the decider's; null: none
    pool::Requirements requirements_;                    // spans of the session's
    IdVector<StorageId, std::uint64_t> bytes_;           // by storage
    IdVector<StorageId, std::uint64_t> occupied_bytes_;  // by storage, as the pool rounds
    std::vector<StorageId> placed_;                      // since commit_placements()
    std::vector<pool::Place> not_taken_back_;            // of no storage: the device refused to deallocate them
    std::uint64_t cap_ = 0;                              // bytes
    std::uint64_t peak_requested_ = 0;                   // bytes
    std::uint64_t streamed_ = 0;                         // storages with bytes that are streamed
    std::uint64_t allocated_ = 0;                        // of these, those with an allocation
    std::uint64_t changes_ = 0;
    bool everything_fits_ = false;
    bool has_departure_ = false;
    bool is_open_ = false;
    bool is_closing_ = false;  // open() or try_close() has failed, and may have left memory that is held
};

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
BudgetLimits StorageCache<Evictor, Pool>::limits(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                                 const pool::Requirements& requirements, std::uint32_t at_once) const {
    BudgetLimits limits;
    if (requirements.storages.empty()) { return limits; }
    limits.resident_from_bytes = limits.ceiling_bytes = pool::ceiling_bytes(pool_, device, requirements);
    if constexpr (requires { pool_.slot_bytes(requirements); }) {
        const std::uint64_t slot = pool_.slot_bytes(requirements);
        if (catalog.streamed_bytes() / requirements.storages.size() <=
            (std::min)(slot, requirements.largest_storage_bytes) / 2) {
            limits.wasteful_slot_bytes = slot;
        }
    }
    if (schedule.empty()) { at_once = (std::max)(at_once, 1U); }
    pool::Requirements of_step = requirements;
    std::vector<std::uint64_t> sizes{requirements.storages.begin(), requirements.storages.end()};
    residency::detail::sort(sizes, std::greater<>{});
    sizes.resize((std::min<std::size_t>)(sizes.size(), at_once));
    of_step.step = sizes;
    limits.floor_storages = static_cast<std::uint32_t>(sizes.size());
    limits.floor_bytes = sizes.empty() ? 0 : pool_.floor_bytes(device, of_step);
    for (const Schedule::Step& step : schedule) {
        sizes.clear();
        for (const StorageId id : step.storages) {
            const Storage& storage = catalog.storage(id);
            if (storage.placement != Placement::streamed || storage.bytes == 0) { continue; }
            sizes.push_back(storage.bytes);
        }
        of_step.step = sizes;
        const std::uint64_t floor = pool_.floor_bytes(device, of_step);
        if (floor > limits.floor_bytes || (floor == limits.floor_bytes && limits.floor_step == UINT32_MAX)) {
            limits.floor_bytes = floor;
            limits.floor_step = step.position;
            limits.floor_storages = 0;
        }
    }
    return limits;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
void StorageCache<Evictor, Pool>::attach(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                                         Speculation<Device>* speculation) {
    context_ = &context;
    speculation_ = speculation;
    requirements_ = requirements;
    streamed_ = requirements.storages.size();
    bytes_.clear();
    for (const Storage& storage : context.catalog.storages()) { bytes_.push_back(storage.bytes); }
    occupied_bytes_ = bytes_;
    placed_.reserve(context.states.size());
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageCache<Evictor, Pool>::open(std::uint64_t cap_bytes, std::uint64_t ceiling_bytes) {
    set_cap(cap_bytes, ceiling_bytes);
    if (is_closing_) {
        if (auto closed = try_close(); !closed) { return closed; }
    }
    if (!requirements_.storages.empty()) {
        if (auto opened = pool_.open(*context_->device, requirements_, cap_bytes); !opened) {
            is_closing_ = requires { pool_.try_close(); };
            return opened;
        }
        is_open_ = true;
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) { occupied_bytes_[i] = pool_.occupied(bytes_[i]); }
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
void StorageCache<Evictor, Pool>::close() noexcept {
    if (is_open_) {
        static_cast<void>(give_back_again().has_value());
        not_taken_back_.clear();
        for_each_allocated([&](StorageId id) {
            static_cast<void>(pool_.deallocate(state(id).address, bytes_[id], copy_stream()).has_value());
            left(id);
        });
    }
    if (is_open_ || is_closing_) { pool_.close(); }
    is_open_ = is_closing_ = false;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageCache<Evictor, Pool>::try_close() {
    if constexpr (requires { pool_.try_close(); }) {
        if (is_open_) {
            if (auto freed = give_back_again(); !freed) { return freed; }
            is_open_ = false;
            is_closing_ = true;
        }
        if (is_closing_) {
            if (auto closed = pool_.try_close(); !closed) { return closed; }
            is_closing_ = false;
        }
    }
    close();
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageCache<Evictor, Pool>::give_back_again() {
    while (!not_taken_back_.empty()) {
        const pool::Place& place = not_taken_back_.back();
        has_departure_ = has_departure_ || has_stuck_allocation();
        if (auto freed = pool_.deallocate(place.at, place.bytes, copy_stream()); !freed) { return freed; }
        not_taken_back_.pop_back();
    }
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Result<bool> StorageCache<Evictor, Pool>::allocate(StorageId id) {
    if (auto freed = give_back_again(); !freed) { return freed.error(); }
    auto at = pool_.allocate(bytes_[id], copy_stream());
    if (!at) { return at.error(); }
    if (*at == nullptr) { return false; }
    state(id).address = static_cast<std::byte*>(*at);
    state(id).partially_resident = true;
    ++allocated_;
    ++changes_;
    peak_requested_ = (std::max)(peak_requested_, pool_.requested_bytes());
    return true;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageCache<Evictor, Pool>::evict_untold(StorageId id) {
    StorageState& state = this->state(id);
    if (auto waits = context_->copy_scheduler->copy_stream_wait_for_uses(id); !waits) { return waits; }
    if (context_->poison) {
        if (auto filled = context_->device->fill(state.address, poison_byte, bytes_[id], copy_stream()); !filled) {
            return filled;
        }
        state.partially_resident = true;
    }
    if (speculation_ != nullptr) { speculation_->stop(id); }
    has_departure_ = has_departure_ || must_move(id);
    if (auto freed = pool_.deallocate(state.address, bytes_[id], copy_stream()); !freed) { return freed; }
    left(id);
    state.was_evicted = true;
    ++context_->counters->evictions;
    context_->counters->evicted_bytes += bytes_[id];
    if (context_->events != nullptr) { context_->events->evicted(id, bytes_[id]); }
    return {};
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Status StorageCache<Evictor, Pool>::take_back(StorageId id) {
    auto freed = pool_.deallocate(state(id).address, bytes_[id], copy_stream());
    if (freed) { left(id); }
    return freed;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
Result<bool> StorageCache<Evictor, Pool>::move_storage(StorageId id) {
    StorageState& state = this->state(id);
    if (state.partially_resident) { return false; }
    auto to = pool_.allocate(bytes_[id], copy_stream());
    if (!to) { return to.error(); }
    if (*to == nullptr) { return false; }
    auto* const address = static_cast<std::byte*>(*to);
    auto done = context_->copy_scheduler->copy_stream_wait_for_uses(id);
    if (done) { done = context_->copy_scheduler->copy_within_device(address, state.address, bytes_[id]); }
    if (done && context_->poison) {
        done = context_->device->fill(state.address, poison_byte, bytes_[id], copy_stream());
        state.partially_resident = done.has_value();
    }
    if (done) { done = pool_.deallocate(state.address, bytes_[id], copy_stream()); }
    if (!done) {
        if (!pool_.deallocate(address, bytes_[id], copy_stream())) {
            not_taken_back_.push_back({address, bytes_[id], true});
        }
        return done.error();
    }
    state.address = address;
    state.partially_resident = false;
    has_departure_ = true;
    context_->counters->moved_bytes += bytes_[id];
    return true;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
void StorageCache<Evictor, Pool>::left(StorageId id) noexcept {
    state(id).address = nullptr;
    state(id).prefetched = state(id).partially_resident = false;
    if (speculation_ != nullptr) { speculation_->removed(id); }
    --allocated_;
    ++changes_;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
template <class MayLeave, class BeforeWait>
Result<bool> StorageCache<Evictor, Pool>::place(StorageId id, StepIndex now, const MayLeave& may_leave,
                                                const BeforeWait& before_wait) {
    for (;;) {
        auto allocated = allocate(id);
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
    StorageState& state = this->state(id);
    state.prefetched = true;
    state.needed_by = needed_by == UseOrder::never ? now + prediction_lifetime : needed_by;
    return true;
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
void StorageCache<Evictor, Pool>::roll_back_placements() noexcept {
    for (const StorageId id : placed_) {
        if (take_back(id) && !everything_fits_) { evictor_.removed(id); }
    }
    placed_.clear();
}

template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
bool StorageCache<Evictor, Pool>::may_leave_ahead(StorageId id, StepIndex needed_by, StepIndex now) const noexcept {
    const StorageState& state = this->state(id);
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
