// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/online/speculation.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/sort.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The allocations of a pool: each streamed storage has one, at the address in its state, or none, with a null address. It knows no
/// policy: who is evicted is its caller's decision. Not thread safe.
template <pool::MemoryPool Pool>
class StorageAllocations {
public:
    using Device = typename Pool::Device;

    explicit StorageAllocations(typename Pool::Config config) : pool_{std::move(config)} {}

    /// The budgets that the pool can work with under a schedule. The floor holds every step, and the largest `at_once` storages together;
    /// without a schedule at least the largest one.
    [[nodiscard]] BudgetLimits limits(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                      const pool::Requirements& requirements, std::uint32_t at_once) const;

    /// Allocates on the host; neither open() nor what follows does. What is passed outlives this object. `speculation` is told which
    /// storages leave; null: there is none.
    void attach(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                Speculation<Device>* speculation);
    /// Blocks while the device allocates. Opens the pool, if any storage is streamed, once what failed calls have left is given back.
    [[nodiscard]] Status open(std::uint64_t cap_bytes);
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
    /// What open leases keep of the cap, in bytes.
    [[nodiscard]] std::uint64_t leased_bytes() const {
        std::uint64_t sum = 0;
        for_each_allocated([&](StorageId id) { sum += state(id).leases > 0 ? occupied_bytes_[id] : 0; });
        return sum;
    }
    [[nodiscard]] MemoryUse memory_use() const {
        if (!is_open_ && !is_closing_) { return {0, 0, peak_requested_}; }
        return {pool_.held_bytes(), pool_.requested_bytes(), peak_requested_};
    }

    /// False: the pool has no room now. Precondition: is_open(), is_absent(id). Does not block.
    [[nodiscard]] Result<bool> allocate(StorageId id);
    /// Deallocates in the order of the copy stream, after the recorded uses. Does not block.
    [[nodiscard]] Status evict(StorageId id);
    /// Deallocates what no copy was sent to.
    [[nodiscard]] Status take_back(StorageId id);
    /// Copies a storage to another allocation, in the order of the copy stream. False: it stays where it is, because the pool has no room
    /// or because not all of its bytes were sent. The caller records the arrival.
    [[nodiscard]] Result<bool> move_storage(StorageId id);

    /// The copy of a storage's bytes from `from_bytes` on. Precondition: is_allocated(id).
    [[nodiscard]] transport::Fetch copy_of(StorageId id, std::uint64_t from_bytes = 0) const noexcept {
        const bool begins_allocation = !Pool::one_range && from_bytes == 0;
        return {id, from_bytes, bytes_[id] - from_bytes, state(id).address + from_bytes, begins_allocation};
    }

    [[nodiscard]] Pool& pool() noexcept { return pool_; }
    [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
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

private:
    static constexpr std::byte poison_byte{0xDB};

    [[nodiscard]] auto copy_stream() const noexcept { return context_->copy_scheduler->copy_stream(); }
    void left(StorageId id) noexcept;

    Pool pool_;
    const DeciderContext<Device>* context_ = nullptr;    // the decider's
    Speculation<Device>* speculation_ = nullptr;         // the decider's
    pool::Requirements requirements_;                    // spans of the session's
    IdVector<StorageId, std::uint64_t> bytes_;           // by storage
    IdVector<StorageId, std::uint64_t> occupied_bytes_;  // by storage, as the pool rounds
    std::vector<pool::Place> not_taken_back_;            // of no storage: the device refused to deallocate them
    std::uint64_t peak_requested_ = 0;                   // bytes
    std::uint64_t streamed_ = 0;                         // storages with bytes that are streamed
    std::uint64_t allocated_ = 0;                        // of these, those with an allocation
    std::uint64_t changes_ = 0;
    bool has_departure_ = false;
    bool is_open_ = false;
    bool is_closing_ = false;  // open() or try_close() has failed, and may have left memory that is held
};

template <pool::MemoryPool Pool>
BudgetLimits StorageAllocations<Pool>::limits(const Device& device, const Catalog& catalog, const Schedule& schedule,
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

template <pool::MemoryPool Pool>
void StorageAllocations<Pool>::attach(const DeciderContext<Device>& context, const pool::Requirements& requirements,
                                      Speculation<Device>* speculation) {
    context_ = &context;
    speculation_ = speculation;
    requirements_ = requirements;
    streamed_ = requirements.storages.size();
    bytes_.clear();
    for (const Storage& storage : context.catalog.storages()) { bytes_.push_back(storage.bytes); }
    occupied_bytes_ = bytes_;
}

template <pool::MemoryPool Pool>
Status StorageAllocations<Pool>::open(std::uint64_t cap_bytes) {
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

template <pool::MemoryPool Pool>
void StorageAllocations<Pool>::close() noexcept {
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

template <pool::MemoryPool Pool>
Status StorageAllocations<Pool>::try_close() {
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

template <pool::MemoryPool Pool>
Status StorageAllocations<Pool>::give_back_again() {
    while (!not_taken_back_.empty()) {
        const pool::Place& place = not_taken_back_.back();
        has_departure_ = has_departure_ || has_stuck_allocation();
        if (auto freed = pool_.deallocate(place.at, place.bytes, copy_stream()); !freed) { return freed; }
        not_taken_back_.pop_back();
    }
    return {};
}

template <pool::MemoryPool Pool>
Result<bool> StorageAllocations<Pool>::allocate(StorageId id) {
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

template <pool::MemoryPool Pool>
Status StorageAllocations<Pool>::evict(StorageId id) {
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

template <pool::MemoryPool Pool>
Status StorageAllocations<Pool>::take_back(StorageId id) {
    auto freed = pool_.deallocate(state(id).address, bytes_[id], copy_stream());
    if (freed) { left(id); }
    return freed;
}

template <pool::MemoryPool Pool>
Result<bool> StorageAllocations<Pool>::move_storage(StorageId id) {
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

template <pool::MemoryPool Pool>
void StorageAllocations<Pool>::left(StorageId id) noexcept {
    state(id).address = nullptr;
    state(id).prefetched = state(id).partially_resident = false;
    if (speculation_ != nullptr) { speculation_->removed(id); }
    --allocated_;
    ++changes_;
}

}}}  // namespace residency::RESIDENCY_ABI::core
