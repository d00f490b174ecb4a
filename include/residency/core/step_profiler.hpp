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
#include "residency/core/session_state.hpp"
#include "residency/core/step_clock.hpp"
#include "residency/error.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Times the steps of a few eager passes, once, and says whether the plan assumed other times. Only leases on one stream that cover
/// all of a step are timed; a failed record costs a measurement, never a pass.
template <Device D>
class StepProfiler {
public:
    using Stream = typename D::Stream;

    StepProfiler(SessionState<D>& shared, double threshold) : shared_{&shared}, threshold_{threshold} {}

    /// Begins to measure. Without steps there is nothing to measure.
    [[nodiscard]] Status open() {
        const std::uint32_t steps = shared_->schedule().size();
        return steps == 0 ? Status{} : clock_.open(*shared_->device, steps);
    }
    void close() noexcept { clock_.close(*shared_->device); }
    /// The schedule is another one: begins again, if it had not come to an end.
    void restart() {
        if (!clock_.is_open()) { return; }
        close();
        shared_->keep_failure(open());
    }

    /// The schedule with the measured times, once they are known and differ from the planned ones by more than the threshold. Does not
    /// block.
    [[nodiscard]] Result<std::optional<Schedule>> take_result(std::span<const double> planned_seconds);

    void pass_began(Stream stream) {
        if (is_measuring()) { shared_->keep_failure(clock_.pass_began(*shared_->device, stream)); }
    }
    [[nodiscard]] Status pass_ended(Stream stream) {
        return is_measuring() ? clock_.pass_ended(*shared_->device, stream) : Status{};
    }
    /// A lease is about to be acquired. Whether lease_began() has to follow once its stream waits for the bytes.
    [[nodiscard]] bool lease_comes(const AccessPoint& access, Stream stream) {
        if (is_measuring() && access.is_whole && !access.is_range()) {
            shared_->keep_failure(clock_.reach(*shared_->device, access.step, stream));
            return true;
        }
        clock_.interrupt();
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
        return true;
    }
    void lease_ended(const AccessPoint& access, Stream stream) {
        if (is_measuring()) { shared_->keep_failure(clock_.stopped(*shared_->device, access.step, stream)); }
    }

private:
    [[nodiscard]] bool is_measuring() const noexcept { return clock_.is_running() && shared_->is_eager(); }

    SessionState<D>* shared_;
    double threshold_;  // of the sum of the differences over the sum of the times
    StepClock<D> clock_;
};

template <Device D>
Result<std::optional<Schedule>> StepProfiler<D>::take_result(std::span<const double> planned_seconds) {
    if (!clock_.has_passes()) { return std::optional<Schedule>{}; }
    auto measured = clock_.read(*shared_->device);
    if (!measured) { return measured.error(); }
    if (measured->empty()) { return std::optional<Schedule>{}; }
    double difference = 0, sum = 0;
    for (std::size_t i = 0; i < measured->size(); ++i) {
        const double seconds = std::chrono::duration<double>((*measured)[i]).count();
        difference += std::abs(seconds - (i < planned_seconds.size() ? planned_seconds[i] : 0.0));
        sum += seconds;
    }
    close();
    auto schedule = shared_->schedule().try_with_compute(*measured);
    if (!schedule) {
        shared_->keep_failure(schedule.error());
        return std::optional<Schedule>{};
    }
    if (difference <= threshold_ * sum) { return std::optional<Schedule>{}; }
    return std::optional<Schedule>{std::move(*schedule)};
}

}}}  // namespace residency::RESIDENCY_ABI::core
