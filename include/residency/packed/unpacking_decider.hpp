// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/stored_catalog.hpp"
#include "residency/packed/unpack_layout.hpp"
#include "residency/packed/unpack_memory.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides for weights that are packed in host memory: an inner decider, which knows storages by the bytes in which they travel, and beside
/// what it holds, the memory of unpacked weights. Both are inside the budget. Who derives says how that memory is laid out. `Inner` is
/// final, so that a lease calls it directly.
template <Device D, class Inner>
class UnpackingDecider : public Decider<D> {
public:
    [[nodiscard]] BudgetLimits limits() const noexcept override { return limits_; }
    [[nodiscard]] Catalog stored_catalog(const Catalog&) const override { return stored_.catalog; }
    [[nodiscard]] bool holds_residents() const noexcept override { return inner_->holds_residents(); }
    [[nodiscard]] Status reclaim_pending() override { return inner_->reclaim_pending(); }
    [[nodiscard]] bool has_pending() const noexcept override { return inner_->has_pending(); }
    [[nodiscard]] Status repair() override {
        if (!is_consistent_) {
            auto drained = context_.copy_scheduler->drain_all();
            return drained ? restore() : std::move(drained);
        }
        auto repaired = inner_->repair();
        return repaired ? memory_.take() : std::move(repaired);
    }
    /// Nothing where a resume() has failed: the next one makes another plan.
    [[nodiscard]] Result<std::uint64_t> bring_asleep(std::uint64_t most_bytes) override {
        if (!is_consistent_) { return std::uint64_t{0}; }
        const auto travels = inner_->bring_asleep(most_bytes);
        if (!travels) { return travels.error(); }
        // A raw byte that kernels write beside a pass takes as much of the device as two that are copied there.
        const std::uint64_t left = most_bytes - (std::min)(most_bytes, *travels);
        const auto unpacked = memory_.bring_asleep((std::max)(left / 2, (std::min)(left, codec::part_bytes)));
        if (!unpacked) { return unpacked.error(); }
        return *travels + *unpacked;
    }
    [[nodiscard]] Status suspend() override {
        auto suspended = inner_->suspend();
        return suspended ? memory_.sleep() : std::move(suspended);
    }
    void close() noexcept override {
        memory_.close();
        inner_->close();
    }
    void abandon() noexcept override {
        memory_.abandon();
        inner_->abandon();
    }

    /// Error unsupported: in a capture of the caller's, a lease would unpack. The graph would write to memory that other leases use.
    [[nodiscard]] Status prepare_pass(const PassStart& start) override;
    void pass_began(StepIndex now) noexcept override {
        memory_.pass_began();
        inner_->pass_began(now);
    }
    void pass_ended() noexcept override { inner_->pass_ended(); }
    [[nodiscard]] Status expect_steps(std::uint32_t steps, const UseOrder& order, StepIndex now) override {
        return inner_->expect_steps(steps, order, now);
    }
    [[nodiscard]] Status ensure(std::span<const StorageId> wanted, const AccessPoint& access,
                                LeaseToken& token) override {
        if (needs_repair()) {
            if (auto repaired = this->repair(); !repaired) { return repaired; }
        }
        return inner_->ensure(wanted, access, token);
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
    [[nodiscard]] Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) override {
        if (!is_consistent_) {
            if (auto repaired = this->repair(); !repaired) { return repaired; }
        }
        return inner_->append_present(id, fetches);
    }
    [[nodiscard]] Status bring_residents(std::span<const StorageId> ids) override {
        return inner_->bring_residents(ids);
    }
    [[nodiscard]] Status bring_everything() override { return inner_->bring_everything(); }
    void forget_ahead() override { inner_->forget_ahead(); }
    [[nodiscard]] bool is_speculative() const noexcept override { return inner_->is_speculative(); }
    [[nodiscard]] bool send_speculative(StepIndex now) noexcept override { return inner_->send_speculative(now); }
    [[nodiscard]] bool is_streaming() const noexcept override { return inner_->is_streaming(); }
    [[nodiscard]] MemoryUse memory_use() const override {
        MemoryUse use = inner_->memory_use();
        use.held_bytes += memory_.held_bytes();
        use.requested_bytes += memory_.held_bytes();
        peak_bytes_ = (std::max)({peak_bytes_, use.peak_requested_bytes, use.requested_bytes});
        use.peak_requested_bytes = peak_bytes_;
        return use;
    }

    /// That of the plan in force. Another choice of what stays unpacked may beat it.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> bound() const noexcept override { return inner_->bound(); }
    [[nodiscard]] bool makes_plans() const noexcept override { return inner_->makes_plans(); }

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
    /// Puts a layout in force, and beside it the inner decider under the rest of the cap, by `apply(rest_bytes)`: what was prepared last and
    /// the cap are in force then. Blocks. Precondition: the streams are drained.
    template <class Apply>
    [[nodiscard]] Status put_in_force(const packed::UnpackLayout& layout, std::uint64_t cap_bytes, const Apply& apply);
    /// Puts what was prepared last into force, under the present cap. Blocks. Precondition: the streams are drained.
    [[nodiscard]] virtual Status restore() {
        return this->set_order(context_.order, context_.first_steps, 0, cap_bytes_);
    }
    /// Whether failed calls left something to be done.
    [[nodiscard]] bool needs_repair() const noexcept { return !is_consistent_ || memory_.is_missing(); }

    std::unique_ptr<Inner> inner_;  // made by the constructor of who derives
    DeciderContext<D> context_;
    Catalog catalog_;
    packed::StoredCatalog stored_;
    BudgetLimits limits_;
    packed::UnpackMemory<D> memory_{context_, stored_.forms};
    std::uint64_t cap_bytes_ = 0;  // in force
    bool is_consistent_ = true;    // the inner decider, the memory, and what was prepared last belong together

private:
    mutable std::uint64_t peak_bytes_ = 0;
};

template <Device D, class Inner>
Status UnpackingDecider<D, Inner>::prepare_pass(const PassStart& start) {
    if (start.in_foreign_capture && memory_.unpacks()) {
        return Error{
            ErrorKind::unsupported,
            std::string{"the stream is being captured, and leases unpack weights to memory that they share: the "
                        "graph would write there whenever it runs; "} +
                (this->graphs() != nullptr ? "use Residency::capture, or a budget with which everything stays unpacked"
                                           : "begin the pass outside of the capture, or keep the weights raw")};
    }
    if (start.in_foreign_capture && needs_repair()) {
        return Error{ErrorKind::unsupported,
                     "calls that failed have to be made good first, which waits for the device: begin a pass outside "
                     "of the capture"};
    }
    return inner_->prepare_pass(start);
}

template <Device D, class Inner>
template <class Apply>
Status UnpackingDecider<D, Inner>::put_in_force(const packed::UnpackLayout& layout, std::uint64_t cap_bytes,
                                                const Apply& apply) {
    const bool is_new = !(layout == memory_.layout());
    if (is_new) {
        if (auto given = memory_.give_back(); !given) { return given; }
    }
    if (auto applied = apply(cap_bytes - layout.bytes); !applied) { return applied; }
    if (is_new) { memory_.set_layout(layout); }
    // On the copy stream, what is not packed does not wait for what is unpacked.
    Status filled = memory_.is_missing() && !memory_.unpacks() ? inner_->bring_everything() : Status{};
    if (filled) { filled = memory_.take(); }
    if (!filled) {
        static_cast<void>(context_.copy_scheduler->drain().has_value());
        return filled;
    }
    cap_bytes_ = cap_bytes;
    is_consistent_ = true;
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
