// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "residency/core/access_point.hpp"
#include "residency/core/learning_report.hpp"
#include "residency/core/session_state.hpp"
#include "residency/core/step_clock.hpp"
#include "residency/error.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Has the steps of eager passes timed while something streams, until all are known, and says whether the plan assumes other times. Only
/// leases on one stream that cover all of a step are timed; a failed record costs a measurement, never a pass.
template <Device D>
class StepProfiler {
public:
    using Stream = typename D::Stream;

    StepProfiler(SessionState<D>& shared, double threshold) : shared_{&shared}, threshold_{threshold} {}

    /// From now on steps are timed. The events for it are created with the first pass that streams.
    void begin() noexcept {
        state_ = LearningState::measuring;
        reason_ = LearningReason::none;
    }
    void close() noexcept {
        clock_.close(*shared_->device);
        concluded_times_ = 0;
    }
    /// The schedule is another one: begins again.
    void restart() noexcept {
        close();
        timed_steps_ = 0;
        if (state_ == LearningState::off) { return; }
        state_ = LearningState::measuring;
        reason_ = LearningReason::none;
    }
    /// No more is measured.
    void give_up(LearningReason reason) noexcept {
        if (state_ != LearningState::measuring) { return; }
        state_ = LearningState::gave_up;
        reason_ = reason;
        close();
    }

    [[nodiscard]] LearningState state() const noexcept { return state_; }
    [[nodiscard]] LearningReason reason() const noexcept { return reason_; }
    /// Steps that were timed since the schedule came into force.
    [[nodiscard]] std::uint32_t timed_steps() const noexcept { return timed_steps_; }

    /// Reads what was measured, if it is complete. Does not block.
    void collect();
    /// The schedule with the times measured so far, if they are enough and differ from the planned ones by more than the threshold.
    /// `at_once`: one time of every step is enough. The schedule is to be put in force, followed by conclude().
    [[nodiscard]] std::optional<Schedule> propose(std::span<const double> planned_seconds, bool at_once);
    /// The plan in force assumes the times measured so far.
    void conclude() noexcept;

    void pass_began(Stream stream);
    [[nodiscard]] Status pass_ended(Stream stream) {
        return is_timing() ? clock_.pass_ended(*shared_->device, stream) : Status{};
    }
    /// A lease is about to be acquired; without a stream, a ticket. Whether lease_began() has to follow once its stream waits for the
    /// bytes.
    [[nodiscard]] bool lease_comes(const AccessPoint& access, std::optional<Stream> stream) {
        if (!is_timing()) { return false; }
        if (access.is_whole && !access.is_range() && stream) {
            shared_->keep_failure(clock_.reach(*shared_->device, access.step, *stream));
            return true;
        }
        for (std::uint32_t i = 0; access.is_announced && i < access.steps; ++i) {
            clock_.miss(access.first_step() + i);
        }
        if (stream) { clock_.interrupt(); }
        return false;
    }
    void lease_began(const AccessPoint& access, Stream stream) {
        shared_->keep_failure(clock_.start(*shared_->device, access.step, stream));
    }
    /// Something that no step accounts for was enqueued.
    void interrupt() noexcept { clock_.interrupt(); }
    /// A lease of a whole step ends on the stream. Whether lease_ended() has to follow once the use is recorded.
    [[nodiscard]] bool lease_ends(const AccessPoint& access, Stream stream) {
        if (!clock_.is_open()) { return false; }
        if (!shared_->is_eager()) {
            clock_.drop(access.step);
            return false;
        }
        shared_->keep_failure(clock_.stop(*shared_->device, access.step, stream));
        return is_timing();
    }
    void lease_ended(const AccessPoint& access, Stream stream) {
        shared_->keep_failure(clock_.stopped(*shared_->device, access.step, stream));
    }

private:
    /// So many passes that time nothing new say that the rest is not to be waited for.
    static constexpr std::uint32_t idle_passes_wanted = 3;

    [[nodiscard]] bool is_timing() const noexcept { return clock_.is_running() && shared_->is_eager(); }

    SessionState<D>* shared_;
    double threshold_;  // of the sum of the differences over the sum of the times
    StepClock<D> clock_;
    LearningState state_ = LearningState::off;
    LearningReason reason_ = LearningReason::not_wanted;
    std::uint32_t timed_steps_ = 0;
    std::uint64_t concluded_times_ = 0;  // times of steps that the plan in force was compared with
};

template <Device D>
void StepProfiler<D>::collect() {
    if (!clock_.is_open()) { return; }
    shared_->keep_failure(clock_.collect(*shared_->device));
    timed_steps_ = 0;
    for (const auto& step : clock_.steps()) { timed_steps_ += step.times > 0 ? 1U : 0U; }
}

template <Device D>
void StepProfiler<D>::pass_began(Stream stream) {
    if (state_ != LearningState::measuring || !shared_->is_eager() || !shared_->decider->is_streaming()) { return; }
    if (!clock_.is_open()) {
        const std::uint32_t steps = shared_->schedule().size();
        if (steps == 0) { return; }
        if (auto opened = clock_.open(*shared_->device, steps); !opened) {  // the next pass tries again
            shared_->keep_failure(opened);
            return;
        }
    }
    shared_->keep_failure(clock_.pass_began(*shared_->device, stream));
}

template <Device D>
std::optional<Schedule> StepProfiler<D>::propose(std::span<const double> planned_seconds, bool at_once) {
    if (!clock_.is_open()) { return std::nullopt; }
    std::uint64_t times = 0;
    bool is_settled = true, is_every_step_timed = true;
    double difference = 0, sum = 0;
    std::vector<std::optional<std::chrono::nanoseconds>> known;
    for (const auto& step : clock_.steps()) {
        times += step.times;
        is_every_step_timed = is_every_step_timed && step.times > 0;
        is_settled = is_settled && (!step.is_wanted() || (step.times == 0 && step.misses == 0));
    }
    if (times == concluded_times_) {
        conclude();
        return std::nullopt;
    }
    const bool is_enough = is_settled || clock_.idle_passes() >= idle_passes_wanted || (at_once && is_every_step_timed);
    if (!is_enough) { return std::nullopt; }
    known.reserve(clock_.steps().size());
    for (std::size_t i = 0; i < clock_.steps().size(); ++i) {
        const auto& step = clock_.steps()[i];
        known.push_back(shared_->schedule()[static_cast<std::uint32_t>(i)].compute);
        if (step.times == 0) { continue; }
        known.back() = step.smallest;
        const double seconds = std::chrono::duration<double>(step.smallest).count();
        difference += std::abs(seconds - (i < planned_seconds.size() ? planned_seconds[i] : 0.0));
        sum += seconds;
    }
    if (difference <= threshold_ * sum) {
        conclude();
        return std::nullopt;
    }
    auto schedule = shared_->schedule().try_with_compute(known);
    if (schedule) { return std::move(*schedule); }
    shared_->keep_failure(schedule.error());
    give_up(LearningReason::no_plan);
    return std::nullopt;
}

template <Device D>
void StepProfiler<D>::conclude() noexcept {
    concluded_times_ = 0;
    bool is_wanted = false, is_untimed = false;
    for (const auto& step : clock_.steps()) {
        concluded_times_ += step.times;
        is_wanted = is_wanted || step.is_wanted();
        is_untimed = is_untimed || step.is_untimed();
    }
    if (is_wanted || !clock_.is_open()) { return; }
    if (is_untimed) {
        give_up(LearningReason::untimed_steps);
        return;
    }
    state_ = LearningState::done;
    close();
}

}}}  // namespace residency::RESIDENCY_ABI::core
