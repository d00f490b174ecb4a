// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// A plan reduced to its times, a max-plus system. Calls are in copy-stream order: needed_by never decreases.
struct Timeline {
    struct Call {
        double seconds = 0;              ///< on the link: latency + bytes / rate
        std::uint32_t needed_by = 0;     ///< a step
        std::uint32_t wait_step = none;  ///< none: the call waits for nothing
        bool wait_previous = false;      ///< the step that it waits for is of the pass before
    };
    std::vector<Call> calls;
    std::vector<double> compute;  ///< seconds, one for each step
};

/// Times of timelines. Results depend on the timeline alone; the working memory is kept between calls.
class TimelineSolver {
public:
    /// Seconds per pass of a pass repeated for ever, to a relative `tolerance`. Stops early where the period is known to exceed
    /// `give_up`, and returns a lower bound above that.
    [[nodiscard]] double period(const Timeline& line, double tolerance, double give_up = 1e300);

    /// Seconds from the start of a graph to its end: calls [cut, m), then calls [0, cut) of the next pass, beside the steps. With cut 0: of
    /// one pass that starts with nothing on its way. Precondition: calls [0, cut) wait for the previous pass or for nothing.
    [[nodiscard]] double captured(const Timeline& line, std::size_t cut);

    /// Steps and calls simulated so far: a measure of work that is the same on every machine.
    [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

private:
    struct Predecessor {
        std::size_t node = 0;
        double weight = 0;  // seconds of the node that it precedes
        int passes = 0;     // 1: it is of the pass before
    };
    [[nodiscard]] Predecessor predecessor(const Timeline& line, std::size_t node) const;
    [[nodiscard]] double simulated(std::size_t node) const;
    double jump(const Timeline& line, double& link, double& compute);
    double value_from(const Timeline& line, std::size_t node, double mean);

    // Steps by index, then calls: step i is node i, call k is node steps + k.
    std::vector<double> before_, after_;  // ends of the steps of the pass before and of this one, seconds
    std::vector<double> call_end_;        // seconds
    std::vector<std::uint8_t> call_waits_,
        step_waits_;                        // a call waited for a step, a step for a call, in the pass simulated last
    std::vector<std::uint32_t> last_call_;  // by step: calls that come before it
    std::vector<double> value_;             // by node
    std::vector<std::uint32_t> mark_, stack_;
    std::vector<int> shift_;
    std::uint64_t nodes_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/timeline.ipp"
#endif
