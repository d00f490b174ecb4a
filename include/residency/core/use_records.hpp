// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/copy_scheduler.hpp"
#include "residency/core/decider.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which uses of weights are recorded. Bytes are overwritten only behind recorded uses (the copy stream waits for them), so that uses
/// without a record have to be complete first: those of residents, whose leases record nothing while residents stay at home, and those
/// whose record failed.
template <Device D>
class UseRecords {
public:
    /// Keeps the reference.
    explicit UseRecords(const DeciderContext<D>& context) noexcept : context_{&context} {}

    /// The record of a use failed.
    void note_lost() noexcept { has_lost_ = true; }
    [[nodiscard]] bool has_lost() const noexcept { return has_lost_; }
    /// What was lost in a capture never runs.
    void forget_lost() noexcept { has_lost_ = false; }
    /// Blocks until lost uses are complete, if there are any.
    [[nodiscard]] Status await_lost() {
        if (!has_lost_) { return {}; }
        if (auto drained = context_->copy_scheduler->drain_device(); !drained) { return drained; }
        has_lost_ = false;
        return {};
    }

    /// Whether the ends of leases on residents are recorded, too.
    [[nodiscard]] bool includes_residents() const noexcept { return includes_residents_; }
    /// Precondition: to include them, uses of residents so far are complete.
    void set_includes_residents(bool included) noexcept { includes_residents_ = included; }
    /// Allows evicting residents: leases on them are recorded from now on. Blocks until earlier, unrecorded uses are complete.
    [[nodiscard]] Status include_residents() {
        if (includes_residents_) { return {}; }
        ++context_->counters->host_waits;
        if (auto drained = context_->copy_scheduler->drain_all(); !drained) { return drained; }
        includes_residents_ = true;
        return {};
    }

    /// Lets the copy stream wait for every recorded use.
    [[nodiscard]] Status copy_stream_wait_for_all() {
        CopyScheduler<D>& scheduler = *context_->copy_scheduler;
        for (ConsumerId id = 0; id < scheduler.consumers(); ++id) {
            if (auto waits = scheduler.copy_stream_wait(id, scheduler.last_point(id)); !waits) { return waits; }
        }
        return {};
    }

private:
    const DeciderContext<D>* context_;
    bool has_lost_ = false;
    bool includes_residents_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::core
