// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/core/engine/schedule_cursor.hpp"
#include "residency/core/measure/report_text.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void ScheduleCursor::open(const Catalog& catalog, Schedule schedule, bool strict) {
    catalog_ = catalog;
    schedule_ = std::move(schedule);
    strict_ = strict;
    index_uses();
}

RESIDENCY_INLINE void ScheduleCursor::change(Schedule schedule) {
    schedule_ = std::move(schedule);
    index_uses();
    position_.base = position_.step_index + 1;
    align_base();
}

RESIDENCY_INLINE void ScheduleCursor::align_base() noexcept {
    if (schedule_.empty() || !schedule_.is_cyclic()) { return; }
    if (const StepIndex beyond = position_.base % expected_steps_; beyond > 0) {
        position_.base += expected_steps_ - beyond;
    }
}

RESIDENCY_INLINE void ScheduleCursor::expect_steps(std::uint32_t steps) noexcept {
    expected_steps_ = steps;
    if (!schedule_.is_cyclic()) { return; }
    position_.base = position_.step_index + 1;
    align_base();
    if (has_started()) { position_.step_index = position_.base + position_.step; }
}

RESIDENCY_INLINE void ScheduleCursor::index_uses() {
    order_ = schedule_.use_order();
    expected_steps_ = schedule_.size();
    first_steps_.assign(schedule_.empty() ? 0 : catalog_.storages().size(), 0);
    for (std::uint32_t i = 0; i < first_steps_.size(); ++i) {
        const auto uses = order_.uses(StorageId{i});
        first_steps_[i] = uses.empty() ? 0 : uses.front();
    }
}

RESIDENCY_INLINE void ScheduleCursor::begin_pass(bool is_first) noexcept {
    if (!schedule_.empty()) {
        if (schedule_.is_cyclic() && !is_first) { position_.base += expected_steps_; }
        if (!schedule_.is_cyclic()) { position_.step_index = 0; }
    }
    position_.step = AccessPoint::nowhere;
    pass_end_ = 0;
}

RESIDENCY_INLINE Status ScheduleCursor::find(std::uint32_t step, AccessPoint& access, Found& found) const {
    if (step >= schedule_.size()) { return no_step(step); }
    access = {};
    access.step = step;
    found.base = position_.base;
    found.has_diverged = position_.step != step && step != expected();
    if (position_.step == step) {
        access.step_index = position_.step_index;
        return {};
    }
    if (found.has_diverged && strict_) { return diverged(step); }
    if (schedule_.is_cyclic()) {
        if (has_started() && step < position_.step) { found.base += expected_steps_; }
        access.step_index = found.base + step;
    } else {
        access.step_index = std::max<StepIndex>(position_.step_index, step);
    }
    return {};
}

RESIDENCY_INLINE Status ScheduleCursor::find(const StepRange& range, AccessPoint& access, Found& found) const {
    if (range.first >= range.last || range.last > schedule_.size()) {
        return Error{ErrorKind::invalid_argument, "steps [" + std::to_string(range.first) + ", " +
                                                      std::to_string(range.last) + ") of a schedule of " +
                                                      std::to_string(schedule_.size()) +
                                                      ": a range has at least one step, and ends within the schedule"};
    }
    if (auto first = find(range.first, access, found); !first) { return first; }
    access.steps = range.last - range.first;
    access.step += access.steps - 1;
    access.step_index += access.steps - 1;
    return {};
}

RESIDENCY_INLINE Status ScheduleCursor::find(std::span<const StorageId> storages, AccessPoint& access,
                                             Found& found) const {
    if (schedule_.empty() || storages.empty()) {
        access = {};
        access.step_index = position_.step_index + (schedule_.empty() ? 1 : 0);
        access.step = schedule_.empty() ? AccessPoint::nowhere : position_.step;
        found = {position_.base, false};
        return {};
    }
    const auto reads_all = [&](std::uint32_t at) {
        for (const StorageId storage : storages) {
            if (!reads(at, storage)) { return false; }
        }
        return true;
    };
    // The step that is current, the next one that reads all of it, or the first in the schedule that does.
    std::uint32_t step = has_started() ? position_.step : 0;
    bool announced = has_started() && reads_all(step);
    if (!announced) {
        const std::uint32_t from = has_started() ? position_.step + 1 : 0;
        const auto uses = order_.uses(storages.front());
        const auto next = std::lower_bound(uses.begin(), uses.end(), from);
        const auto fits = std::find_if(next, uses.end(), reads_all);
        const auto at = fits != uses.end() ? fits : std::find_if(uses.begin(), next, reads_all);
        announced = fits != uses.end() || at != next;
        if (announced) {
            step = *at;
        } else if (!has_started() || !reads(step, storages.front())) {
            if (!uses.empty()) { step = next != uses.end() ? *next : uses.front(); }
        }
    }
    if (!announced && strict_) { return diverged(catalog_.describe(storages.front())); }
    if (auto placed = find(step, access, found); !placed) { return placed; }
    found.has_diverged = found.has_diverged || !announced;
    access.is_scheduled = announced;
    access.is_whole = announced && storages.size() == schedule_[step].storages.size();
    return {};
}

RESIDENCY_INLINE bool ScheduleCursor::reads(std::uint32_t step, StorageId storage) const noexcept {
    const auto uses = order_.uses(storage);
    return std::binary_search(uses.begin(), uses.end(), step);
}

RESIDENCY_INLINE Error ScheduleCursor::no_step(std::uint32_t step) const {
    return Error{
        ErrorKind::invalid_argument,
        schedule_.empty()
            ? "a step was asked for, and this Residency has no schedule: give Options::schedule, or acquire weights"
            : "step " + std::to_string(step) + " of a schedule of " + std::to_string(schedule_.size()) +
                  " steps, which are counted from 0: acquire one of them"};
}

RESIDENCY_INLINE Error ScheduleCursor::diverged(std::uint32_t step) const {
    return diverged(residency::detail::step_in_words(schedule_, catalog_, step));
}

RESIDENCY_INLINE Error ScheduleCursor::diverged(const std::string& came) const {
    const std::uint32_t next = expected();
    const std::string name = residency::detail::step_in_words(schedule_, catalog_, next);
    return Error{ErrorKind::divergence,
                 "the schedule says " + name + " comes next, but " + came +
                     " was asked for: acquire in the order of the schedule, or leave Options::strict out",
                 Divergence{next, name, came}};
}

}}}  // namespace residency::RESIDENCY_ABI::core
