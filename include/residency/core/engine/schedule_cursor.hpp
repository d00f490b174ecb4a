// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The schedule, and the position of the current pass in it. The step index never decreases, whatever the order of accesses.
class ScheduleCursor {
public:
    struct Position {
        StepIndex step_index = 0;
        std::uint32_t step = AccessPoint::nowhere;  ///< of the last access; nowhere: none yet, or no schedule
        StepIndex base = 0;                         ///< the step index of step 0 of this pass
    };
    /// What find() says beside the access point.
    struct Found {
        StepIndex base = 0;  ///< of the pass that the access belongs to
        bool has_diverged = false;
    };

    /// Called first. `strict`: a divergence is an error.
    void open(const Catalog& catalog, Schedule schedule, bool strict);
    /// Another schedule, from the next pass on.
    void change(Schedule schedule);

    [[nodiscard]] const Schedule& schedule() const noexcept { return schedule_; }
    /// Null: there is no schedule.
    [[nodiscard]] const UseOrder* order() const noexcept { return schedule_.empty() ? nullptr : &order_; }
    /// By storage: the first step that reads it. Empty: there is no schedule.
    [[nodiscard]] std::span<const std::uint32_t> first_steps() const noexcept { return first_steps_; }

    [[nodiscard]] const Position& position() const noexcept { return position_; }
    [[nodiscard]] StepIndex now() const noexcept { return position_.step_index; }
    /// Copies member by member: a copy of the whole would wait for the stores of its parts, at every lease.
    void go_to(const Position& position) noexcept {
        position_.step_index = position.step_index;
        position_.step = position.step;
        position_.base = position.base;
        if (has_started()) { pass_end_ = (std::max)(pass_end_, position.step + 1); }
    }
    void begin_pass(bool is_first) noexcept;

    /// Counts passes as if they ended after `steps` steps. The caller accesses a later step only after it has called this again.
    void expect_steps(std::uint32_t steps) noexcept;
    [[nodiscard]] std::uint32_t expected_steps() const noexcept { return expected_steps_; }
    /// The furthest step of the current pass plus 1; 0: none yet.
    [[nodiscard]] std::uint32_t pass_end() const noexcept { return pass_end_; }

    /// Writes the access point of the next acquisition, of a step, of a range of steps or of distinct storages; the cursor stays where it is.
    /// Errors: invalid_argument (no such step, or none in the range), divergence. `access` is where the lease keeps it: each copy on the way
    /// there would wait for the stores before it.
    [[nodiscard]] Status find(std::uint32_t step, AccessPoint& access, Found& found) const;
    [[nodiscard]] Status find(const StepRange& range, AccessPoint& access, Found& found) const;
    [[nodiscard]] Status find(std::span<const StorageId> storages, AccessPoint& access, Found& found) const;

private:
    void index_uses();
    /// Aligns the step index of a cyclic schedule: passes begin at multiples of the expected steps.
    void align_base() noexcept;
    [[nodiscard]] bool has_started() const noexcept { return position_.step != AccessPoint::nowhere; }
    /// The step that the schedule announces next.
    [[nodiscard]] std::uint32_t expected() const noexcept {
        const std::uint32_t next = position_.step + 1;
        return has_started() && next < schedule_.size() ? next : 0;
    }
    [[nodiscard]] bool reads(std::uint32_t step, StorageId storage) const noexcept;
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error no_step(std::uint32_t step) const;
    /// The schedule announces another step than `step`.
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error diverged(std::uint32_t step) const;
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error diverged(const std::string& came) const;

    Catalog catalog_;
    bool strict_ = false;
    Schedule schedule_;
    UseOrder order_;
    std::vector<std::uint32_t> first_steps_;
    Position position_;
    std::uint32_t expected_steps_ = 0;  // of the schedule, per pass
    std::uint32_t pass_end_ = 0;        // a step
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/engine/impl/schedule_cursor.ipp"
#endif
