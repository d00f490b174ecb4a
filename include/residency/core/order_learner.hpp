// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "residency/config.hpp"
#include "residency/core/learning_report.hpp"
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

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/order_learner.ipp"
#endif
