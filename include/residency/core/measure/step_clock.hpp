// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/mark.hpp"
#include "residency/core/measure/range_times.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Says what steps take to compute, from the marks of whichever passes run them: from the end of the wait for the bytes of a lease to the
/// end of the lease, plus the gap since the lease before (the gap after the last lease of a pass counts to that). Waits for bytes do not
/// count. A lease of a range of steps is measured as a whole. Each step is measured `times_wanted` times, and of each range the smallest
/// time is kept. Leases that overlap are not measured: one's time would hold the kernels and the waits of the other.
///
/// Up to `times_wanted` passes are measured before the first of them is complete, so that a host that never waits learns as much. Passes
/// that run by themselves are measured, or after open() for a graph its launches, less what the events take there: 1.3 us each on an H100,
/// two of them in each time.
class StepClock {
public:
    static constexpr std::uint32_t times_wanted = 3;
    /// A step that was leased but not timed in this number of measured passes in a row cannot be timed.
    static constexpr std::uint32_t most_misses = 8;

    /// How often one step was measured, since measure_again().
    struct StepCount {
        std::uint32_t times = 0;
        std::uint32_t misses = 0;  ///< measured passes in a row that leased the step and did not time it
        bool overlaps = false;     ///< the last of these, because another lease was open
        bool is_put_off = false;   ///< a pass that was measured leased it when there were no more events

        [[nodiscard]] bool is_untimed() const noexcept { return times == 0 && misses >= most_misses; }
        [[nodiscard]] bool is_wanted() const noexcept { return times < times_wanted && misses < most_misses; }
        /// No pass that was measured leased it.
        [[nodiscard]] bool is_unseen() const noexcept { return times == 0 && misses == 0 && !is_put_off; }
        /// It has no time, because its leases overlap others.
        [[nodiscard]] bool is_overlapping() const noexcept { return times == 0 && overlaps; }
    };

    /// What was measured of one schedule.
    struct Measured {
        RangeTimes times;
        std::vector<StepCount> steps;    ///< by step; empty: nothing was measured
        std::uint64_t measurements = 0;  ///< leases that were measured and read
        std::uint64_t passes = 0;        ///< that were measured and read
        std::uint32_t idle_passes = 0;   ///< passes in a row that were read and timed nothing
    };

    /// Goes on with what was measured of this schedule, if it was. `in_graph`: of the launches of a graph of the next pass.
    RESIDENCY_INLINE void open(std::uint32_t steps, bool in_graph);
    /// Keeps what was measured. Nothing is measured until the next open().
    void close() noexcept {
        is_open_ = is_in_graph_ = false;
        closed_ = read_ = begun_;
    }
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }
    [[nodiscard]] bool is_in_graph() const noexcept { return is_in_graph_; }
    /// Another schedule: closes, and goes on with what was measured of that one. Gives what was measured of this one.
    [[nodiscard]] Measured exchange(Measured next) noexcept {
        close();
        return std::exchange(measured_, std::move(next));
    }

    /// As many passes as can be measured at once could not be read yet: the next one is not measured.
    [[nodiscard]] bool is_full() const noexcept { return begun_ - read_ == times_wanted; }
    /// A pass begins. Its number, by which its marks name it; 0: it is not measured.
    [[nodiscard]] RESIDENCY_INLINE std::uint64_t begin_pass();
    /// The marks of a lease of these steps say something.
    [[nodiscard]] RESIDENCY_INLINE bool is_wanted(const StepRange& steps) const noexcept;
    /// Reads the next mark of the passes that are measured.
    RESIDENCY_INLINE void read(const Mark& mark);

    [[nodiscard]] const Measured& measured() const noexcept { return measured_; }
    /// Measures the steps anew that were measured as parts of ranges only: the next passes may have other ranges. False: there are none.
    [[nodiscard]] RESIDENCY_INLINE bool measure_again();

private:
    using Time = std::chrono::nanoseconds;

    /// What the marks of a pass have said so far of the leases that begin with one step.
    struct Timed {
        StepRange steps;          // of the last lease
        std::uint64_t lease = 0;  // the number of leases when it came
        std::optional<Time> gap;  // before it; none where leases overlap
        std::optional<Time> from, to, after;
        bool was_leased = false;
        bool is_started = false;
        bool is_continued = false;  // by another lease right after the one before
        bool overlaps = false;      // another lease
        bool is_set = false;
    };

    [[nodiscard]] Timed& timed(const StepRange& steps) noexcept { return timed_[steps.first]; }
    void drop(Timed& timed) noexcept { open_ -= std::exchange(timed.is_started, false) ? 1U : 0U; }
    RESIDENCY_INLINE void lease_comes(const Mark& mark);
    RESIDENCY_INLINE void lease_began(const Mark& mark);
    RESIDENCY_INLINE void lease_ends(const Mark& mark);
    RESIDENCY_INLINE void lease_ended(const Mark& mark);
    RESIDENCY_INLINE void pass_ends(Time end);
    /// What the two events at the ends of a time take in the graph: twice the shortest time from the one at the end of a lease to the
    /// next, with nothing between them. 0 for passes that run by themselves.
    [[nodiscard]] RESIDENCY_INLINE Time time_of_events() const noexcept;

    Measured measured_;
    bool is_open_ = false;
    bool is_in_graph_ = false;
    std::uint64_t begun_ = 0, read_ = 0;  // numbers of the last pass that was begun, and that was read
    std::uint64_t closed_ = 0;            // passes up to this one are of other measurements
    std::vector<Timed> timed_;            // by step
    std::optional<Time> gap_;             // where what no lease has taken yet begins
    std::optional<StepRange> last_;       // that ended
    std::uint32_t open_ = 0;              // leases that are timed
    std::uint64_t leases_ = 0;            // that came to a stream
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/step_clock.ipp"
#endif
