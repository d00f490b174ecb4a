// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is learned of the schedule: its order, and where passes end.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "residency/config.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Replaces a guessed order by the order of a pass that ran. While the order is a guess, passes are recorded; an order that was learned
/// is replaced when a pass diverges from it and reads what it does not have, or in another order. A pass that leaves steps out follows it.
class OrderLearner {
public:
    /// The schedule in force is a guess. `learns`: it is to be replaced.
    void begin(bool learns) noexcept {
        origin_ = OrderOrigin::guessed;
        is_recording_ = learns_ = learns;
    }
    /// The caller gave the schedule in force; empty: there is none.
    void declare(const Schedule& schedule) noexcept {
        origin_ = schedule.empty() ? OrderOrigin::none : OrderOrigin::declared;
        is_recording_ = learns_ = false;
    }
    [[nodiscard]] OrderOrigin origin() const noexcept { return origin_; }
    /// The error of an acquisition; of a divergence from an order that the caller did not give, it says so.
    [[nodiscard]] RESIDENCY_INLINE RESIDENCY_DETAIL_COLD Error explain(const Error& error) const;
    /// Whether the next pass is to be recorded.
    [[nodiscard]] bool is_recording() const noexcept { return is_recording_; }

    /// A pass has ended. `recorded`: what it acquired; empty: it was not recorded. `has_diverged`: it did not follow `current`. Another
    /// schedule, which is to be put in force, followed by adopted() or stop(); none: the pass follows the current one, or says nothing.
    [[nodiscard]] RESIDENCY_INLINE std::optional<Schedule> propose(const Catalog& catalog, const Schedule& current,
                                                                   std::span<const StepRecord> recorded,
                                                                   bool has_diverged);
    void adopted() noexcept {
        origin_ = OrderOrigin::learned;
        is_recording_ = false;
        learns_ = ++adopted_ < most_orders;
    }
    /// The order in force stays from now on.
    void stop() noexcept { is_recording_ = learns_ = false; }

private:
    /// Passes that read in a new order each time are not planned again each time.
    static constexpr std::uint32_t most_orders = 8;

    OrderOrigin origin_ = OrderOrigin::none;
    bool learns_ = false;
    bool is_recording_ = false;
    std::uint32_t adopted_ = 0;  // orders
};

/// Predicts where the next pass ends: at the furthest end of the last few. A pass may end before the last step of the schedule, and may go
/// further than predicted.
class PassEndPredictor {
public:
    /// Begins anew, for another schedule of `steps` steps.
    void start(std::uint32_t steps) noexcept {
        steps_ = steps;
        passes_ = 0;
    }
    /// A pass has ended; its furthest step was before this one. 0: it reached no step, which says nothing.
    void note(std::uint32_t end) noexcept {
        if (end > 0) { ends_[passes_++ % ends_.size()] = end; }
    }
    /// The next pass is expected to end before this step.
    [[nodiscard]] std::uint32_t expected() const noexcept {
        return passes_ < ends_.size() ? steps_ : *std::max_element(ends_.begin(), ends_.end());
    }

private:
    std::uint32_t steps_ = 0;
    std::uint64_t passes_ = 0;             // that were noted
    std::array<std::uint32_t, 3> ends_{};  // of the last ones
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/engine/impl/order_learner.ipp"
#endif
