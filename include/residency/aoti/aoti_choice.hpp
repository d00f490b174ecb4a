// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "residency/config.hpp"
#include "residency/device/device.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace aoti {

/// Chooses how the runs of one method are made: eagerly until nothing more is learned of its steps, then as a graph that measures the times
/// of the steps without the host, then as a graph planned with those times, then in the way that took less time, eagerly or as that graph.
/// The smallest time of each way counts; the first runs of each are not timed.
class GraphChoice {
public:
    /// How the next run is made.
    enum class Way : std::uint8_t {
        eager,          ///< by itself
        capture_timed,  ///< captures a graph that times its steps
        timed_graph,    ///< launches that graph
        capture,        ///< captures a graph
        graph,          ///< launches that graph
    };
    using Time = std::optional<std::chrono::nanoseconds>;

    /// The first runs of each way, which are not timed.
    static constexpr std::uint32_t untimed_runs = 4;
    /// How many runs of each way are timed, at least.
    static constexpr std::uint32_t timed_runs = 4;
    /// After this number of runs that still learn, or have no time yet, the next way is tried all the same.
    static constexpr std::uint32_t most_runs = 64;

    /// How to make the next run.
    [[nodiscard]] Way way() const noexcept { return way_; }
    /// True: both ways are measured, and the next runs are made in the faster one until something changes.
    [[nodiscard]] bool is_settled() const noexcept {
        return is_measured_ && way_ == (is_graph_faster_ ? Way::graph : Way::eager);
    }
    /// The smallest time of a way, of the runs that were timed; unset: none was yet.
    /// @{
    [[nodiscard]] const Time& eager_time() const noexcept { return eager_; }
    [[nodiscard]] const Time& graph_time() const noexcept { return graph_; }
    /// @}

    /// A run was made eagerly. `time`: of an eager run that is complete, if there is a new one. `learns`: times of its steps are still
    /// learned.
    void ran_eagerly(bool learns, Time time) noexcept {
        if (way_ != Way::eager || is_settled()) { return; }
        if (learns && all_runs_ < most_runs) {
            ++all_runs_;
            return;
        }
        if (++runs_ <= untimed_runs) {
            // A graph that was the faster one is captured again, once its method runs again and again.
            if (is_graph_faster_ && runs_ == untimed_runs) { way_ = Way::capture; }
            return;
        }
        note(eager_, time);
        if (runs_ < untimed_runs + timed_runs || (!eager_ && runs_ < most_runs)) { return; }
        way_ = is_learned_ ? Way::capture : Way::capture_timed;
    }
    /// The run was captured; it is launched next.
    void captured() noexcept {
        // Its first launch says enough, should it be lost to runs of somebody else: these may come again and again.
        is_learned_ = is_learned_ || way_ == Way::capture_timed;
        way_ = way_ == Way::capture_timed ? Way::timed_graph : Way::graph;
        runs_ = 0;
    }
    /// A graph that times its steps teaches nothing any more, or nothing at all: the next one is captured without.
    void learned() noexcept { way_ = Way::capture; }
    /// The graph was launched. `time`: of a launch that is complete, if there is a new one.
    void launched(Time time) noexcept {
        if (is_measured_) { return; }
        if (++runs_ > untimed_runs) { note(graph_, time); }
        if (runs_ < untimed_runs + timed_runs || (!graph_ && runs_ < most_runs)) { return; }
        settle(!eager_ || !graph_ || *graph_ <= *eager_);
    }
    /// It cannot be captured.
    void refused() noexcept { settle(false); }
    /// The graph cannot be launched any more.
    void lost_graph() noexcept {
        way_ = Way::eager;
        runs_ = 0;
    }
    /// Another method ran: the runs do not follow each other.
    void interrupted() noexcept {
        if (way_ != Way::graph) { lost_graph(); }
    }

private:
    static void note(Time& smallest, Time time) noexcept {
        if (time) { smallest = smallest ? (std::min)(*smallest, *time) : *time; }
    }
    void settle(bool is_graph) noexcept {
        is_measured_ = true;
        is_graph_faster_ = is_graph;
        way_ = is_graph ? Way::graph : Way::eager;
    }

    Way way_ = Way::eager;
    bool is_learned_ = false;       // a graph that times its steps was captured
    bool is_measured_ = false;      // both ways, or there is one only
    bool is_graph_faster_ = false;  // where they were measured
    std::uint32_t runs_ = 0;        // of this way, one after another, once nothing is learned
    std::uint32_t all_runs_ = 0;    // that learned
    Time eager_, graph_;            // the smallest; empty: not known
};

/// Times runs on the device, each from what was enqueued before it to its end. Does not block.
template <class D>
class RunTimer {
public:
    explicit RunTimer(D& device) : device_{device} {}
    RunTimer(const RunTimer&) = delete;
    RunTimer& operator=(const RunTimer&) = delete;
    ~RunTimer() {
        for (const Time& time : times_) {
            for (const auto* event : {&time.from, &time.to}) {
                if (*event) { static_cast<void>(device_.destroy_event(**event).has_value()); }
            }
        }
    }

    /// A run begins on the stream. It is not timed where as many are under way as can be, or a call fails.
    void start(typename D::Stream stream) {
        Time& time = times_[started_ % times_.size()];
        is_timed_ = false;
        if (started_ - read_ == times_.size() || !make(time.from) || !make(time.to)) { return; }
        is_timed_ = device_.record(*time.from, stream).has_value();
    }
    /// It was enqueued.
    void stop(typename D::Stream stream, bool is_graph) {
        Time& time = times_[started_ % times_.size()];
        if (!is_timed_ || !device_.record(*time.to, stream)) { return; }
        time.is_graph = is_graph;
        ++started_;
    }
    /// The smallest time of the runs of that way that are complete and were not read before. Forgets those of the other way.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> read(bool is_graph) {
        std::optional<std::chrono::nanoseconds> smallest;
        for (; read_ < started_; ++read_) {
            const Time& time = times_[read_ % times_.size()];
            const auto done = device_.is_complete(*time.to);
            if (!done || !*done) { break; }
            const auto elapsed = device_.elapsed(*time.from, *time.to);
            if (!elapsed || time.is_graph != is_graph) { continue; }
            smallest = smallest ? (std::min)(*smallest, *elapsed) : *elapsed;
        }
        return smallest;
    }

private:
    struct Time {
        std::optional<typename D::Event> from{}, to{};
        bool is_graph = false;
    };
    [[nodiscard]] bool make(std::optional<typename D::Event>& event) {
        if (!event) {
            if (auto made = device_.create_event(Timing::on)) { event = *made; }
        }
        return event.has_value();
    }

    D& device_;
    std::array<Time, 8> times_;
    std::uint64_t started_ = 0, read_ = 0;  // runs that were timed
    bool is_timed_ = false;                 // the one that was started last
};

}}}  // namespace residency::RESIDENCY_ABI::aoti
