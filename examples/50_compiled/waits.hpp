// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/support/terminal.hpp"
#include "job.hpp"
#include "residency/aoti/aoti.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/stall_clock.hpp"
#include "residency/core/measure/stall_report.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/plan.hpp"
#include "residency/timeline/pass_timeline.hpp"
#include "residency/timeline/timeline_recorder.hpp"

namespace compiled {

/// Pieces of device memory that the copies of a plan take turns on.
[[nodiscard]] inline std::uint64_t ring_pieces(const residency::plan::Plan& plan) {
    std::vector<bool> is_shared(plan.slots_held());
    for (const auto& copy : plan.copies()) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { is_shared[plan.slot_of_chunk(chunk)] = true; }
    }
    return static_cast<std::uint64_t>(std::count(is_shared.begin(), is_shared.end(), true));
}

[[nodiscard]] inline double milliseconds_of(std::chrono::nanoseconds time) { return double(time.count()) / 1e6; }

/// What the last eager pass waited for, and the cause with the most time.
[[nodiscard]] inline Why why_of_pass(const residency::StallReport& report,
                                     std::span<const residency::Stalls> step_stalls,
                                     const residency::Schedule& schedule, const residency::Stalls& pass) {
    Why why;
    why.waits = pass.sum().stalls;
    why.waited_milliseconds = milliseconds_of(pass.sum().time);
    why.idle = report.idle;
    if (report.advice.empty()) { return why; }
    const residency::StallAdvice& advice = report.advice.front();
    why.cause = advice.cause;
    why.text = advice.text;
    if (advice.worst_step < step_stalls.size() && advice.worst_step < schedule.size()) {
        why.longest_milliseconds = milliseconds_of(step_stalls[advice.worst_step][advice.cause].time);
        why.step = "step " + std::to_string(advice.worst_step) + ", " + std::string{schedule[advice.worst_step].name};
    }
    return why;
}

/// What the last pass of a timeline waited for: of a graph, in which no copy is enqueued late, so that one that began late waited for memory.
[[nodiscard]] inline Why why_of_graph(const residency::PassTimeline& timeline) {
    using residency::StallCause;
    Why why;
    if (timeline.passes().empty()) { return why; }
    const auto& pass = timeline.passes().back();
    const residency::PassTimeline::Stall* longest = nullptr;
    for (const auto& stall : timeline.stalls()) {
        const auto time = stall.end - stall.start;
        if (stall.start < pass.start || stall.start >= pass.end || time < residency::core::StallClock::least_stall) {
            continue;
        }
        ++why.waits;
        why.waited_milliseconds += milliseconds_of(time);
        if (longest == nullptr || time > longest->end - longest->start) { longest = &stall; }
    }
    if (longest == nullptr) { return why; }
    why.longest_milliseconds = milliseconds_of(longest->end - longest->start);
    why.cause = timeline.began_late(*longest) ? StallCause::room : StallCause::link;
    if (const auto kernel = timeline.kernel_after(*longest)) {
        why.step = residency::PassTimeline::name_of_step(timeline.kernels()[*kernel]);
    }
    why.text = std::string{to_string(why.cause)} + ": " + examples::text_of(why.waited_milliseconds, "%.3f ms") +
               " in " + std::to_string(why.waits) + (why.waits == 1 ? " stall" : " stalls") + ", the longest " +
               examples::text_of(why.longest_milliseconds, "%.3f ms") + " at " + why.step;
    if (longest->copy) {
        const auto& copy = timeline.copies()[*longest->copy];
        why.text += ", for the copy of " + residency::PassTimeline::name_of(copy) + ", " +
                    examples::text_of(examples::mib(copy.bytes()), "%.1f MiB");
    }
    why.text += why.cause == StallCause::room ? "; the link stood idle until memory was free"
                                              : "; the link was busy all the time";
    return why;
}

/// Explains runs of one method of a model that was opened with Options::time_stalls of its weights. The recorder outlives the model.
template <class Model>
class Explainer {
public:
    using Device = typename Model::Device;
    using Stream = typename Model::Stream;

    Explainer(Model& model, residency::TimelineRecorder<Device>& recorder, std::string method,
              std::vector<residency::aoti::TensorView> inputs, Stream stream)
        : model_{model}, recorder_{recorder}, method_{std::move(method)}, inputs_{std::move(inputs)}, stream_{stream} {}

    /// Of an eager run, once nothing more is learned of the steps.
    [[nodiscard]] Why pass() {
        auto& weights = model_.weights();
        const auto run = [&] { return residency::unwrap(model_.try_run(method_, inputs_, stream_)); };
        repeat(run, [&] { return weights.statistics().learning.state != residency::LearningState::measuring; });
        weights.drain();
        weights.observe(&recorder_);
        const double milliseconds = time(run);
        weights.drain();
        Why why = why_of_pass(residency::report_stalls(weights, recorder_.timeline()), weights.step_stalls(),
                              weights.schedule(), weights.statistics().stalls.last_pass);
        weights.observe(nullptr);
        return finish(std::move(why), milliseconds);
    }
    /// Of a launch of a graph, planned with what the steps take in one.
    [[nodiscard]] Why graph()
        requires residency::CapturingDevice<Device>
    {
        {
            typename Model::RepeatedRun repeated{method_, inputs_};  // learns these times
            repeat([&] { return residency::unwrap(model_.try_run(repeated, stream_)); },
                   [&] { return repeated.is_settled(); });
        }
        auto& weights = model_.weights();
        weights.drain();
        weights.observe(&recorder_);
        Why why;
        double milliseconds = 0;
        {
            auto captured = residency::unwrap(model_.try_capture(method_, inputs_, stream_));
            const auto launch = [&] {
                recorder_.collect();  // of the launch before
                residency::unwrap(captured.try_launch(stream_));
                return 0;
            };
            repeat(launch, [] { return true; });
            milliseconds = time(launch);
            why = why_of_graph(recorder_.timeline());
        }
        weights.drain();
        weights.observe(nullptr);
        return finish(std::move(why), milliseconds);
    }

private:
    template <class Run, class IsSettled>
    void repeat(const Run& run, const IsSettled& is_settled) {
        constexpr std::uint32_t longest = 2 * residency::aoti::GraphChoice::most_runs;
        for (std::uint32_t i = 0; i < 2 || (i < longest && !is_settled()); ++i) { static_cast<void>(time(run)); }
    }
    template <class Run>
    [[nodiscard]] double time(const Run& run) {
        const auto begin = std::chrono::steady_clock::now();
        [[maybe_unused]] const auto kept = run();  // its outputs are in use until it is complete
        residency::unwrap(model_.weights().device().synchronize(stream_));
        return milliseconds_of(std::chrono::steady_clock::now() - begin);
    }
    [[nodiscard]] Why finish(Why why, double milliseconds) const {
        why.milliseconds = milliseconds;
        why.ring_pieces = ring_pieces(model_.weights().plan());
        why.piece_bytes = model_.weights().plan().chunk_bytes();
        return why;
    }

    Model& model_;
    residency::TimelineRecorder<Device>& recorder_;
    std::string method_;
    std::vector<residency::aoti::TensorView> inputs_;
    Stream stream_;
};

/// A row above the least, in words: what of it is the plan's and what the run's, and which step waited.
[[nodiscard]] inline std::string in_words(const Row& row) {
    using examples::text_of;
    const Why& why = *row.why;
    std::string text;
    if (row.bound_milliseconds > 0) {
        text += text_of(row.milliseconds / row.least(), "%.3f of the least: the plan takes ") +
                text_of(row.planned_milliseconds / row.least(), "%.3f of it, the run ") +
                text_of(row.milliseconds / row.planned_milliseconds, "%.3f of the plan; ");
    }
    if (!why.failure.empty()) { return text + "what its steps wait for could not be measured: " + why.failure; }
    text += text_of(why.milliseconds, "in a run of %.3f ms ");
    text += why.waits == 0 ? "no step waited for bytes"
                           : text_of(why.waited_milliseconds, "steps waited %.3f ms, the longest ") +
                                 text_of(why.longest_milliseconds, "%.3f ms; ") + why.text;
    text += "; " + std::to_string(why.ring_pieces) + " pieces of " +
            text_of(examples::mib(why.piece_bytes), "%.0f MiB") + " hold what is streamed";
    if (!row.choice.empty()) { text += "; " + row.choice; }
    if (!why.idle.empty()) { text += "; " + why.idle; }
    return text;
}

}  // namespace compiled
