// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/engine/copy_scheduler.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Keeps track of the uses of weights that no event records, so that the host waits for them before their bytes are overwritten; the
/// copy stream waits for recorded uses only. There are two kinds: uses of residents, as long as residents stay at home, and *lost* uses,
/// whose event could not be recorded.
template <Device D>
class UnrecordedUses {
public:
    /// Keeps the reference.
    explicit UnrecordedUses(const DeciderContext<D>& context) noexcept : context_{&context} {}

    /// The event of a use could not be recorded.
    void note_lost() noexcept { has_lost_ = true; }
    [[nodiscard]] bool has_lost() const noexcept { return has_lost_; }
    /// Lost uses are those of a capture that was given up: they never run.
    void forget_lost() noexcept { has_lost_ = false; }
    /// Blocks until lost uses are complete, if there are any.
    [[nodiscard]] Status wait_for_lost_uses() {
        if (!has_lost_) { return {}; }
        if (auto drained = context_->copy_scheduler->drain_device(); !drained) { return drained; }
        has_lost_ = false;
        return {};
    }

    /// Whether the ends of leases on residents are recorded.
    [[nodiscard]] bool records_residents() const noexcept { return records_residents_; }
    /// Precondition of true: the uses of residents so far are complete.
    void set_records_residents(bool are_recorded) noexcept { records_residents_ = are_recorded; }
    /// Allows evicting residents: leases on them are recorded from now on. Blocks until earlier, unrecorded uses are complete.
    [[nodiscard]] Status record_residents() {
        if (records_residents_) { return {}; }
        if (auto drained = context_->copy_scheduler->drain_all(); !drained) { return drained; }
        records_residents_ = true;
        return {};
    }

private:
    const DeciderContext<D>* context_;
    bool has_lost_ = false;
    bool records_residents_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::core
