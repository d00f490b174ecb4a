// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/stored_catalog.hpp"
#include "residency/packed/unpack_memory.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What deciders for packed weights share: an inner decider, which knows storages by the bytes in which they travel, and beside what it
/// holds, the memory of unpacked weights. Both are inside the budget.
template <Device D, class Inner>
class UnpackingDecider : public Decider<D> {
public:
    [[nodiscard]] BudgetLimits limits() const noexcept override { return limits_; }
    [[nodiscard]] Catalog stored_catalog(const Catalog&) const override { return stored_.catalog; }
    [[nodiscard]] Status reclaim_pending() override { return inner_->reclaim_pending(); }
    [[nodiscard]] bool has_pending() const noexcept override { return inner_->has_pending(); }
    void close() noexcept override {
        memory_.close();
        inner_->close();
    }
    void abandon() noexcept override {
        memory_.abandon();
        inner_->abandon();
    }

    void pass_began(StepIndex now) noexcept override {
        memory_.pass_began();
        inner_->pass_began(now);
    }
    void pass_ended() noexcept override { inner_->pass_ended(); }
    [[nodiscard]] Status expect_steps(std::uint32_t steps, const UseOrder& order, StepIndex now) override {
        return inner_->expect_steps(steps, order, now);
    }
    void released(const LeaseToken& token, bool recorded) noexcept override {
        if (!recorded) { memory_.note_lost(); }
        inner_->released(token, recorded);
    }
    void forget(const LeaseToken& token) noexcept override { inner_->forget(token); }
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept override {
        return memory_.is_unpacked_by_leases(storages) || inner_->needs_record(storages);
    }
    [[nodiscard]] bool unpacks() const noexcept override { return stored_.unpacks; }
    [[nodiscard]] Status unpack(std::span<const StorageId> storages, ConsumerId consumer) override {
        return memory_.unpack(storages, consumer);
    }
    [[nodiscard]] Status check_refresh(std::span<const StorageId> storages) const override {
        return stored_.check_refresh(catalog_, storages);
    }
    [[nodiscard]] bool is_streaming() const noexcept override { return inner_->is_streaming(); }
    [[nodiscard]] MemoryUse memory_use() const override {
        MemoryUse use = inner_->memory_use();
        use.held_bytes += memory_.held_bytes();
        use.requested_bytes += memory_.held_bytes();
        peak_bytes_ = (std::max)({peak_bytes_, use.peak_requested_bytes, use.requested_bytes});
        use.peak_requested_bytes = peak_bytes_;
        return use;
    }

protected:
    /// Makes the stored catalog of `catalog`. False: it is the catalog from before, and nothing was done.
    [[nodiscard]] Result<bool> store(const Catalog& catalog, const Unpacker<D>* unpacker, packed::StoredIn where) {
        if (catalog_ == catalog) { return false; }
        auto travels = packed::try_store(catalog, unpacker, where);
        if (!travels) { return travels.error(); }
        stored_ = std::move(*travels);
        catalog_ = catalog;
        memory_.set_unpacker(unpacker);
        return true;
    }

    std::unique_ptr<Inner> inner_;  // made by the constructor of who derives
    DeciderContext<D> context_;
    Catalog catalog_;
    packed::StoredCatalog stored_;
    BudgetLimits limits_;
    packed::UnpackMemory<D> memory_{context_, stored_.forms};

private:
    mutable std::uint64_t peak_bytes_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::core
