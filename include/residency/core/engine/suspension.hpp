// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Giving all memory back and taking it again, and replacing what weights hold.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/resident_store.hpp"
#include "residency/core/engine/session_state.hpp"
#include "residency/core/engine/transport_interface.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Gives all device memory of a session back and takes it again. What kernels wrote is in pinned host memory in between: nothing is lost,
/// whichever call fails.
template <Device D>
class Suspension {
public:
    explicit Suspension(SessionState<D>& shared) noexcept : shared_{&shared} {}

    /// From the first byte that suspend() gives back, until resume() has succeeded.
    [[nodiscard]] bool is_suspended() const noexcept { return is_suspended_; }
    /// Nothing is held, but for what was brought ahead since. Of a session that is not suspended: false.
    [[nodiscard]] bool has_given_back() const noexcept { return has_given_back_; }
    /// Blocks. No pass and no lease is open. After a failure nothing has changed, or is_suspended() and memory is still held; called again,
    /// it goes on. Errors: out_of_memory (host memory for what kernels wrote), or the device's own.
    [[nodiscard]] Status suspend(ResidentStore<D>& residents);
    /// Blocks until what kernels wrote, and residents of an online composition, are there. After a failure, is_suspended() as before. Where
    /// the device refuses to take memory back too, it is held until the next call of either.
    [[nodiscard]] Status resume(ResidentStore<D>& residents, std::uint64_t cap_bytes);
    /// Drops the kept bytes of a storage, which kernels wrote: it comes from its source again.
    void forget(StorageId storage) {
        std::erase_if(saved_, [&](const Saved& each) { return each.storage == storage; });
    }
    /// Precondition: the streams are drained.
    void close() noexcept {
        if (memory_ == nullptr) { return; }
        if (!shared_->device->deallocate_host(memory_)) {
            static_cast<void>(shared_->device->deallocate_host(memory_).has_value());
        }
        memory_ = nullptr;
    }

private:
    /// Bytes [offset_bytes, offset_bytes + bytes) of a storage, as kernels left them.
    struct Saved {
        StorageId storage = no_storage;
        std::uint64_t offset_bytes = 0, bytes = 0;
        std::uint64_t at_bytes = 0;  // in memory_
    };

    /// Copies what kernels wrote to host memory. Precondition: drained.
    [[nodiscard]] Status save();
    /// Gives back what is held on the device.
    [[nodiscard]] Status give_back(ResidentStore<D>& residents);
    [[nodiscard]] Status take_again(ResidentStore<D>& residents, std::uint64_t cap_bytes);
    /// Copies what kernels wrote to where it belongs. Precondition: drained.
    [[nodiscard]] Status restore();

    SessionState<D>* shared_;
    bool is_suspended_ = false;
    bool has_given_back_ = false;
    std::byte* memory_ = nullptr;  // pinned
    std::vector<Saved> saved_;
};

template <Device D>
Status Suspension<D>::suspend(ResidentStore<D>& residents) {
    if (!is_suspended_) {
        if (auto saved = save(); !saved) { return saved; }
        is_suspended_ = true;
    }
    return give_back(residents);
}

template <Device D>
Status Suspension<D>::resume(ResidentStore<D>& residents, std::uint64_t cap_bytes) {
    if (!is_suspended_) { return {}; }
    // What was brought ahead and could not be read comes again.
    if (!has_given_back_ || !shared_->unread.empty() || !shared_->copy_scheduler.transport_status()) {
        if (auto given = give_back(residents); !given) { return given; }
    }
    has_given_back_ = false;
    if (auto taken = take_again(residents, cap_bytes); !taken) {
        static_cast<void>(give_back(residents).has_value());
        return taken;
    }
    is_suspended_ = false;
    saved_.clear();
    close();
    return {};
}

template <Device D>
Status Suspension<D>::give_back(ResidentStore<D>& residents) {
    const bool is_told = !shared_->untold;
    if (auto settled = shared_->settle(); !settled) { return settled; }
    // Nobody has read what could not be brought since suspend() noted what passes lacked, and nothing of it stays.
    if (is_told) { shared_->untold.reset(); }
    shared_->unread.clear();
    has_given_back_ = false;
    if (auto given = shared_->decider->suspend(); !given) { return given; }
    auto given = residents.suspend(*shared_);
    has_given_back_ = given.has_value();
    return given;
}

template <Device D>
Status Suspension<D>::take_again(ResidentStore<D>& residents, std::uint64_t cap_bytes) {
    if (auto resumed = shared_->decider->resume(cap_bytes, shared_->cursor.now()); !resumed) { return resumed; }
    if (auto brought = residents.bring_residents(*shared_); !brought) { return brought; }
    std::vector<StorageId> written;
    for (const Saved& each : saved_) {
        if (written.empty() || written.back() != each.storage) { written.push_back(each.storage); }
    }
    if (auto brought = shared_->decider->bring_residents(written); !brought) { return brought; }
    if (saved_.empty() && residents.held_now_bytes() == 0) { return {}; }
    if (auto landed = shared_->await_copies(); !landed) { return landed; }
    return restore();
}

template <Device D>
Status Suspension<D>::save() {
    close();  // what an attempt that failed has left
    saved_.clear();
    std::vector<transport::Fetch> present;
    const std::span<const Storage> storages = shared_->catalog.storages();
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        const bool is_read = !std::binary_search(shared_->unread.begin(), shared_->unread.end(), StorageId{i});
        if (!storages[i].is_mutable || storages[i].bytes == 0 || !is_read) { continue; }
        if (auto appended = shared_->append_present(StorageId{i}, present); !appended) { return appended; }
    }
    if (present.empty()) { return {}; }
    std::uint64_t end = 0;
    for (const transport::Fetch& each : present) {
        saved_.push_back({each.storage, each.offset_bytes, each.bytes, end});
        end += each.bytes;
    }
    auto memory = shared_->device->allocate_host(end);
    if (!memory) { return memory.error().in("for what kernels wrote, while it is suspended"); }
    memory_ = static_cast<std::byte*>(*memory);
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < present.size(); ++i) {
        copies.push_back({memory_ + saved_[i].at_bytes, present[i].to, present[i].bytes});
    }
    auto copied = shared_->copy_scheduler.copy_and_wait(copies);
    if (!copied && !shared_->copy_scheduler.has_unrecorded_copies()) { close(); }
    return copied;
}

template <Device D>
Status Suspension<D>::restore() {
    std::vector<Copy> copies;
    for (const Saved& each : saved_) {
        std::byte* const address = shared_->states[index(each.storage)].address;
        copies.push_back({address + each.offset_bytes, memory_ + each.at_bytes, each.bytes});
    }
    if (copies.empty()) { return {}; }
    return shared_->copy_scheduler.copy_and_wait(copies);
}

/// Replaces the bytes of storages at their sources by `write()`, which returns a Status, and, if `is_on_device`, brings what lies of them
/// on the device again, where it lies. Nothing reads the sources while `write()` runs. Blocks. Precondition: drained, and no pass or lease
/// is open. Whatever fails, no lease begins before the device has what the sources have: what is missing is brought by the next pass.
/// Errors: of what is loading; of `write()`; of files that were replaced; those of drain().
template <Device D, class Write>
[[nodiscard]] Status replace_sources(SessionState<D>& shared, std::span<const StorageId> storages, bool is_on_device,
                                     Write&& write) {
    TransportInterface<D>& transport = shared.copy_scheduler.transport();
    shared.decider->forget_ahead();
    if (auto paused = transport.pause(storages); !paused) { return paused; }
    Status written = write();
    auto known = transport.sources_changed(storages);
    if (is_on_device) {
        shared.unread.insert(shared.unread.end(), storages.begin(), storages.end());
        shared.sort_unread();
    }
    auto brought = shared.settle();
    if (brought) { brought = shared.bring_again(); }
    if (!written) { return written; }
    return known ? std::move(brought) : std::move(known);
}

}}}  // namespace residency::RESIDENCY_ABI::core
