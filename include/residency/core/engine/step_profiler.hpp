// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/core/engine/session_state.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/step_clock.hpp"
#include "residency/error.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Has the steps of eager passes timed while something streams, until all are known, and says whether the plan assumes other times. Only
/// leases on one stream that cover all of a step, or of every step of a range, and overlap no other, are timed; a failed record costs a
/// measurement, never a pass. The time of a range is shared over its steps. The plan that follows may have other ranges: they are timed again, twice at most.
/// Or the launches of one graph are timed, from begin_graph() to end_graph().
template <Device D>
class StepProfiler {
public:
    StepProfiler(SessionState<D>& shared, double threshold)
        : shared_{&shared}, threshold_{threshold}, clock_{&shared.log.steps()} {}

    /// What became of timing the steps of one schedule.
    struct Progress {
        LearningState state = LearningState::off;
        LearningReason reason = LearningReason::not_wanted;
        std::uint32_t timed_steps = 0;
        std::uint32_t overlapping_steps = 0;  ///< without a time, because their leases overlap others
        std::uint64_t passes = 0;             ///< that were read for these numbers
        std::uint64_t concluded = 0;          ///< measurements that the plan in force was compared with
        std::uint32_t rounds = 0;             ///< so often ranges were timed again
        StepClock::Measured measured{};       ///< of a schedule that is not in force
    };

    /// From now on steps are timed.
    void begin() noexcept {
        progress_.state = LearningState::measuring;
        progress_.reason = LearningReason::none;
    }
    /// Other measurements: goes on where these were left; unset: begins. Gives what became of the ones before, as far as they are complete.
    [[nodiscard]] Progress exchange(std::optional<Progress> next);
    /// The schedule has other steps: begins again.
    void restart() { static_cast<void>(exchange(std::nullopt)); }
    /// No more is measured.
    void give_up(LearningReason reason) noexcept {
        if (progress_.state != LearningState::measuring) { return; }
        progress_.state = LearningState::gave_up;
        progress_.reason = reason;
        shared_->log.end_steps();
    }
    /// Graphs that were captured are stale: another plan harms none. Measuring goes on if it ended for their sake. Blocks where the last
    /// launch of one is timed.
    void graphs_are_stale() {
        leave_graph();
        if (progress_.reason == LearningReason::captured) { begin(); }
    }

    [[nodiscard]] LearningState state() const noexcept { return progress_.state; }
    [[nodiscard]] LearningReason reason() const noexcept { return progress_.reason; }
    /// The next pass is recorded as a graph whose launches are timed. Gives what is known without it, for exchange() where that fails. Unset:
    /// there is nothing to be timed, and all is as before.
    [[nodiscard]] std::optional<Progress> begin_graph();
    /// Whether the launches of a graph are timed.
    [[nodiscard]] bool is_in_graph() const noexcept { return clock_->is_in_graph(); }
    /// Counts the graphs that were timed.
    [[nodiscard]] std::uint64_t graphs() const noexcept { return graphs_; }
    /// Blocks until the last launch of the graph is complete, and reads it: before the next one, which records the same events.
    void await_graph() {
        shared_->keep_failure(shared_->log.await_launches());
        collect();
    }
    /// Whether more launches of the graph say more.
    [[nodiscard]] bool wants_launch() const noexcept {
        return clock_->is_in_graph() && progress_.passes < StepClock::times_wanted;
    }
    /// Blocks until the last launch of the graph is complete. No launch of it is timed any more, and no eager pass. The schedule with the times of
    /// the graph, where these differ from the planned ones by more than the threshold. It is to be put in force.
    [[nodiscard]] std::optional<Schedule> end_graph(std::span<const double> planned_seconds);

    /// Steps that were timed while the schedule was in force.
    [[nodiscard]] std::uint32_t timed_steps() const noexcept { return progress_.timed_steps; }
    /// Steps that have no time, because their leases overlap others.
    [[nodiscard]] std::uint32_t overlapping_steps() const noexcept { return progress_.overlapping_steps; }
    /// Passes that were not measured, because the measured ones before them are not complete.
    [[nodiscard]] std::uint64_t passes_ahead() const noexcept { return clock_->is_full() ? passes_ahead_ : 0; }

    /// Reads what was measured, if it is complete. Does not block.
    void collect() {
        shared_->collect();
        note();
    }
    /// The schedule with the times measured so far, if they are enough and differ from the planned ones by more than the threshold.
    /// `at_once`: one time of every step is enough. The schedule is to be put in force, followed by conclude().
    [[nodiscard]] std::optional<Schedule> propose(std::span<const double> planned_seconds, bool at_once);
    /// The plan in force assumes the times measured so far. `is_new`: it came into force for them.
    void conclude(bool is_new);

    /// A pass has begun. Whether its steps are to be timed.
    [[nodiscard]] bool wants_pass();

private:
    /// So many passes that time nothing new say that the rest is not to be waited for.
    static constexpr std::uint32_t idle_passes_wanted = 3;
    /// So often the ranges of another plan are timed again.
    static constexpr std::uint32_t most_rounds = 2;

    /// Ends the timing of a graph, and keeps what it measured.
    void leave_graph() {
        if (!clock_->is_in_graph()) { return; }
        await_graph();
        give_up(LearningReason::captured);
    }
    /// What the clock has read is in progress_.
    void note();
    /// As propose(), without a question whether they are enough.
    [[nodiscard]] std::optional<Schedule> changed_times(std::span<const double> planned_seconds);

    SessionState<D>* shared_;
    double threshold_;  // of the sum of the differences over the sum of the times
    StepClock* clock_;
    Progress progress_;  // of the schedule in force; what was measured is with the clock
    std::uint64_t passes_ahead_ = 0;
    std::uint64_t graphs_ = 0;
};

template <Device D>
auto StepProfiler<D>::exchange(std::optional<Progress> next) -> Progress {
    leave_graph();
    collect();
    if (!next) {
        next.emplace();
        if (progress_.state != LearningState::off) {
            next->state = LearningState::measuring;
            next->reason = LearningReason::none;
        }
    }
    next->measured = clock_->exchange(std::move(next->measured));
    std::swap(progress_, *next);
    std::swap(progress_.measured, next->measured);
    return std::move(*next);
}

template <Device D>
void StepProfiler<D>::note() {
    const auto& measured = clock_->measured();
    if (std::exchange(progress_.passes, measured.passes) == measured.passes) { return; }
    const std::vector<bool> is_timed = measured.times.timed();
    progress_.timed_steps = static_cast<std::uint32_t>(std::count(is_timed.begin(), is_timed.end(), true));
    progress_.overlapping_steps = static_cast<std::uint32_t>(std::count_if(
        measured.steps.begin(), measured.steps.end(), [](const auto& step) { return step.is_overlapping(); }));
}

template <Device D>
auto StepProfiler<D>::begin_graph() -> std::optional<Progress> {
    const std::uint32_t steps = shared_->schedule().size();
    // An observer's own events would count as time of the steps.
    const bool is_observed = shared_->log.is_observed();
    if (progress_.state == LearningState::off || !shared_->decider->is_streaming() || is_observed || steps == 0) {
        return std::nullopt;
    }
    Progress before = exchange(std::nullopt);
    clock_->open(steps, true);
    ++graphs_;
    return before;
}

template <Device D>
std::optional<Schedule> StepProfiler<D>::end_graph(std::span<const double> planned_seconds) {
    leave_graph();
    progress_.concluded = clock_->measured().measurements;
    return progress_.timed_steps > 0 ? changed_times(planned_seconds) : std::nullopt;
}

template <Device D>
bool StepProfiler<D>::wants_pass() {
    const bool can_record = clock_->is_in_graph() || shared_->is_eager();
    if (progress_.state != LearningState::measuring || !can_record || !shared_->decider->is_streaming()) {
        return false;
    }
    const std::uint32_t steps = shared_->schedule().size();
    if (steps == 0) { return false; }
    if (!clock_->is_open()) { clock_->open(steps, false); }
    passes_ahead_ = clock_->is_full() ? passes_ahead_ + 1 : 0;
    return true;
}

template <Device D>
std::optional<Schedule> StepProfiler<D>::propose(std::span<const double> planned_seconds, bool at_once) {
    if (!clock_->is_open()) { return std::nullopt; }
    if (clock_->measured().measurements == progress_.concluded) {
        conclude(false);
        return std::nullopt;
    }
    bool is_settled = true, is_every_step_timed = true;
    for (const auto& step : clock_->measured().steps) {
        is_every_step_timed = is_every_step_timed && step.times > 0;
        is_settled = is_settled && (!step.is_wanted() || step.is_unseen());
    }
    const bool is_enough =
        is_settled || clock_->measured().idle_passes >= idle_passes_wanted || (at_once && is_every_step_timed);
    if (!is_enough) { return std::nullopt; }
    auto schedule = changed_times(planned_seconds);
    if (!schedule) { conclude(false); }
    return schedule;
}

template <Device D>
std::optional<Schedule> StepProfiler<D>::changed_times(std::span<const double> planned_seconds) {
    double difference = 0, sum = 0;
    auto known = clock_->measured().times.by_step(planned_seconds);
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (!known[i]) {
            known[i] = shared_->schedule()[static_cast<std::uint32_t>(i)].compute;
            continue;
        }
        const double seconds = std::chrono::duration<double>(*known[i]).count();
        difference += std::abs(seconds - (i < planned_seconds.size() ? planned_seconds[i] : 0.0));
        sum += seconds;
    }
    if (difference <= threshold_ * sum) { return std::nullopt; }
    auto schedule = shared_->schedule().try_with_compute(known);
    if (schedule) { return std::move(*schedule); }
    shared_->keep_failure(schedule.error());
    give_up(LearningReason::no_plan);
    return std::nullopt;
}

template <Device D>
void StepProfiler<D>::conclude(bool is_new) {
    if (!clock_->is_open()) { return; }
    progress_.concluded = clock_->measured().measurements;
    if (is_new && progress_.rounds < most_rounds && clock_->measure_again()) {
        ++progress_.rounds;
        return;
    }
    bool is_wanted = false, is_untimed = false;
    for (const auto& step : clock_->measured().steps) {
        is_wanted = is_wanted || step.is_wanted();
        is_untimed = is_untimed || step.is_untimed();
    }
    if (is_wanted) { return; }
    if (is_untimed) {
        give_up(LearningReason::untimed_steps);
        return;
    }
    progress_.state = LearningState::done;
    shared_->log.end_steps();
}

}}}  // namespace residency::RESIDENCY_ABI::core
