// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "residency/core/engine/session_state.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/storage.hpp"
#include "residency/pool/memory_pool.hpp"

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
    const auto sent = shared.copy_scheduler.transfer(fetches);
    return sent ? Status{} : Status{sent.error()};
}

}}}  // namespace residency::RESIDENCY_ABI::core
