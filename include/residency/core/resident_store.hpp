// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weights that are placed resident, and the chunks of a plan that are copied once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "residency/core/chunk_loader.hpp"
#include "residency/core/chunk_store.hpp"
#include "residency/core/session_state.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/storage.hpp"
#include "residency/plan/first_pass.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The storages that no policy moves: those pinned to the device lie in one allocation, from open() to close(); those that kernels read
/// from the host have the address of their pinned memory. Where the decider holds residents, the allocation is empty.
template <Device D>
class ResidentStore {
public:
    /// Computes what the residents will take. Holds nothing. `stored`: with the bytes in which storages travel.
    void prepare(const D& device, const Catalog& stored, bool decider_holds_residents) {
        bytes_ = 0;
        for (const Storage& storage : stored.storages()) {
            if (storage.placement != Placement::resident || decider_holds_residents) { continue; }
            bytes_ = pool::round_up(bytes_, storage.alignment_bytes) + storage.bytes;
        }
        held_bytes_ = pool::round_up(bytes_, device.allocation_granularity());
    }
    /// Gives the host's storages their addresses. An error if one is not in pinned memory, or if memory of any storage that is said to be
    /// pinned is not pinned for this device.
    [[nodiscard]] Status view_host_storages(SessionState<D>& shared);
    /// Allocates, and enqueues the copies of all residents. Blocks while the device allocates.
    [[nodiscard]] Status bring_residents(SessionState<D>& shared);
    /// Gives the allocation back, until bring_residents(). Precondition: the streams are drained.
    [[nodiscard]] Status suspend(SessionState<D>& shared);
    /// Precondition: the streams are drained.
    void close(D& device) noexcept {
        if (memory_ != nullptr) { static_cast<void>(device.deallocate(memory_).has_value()); }
        memory_ = nullptr;
    }
    /// Device bytes, as the driver counts them, unless suspended.
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
    /// Device bytes that are held now: 0 while suspended.
    [[nodiscard]] std::uint64_t held_now_bytes() const noexcept { return memory_ == nullptr ? 0 : held_bytes_; }

private:
    void* memory_ = nullptr;
    std::uint64_t bytes_ = 0;       // of the residents, with their alignment
    std::uint64_t held_bytes_ = 0;  // the same, as the driver rounds
};

template <Device D>
Status ResidentStore<D>::view_host_storages(SessionState<D>& shared) {
    const HostBytes* known = nullptr;  // that the device has pinned
    for (std::uint32_t i = 0; i < shared.states.size(); ++i) {
        const Storage& storage = shared.catalog.storages()[i];
        if (storage.bytes == 0) { continue; }
        const auto* source = std::get_if<HostSource>(&storage.source);
        const bool is_pinned = source != nullptr && source->host->kind() == HostMemory::pinned;
        if (is_pinned && source->host.get() != known) {
            auto view = shared.device->device_view(source->host->data());
            if (!view && view.error().kind() == ErrorKind::invalid_argument) {
                return Error{ErrorKind::invalid_argument,
                             shared.catalog.describe(StorageId{i}) +
                                 " is said to lie in pinned memory, which this device has not pinned: pin it by this "
                                 "device, or say HostMemory::pageable"};
            }
            // A device that pins nothing copies from any memory.
            if (!view && view.error().kind() != ErrorKind::unsupported) { return view.error(); }
            known = source->host.get();
        }
        if (storage.placement != Placement::host) { continue; }
        if (!is_pinned) {
            return Error{ErrorKind::unsupported, shared.catalog.describe(StorageId{i}) +
                                                     " is to be read from the host, but its bytes are not in pinned "
                                                     "memory: pin them, or place it elsewhere"};
        }
        auto view = shared.device->device_view(shared.catalog.host_bytes(StorageId{i}));
        if (!view) { return view.error(); }
        shared.states[i].address = const_cast<std::byte*>(static_cast<const std::byte*>(*view));
    }
    return {};
}

template <Device D>
Status ResidentStore<D>::suspend(SessionState<D>& shared) {
    if (memory_ == nullptr) { return {}; }
    if (auto freed = shared.device->deallocate(memory_); !freed) { return freed; }
    memory_ = nullptr;
    for (StorageState& state : shared.states) {
        if (state.placement == Placement::resident) { state.address = nullptr; }
    }
    return {};
}

template <Device D>
Status ResidentStore<D>::bring_residents(SessionState<D>& shared) {
    if (bytes_ == 0) { return {}; }
    auto memory = shared.device->allocate(bytes_);
    if (!memory) { return memory.error(); }
    memory_ = *memory;
    std::vector<transport::Fetch> fetches;
    std::uint64_t end = 0;
    for (std::uint32_t i = 0; i < shared.states.size(); ++i) {
        const Storage& storage = shared.stored.storages()[i];
        if (storage.placement != Placement::resident) { continue; }
        end = pool::round_up(end, storage.alignment_bytes);
        std::byte* address = static_cast<std::byte*>(memory_) + end;
        end += storage.bytes;
        if (storage.bytes == 0) { continue; }
        shared.states[i].address = address;
        fetches.push_back({StorageId{i}, 0, storage.bytes, address});
    }
    return shared.send(fetches);
}

/// The chunks that stay while the plan is in force (residents), in the order in which steps need them, and how many of them were copied.
/// A resident that had to leave is copied again, with the residents behind it that are absent. Chunks that only the first pass needs at
/// its start are copied once here; from then on, the calls of the plan bring them.
template <pool::PlannedPool Pool>
class ResidentQueue {
public:
    /// Keeps the references.
    ResidentQueue(ChunkStore<Pool>& store, ChunkLoader<Pool>& loader) noexcept : store_{&store}, loader_{&loader} {}

    /// A plan came into force. `problem`: what it solves.
    void start(const plan::Problem& problem);
    /// A one-shot plan starts again.
    void start_again() noexcept { next_ = begun_ = 0; }
    /// A resident chunk leaves: it is brought again when its slot is free.
    void note_eviction(std::uint32_t chunk) noexcept { next_ = (std::min)(next_, copy_of_[chunk]); }

    [[nodiscard]] bool has_all() const noexcept { return next_ == store_->plan().residents().size(); }
    /// Whether the residents that steps up to this one read are brought.
    [[nodiscard]] bool has_all_for(std::uint32_t step) const noexcept {
        return has_all() || store_->plan().residents()[next_].needed_by > step;
    }

    /// Brings the residents that steps up to this one read (none: all). Stops, without an error, where a lease is in the way.
    [[nodiscard]] Status bring_for(std::uint32_t step);
    /// Called before call k of the first pass, counted from 0: brings the residents that plan::order_first_pass puts before that call.
    [[nodiscard]] Status bring_before_call(std::uint64_t k) {
        return k < before_call_.size() ? bring_first(before_call_[static_cast<std::size_t>(k)]) : Status{};
    }

private:
    /// Brings the first `count` resident copies of the plan.
    [[nodiscard]] Status bring_first(std::size_t count);

    ChunkStore<Pool>* store_;
    ChunkLoader<Pool>* loader_;
    std::size_t next_ = 0;                  // the resident copy of the plan to be brought next
    std::size_t begun_ = 0;                 // those before it were brought once: of them only what stays comes again
    std::vector<std::size_t> before_call_;  // by call of the first pass: how many resident copies go before it
    std::vector<std::size_t> copy_of_;      // by chunk: the resident copy that has it; their number if none has
};

template <pool::PlannedPool Pool>
void ResidentQueue<Pool>::start(const plan::Problem& problem) {
    const plan::Plan& plan = store_->plan();
    next_ = begun_ = 0;
    before_call_ = plan::order_first_pass(plan, problem.link, problem.compute_seconds, store_->table().all_there());
    copy_of_.assign(plan.chunks(), plan.residents().size());
    for (std::size_t i = 0; i < plan.residents().size(); ++i) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(plan.residents()[i])) { copy_of_[chunk] = i; }
    }
}

template <pool::PlannedPool Pool>
Status ResidentQueue<Pool>::bring_for(std::uint32_t step) {
    const auto residents = store_->plan().residents();
    std::size_t count = next_;
    while (count < residents.size() && residents[count].needed_by <= step) { ++count; }
    return bring_first(count);
}

template <pool::PlannedPool Pool>
Status ResidentQueue<Pool>::bring_first(std::size_t count) {
    const auto residents = store_->plan().residents();
    while (next_ < count) {
        const std::size_t begin = next_;
        std::size_t end = begin;
        do { ++end; } while (end < count && end != begun_ && residents[end].needed_by == residents[begin].needed_by);
        const auto brought = loader_->load_around_leases(
            residents.subspan(begin, end - begin),
            [&](std::uint32_t chunk) { return begin >= begun_ || store_->table().stays(chunk); });
        if (!brought) { return brought.error(); }
        if (!*brought) { return {}; }
        next_ = end;
        begun_ = (std::max)(begun_, end);
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
