// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "residency/core/measure/step_clock.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void StepClock::open(std::uint32_t steps, bool in_graph) {
    if (measured_.steps.empty()) {
        measured_.steps.resize(steps);
        measured_.times.open(steps);
    }
    timed_.assign(steps, {});
    is_open_ = true;
    is_in_graph_ = in_graph;
}

RESIDENCY_INLINE std::uint64_t StepClock::begin_pass() {
    const bool is_any_wanted =
        std::ranges::any_of(measured_.steps, [](const StepCount& step) { return step.is_wanted(); });
    if (is_full() || !is_any_wanted) { return 0; }
    ++begun_;
    if (is_in_graph_) { read_ = begun_; }  // as often as it is launched
    return begun_;
}

RESIDENCY_INLINE bool StepClock::is_wanted(const StepRange& steps) const noexcept {
    if (steps.last > measured_.steps.size()) { return false; }
    for (std::uint32_t step = steps.first; step < steps.last; ++step) {
        if (measured_.steps[step].is_wanted()) { return true; }
    }
    return false;
}

RESIDENCY_INLINE void StepClock::read(const Mark& mark) {
    if (!is_open_ || mark.pass <= closed_) { return; }  // of other measurements
    switch (mark.point) {
        case Point::pass_began:
            timed_.assign(timed_.size(), {});
            open_ = 0;
            last_.reset();
            gap_ = mark.time;
            break;
        case Point::pass_ends:
            read_ = mark.pass;
            if (mark.time) { pass_ends(*mark.time); }
            break;
        case Point::lease_comes: lease_comes(mark); break;
        case Point::lease_began: lease_began(mark); break;
        case Point::lease_ends: lease_ends(mark); break;
        case Point::lease_ended: lease_ended(mark); break;
        case Point::interrupted:
            leases_ += mark.has_stream ? 1U : 0U;
            gap_.reset();
            break;
        default: break;
    }
}

RESIDENCY_INLINE void StepClock::lease_comes(const Mark& mark) {
    leases_ += mark.has_stream ? 1U : 0U;
    const AccessPoint& access = mark.access;
    if (!access.is_whole || !mark.has_stream) {
        for (std::uint32_t i = 0; access.is_scheduled && i < access.steps; ++i) {
            const std::uint32_t step = access.first_step() + i;
            if (step >= timed_.size()) { continue; }
            timed_[step].steps = {step, step + 1};
            timed_[step].was_leased = true;
        }
        if (mark.has_stream) { gap_.reset(); }
        return;
    }
    if (!mark.is_wanted) {
        gap_.reset();
        if (!is_wanted(mark.steps())) { return; }
        for (std::uint32_t i = 0; i < access.steps; ++i) { measured_.steps[access.first_step() + i].is_put_off = true; }
        return;
    }
    const StepRange steps = mark.steps();
    Timed& lease = timed(steps);
    lease.is_continued = lease.is_set && lease.steps == steps && last_ == steps && open_ == 0;
    lease.steps = steps;
    lease.was_leased = true;
    lease.is_set = false;
    lease.overlaps = lease.overlaps || mark.overlaps;
    lease.lease = leases_;
    if (lease.overlaps) { gap_.reset(); }
    if (lease.is_continued || lease.overlaps) { return; }
    lease.gap.reset();
    if (open_ == 0 && gap_ && mark.time) { lease.gap = *mark.time - *gap_; }
}

RESIDENCY_INLINE void StepClock::lease_began(const Mark& mark) {
    const StepRange steps = mark.steps();
    Timed& lease = timed(steps);
    if (!mark.is_wanted || lease.steps != steps) { return; }
    if (lease.is_started) {  // leased twice at once, maybe on two streams: neither lease says how long the steps take
        lease.overlaps = true;
        drop(lease);
    }
    if (lease.overlaps) { return; }
    if (!lease.is_continued) { lease.from = mark.time; }
    lease.is_started = lease.from.has_value();
    open_ += lease.is_started ? 1U : 0U;
}

RESIDENCY_INLINE void StepClock::lease_ends(const Mark& mark) {
    const StepRange steps = mark.steps();
    Timed& lease = timed(steps);
    if (!lease.is_started) { return; }
    drop(lease);
    if (lease.steps != steps) { return; }
    if (lease.lease != leases_) {  // another lease came while this one was open
        lease.overlaps = true;
        return;
    }
    lease.to = mark.time;
    lease.is_set = lease.to.has_value();
}

RESIDENCY_INLINE void StepClock::lease_ended(const Mark& mark) {
    const StepRange steps = mark.steps();
    last_ = steps;
    gap_ = mark.is_wanted ? mark.time : std::nullopt;
    timed(steps).after = timed(steps).is_set ? gap_ : std::nullopt;
}

RESIDENCY_INLINE auto StepClock::time_of_events() const noexcept -> Time {
    std::optional<Time> shortest;
    for (const Timed& lease : timed_) {
        if (!is_in_graph_ || !lease.is_set || !lease.after) { continue; }
        const Time time = *lease.after - *lease.to;
        shortest = shortest ? (std::min)(*shortest, time) : time;
    }
    return shortest ? 2 * (std::max)(*shortest, Time{}) : Time{};
}

RESIDENCY_INLINE void StepClock::pass_ends(Time end) {
    ++measured_.passes;
    if (open_ > 0) { gap_.reset(); }
    const Time events = time_of_events();
    const auto without_events = [&](Time time) { return (std::max)(time - events, Time{}); };
    bool is_idle = true;
    for (const Timed& lease : timed_) {
        if (!lease.was_leased || !is_wanted(lease.steps)) { continue; }
        for (std::uint32_t step = lease.steps.first; step < lease.steps.last; ++step) {
            StepCount& count = measured_.steps[step];
            count.misses = lease.is_set ? 0 : count.misses + 1;
            count.times += lease.is_set ? 1U : 0U;
            count.overlaps = !lease.is_set && lease.overlaps;
        }
        if (!lease.is_set) { continue; }
        Time time = without_events(*lease.to - *lease.from);
        if (lease.gap) { time += without_events(*lease.gap); }
        if (gap_ && last_ == lease.steps) { time += without_events(end - *gap_); }
        measured_.times.add(lease.steps, time);
        ++measured_.measurements;
        is_idle = false;
    }
    measured_.idle_passes = is_idle ? measured_.idle_passes + 1 : 0;
}

RESIDENCY_INLINE bool StepClock::measure_again() {
    const std::vector<bool> is_alone = measured_.times.timed_alone();
    bool is_any = false;
    for (std::size_t step = 0; step < measured_.steps.size(); ++step) {
        if (is_alone[step] || measured_.steps[step].times == 0) { continue; }
        measured_.steps[step] = {};
        is_any = true;
    }
    return is_any;
}

}}}  // namespace residency::RESIDENCY_ABI::core
