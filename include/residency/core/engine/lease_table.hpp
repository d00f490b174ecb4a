// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Names a lease or a ticket. The generation tells it from a later one in the same slot. One word: two would be stored apart and loaded
/// together on the way to the caller, which costs a lease a tenth of its time.
class LeaseId {
public:
    LeaseId() = default;
    LeaseId(std::uint32_t slot, std::uint32_t generation) noexcept : value_{std::uint64_t{generation} << 32U | slot} {}
    [[nodiscard]] std::uint32_t slot() const noexcept { return static_cast<std::uint32_t>(value_); }
    [[nodiscard]] std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(value_ >> 32U); }
    [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

private:
    std::uint64_t value_ = UINT32_MAX;  // no slot
};

/// One lease or ticket.
struct LeaseRecord {
    std::span<const StorageId> storages;  ///< of the schedule, or `own`
    std::vector<StorageId> own;
    std::vector<ConsumerId> consumers;
    AccessPoint access;
    LeaseToken token;
    std::uint64_t pass = 0;  ///< the number of the pass that acquired it
    std::uint32_t generation = 0;
    bool is_open = false;
};

/// The open leases, each in a slot. Slots are reused and keep the memory of their vectors, so that a lease allocates nothing in steady
/// state.
class LeaseTable {
public:
    [[nodiscard]] std::uint64_t open_leases() const noexcept { return records_.size() - free_; }

    /// The record of the lease that open() opens next, to be written before. Invalidates references to other records.
    [[nodiscard]] LeaseRecord& next() {
        if (free_ == 0) { add(); }
        return records_[free_slots_[free_ - 1]];
    }
    /// Opens a lease without consumers, in the record next().
    [[nodiscard]] LeaseId open() {
        LeaseRecord& record = next();
        const std::uint32_t slot = free_slots_[--free_];
        record.consumers.clear();
        record.is_open = true;
        return {slot, record.generation};
    }
    /// Null if the lease is not open.
    [[nodiscard]] const LeaseRecord* find(LeaseId id) const noexcept {
        if (id.slot() >= records_.size()) { return nullptr; }
        const LeaseRecord& record = records_[id.slot()];
        return record.is_open && record.generation == id.generation() ? &record : nullptr;
    }
    [[nodiscard]] LeaseRecord* find(LeaseId id) noexcept {
        return const_cast<LeaseRecord*>(std::as_const(*this).find(id));
    }
    /// Precondition: it is open.
    void close(LeaseId id) noexcept {
        LeaseRecord& record = records_[id.slot()];
        record.is_open = false;
        ++record.generation;
        free_slots_[free_++] = id.slot();
    }
    /// Closes every open lease, each after visit(record).
    template <class Visit>
    void close_all(const Visit& visit) noexcept {
        for (std::uint32_t slot = 0; slot < records_.size() && open_leases() > 0; ++slot) {
            if (!records_[slot].is_open) { continue; }
            visit(std::as_const(records_[slot]));
            close({slot, records_[slot].generation});
        }
    }

private:
    RESIDENCY_DETAIL_COLD void add() {
        free_slots_.resize(records_.size() + 1);  // first: one that is spare does no harm
        records_.emplace_back();
        free_slots_[free_++] = static_cast<std::uint32_t>(records_.size() - 1);
    }

    std::vector<LeaseRecord> records_;
    std::vector<std::uint32_t> free_slots_;  // as many as records: of the first free_
    std::size_t free_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::core
