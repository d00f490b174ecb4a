// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/core/statistics.hpp"
#include "residency/model/schedule.hpp"

namespace examples {

/// A pass that tells its back end, while a timeline is recorded, which step begins, and the bytes that are held.
template <class Backend, class Weights>
class DrawnPass {
public:
    DrawnPass(Backend& backend, const Weights& weights, typename Weights::Pass& pass)
        : backend_{backend}, weights_{weights}, pass_{pass} {}

    [[nodiscard]] auto acquire(const residency::Schedule::Step& step) {
        if (backend_.is_drawing()) {
            const residency::Statistics statistics = weights_.statistics();
            backend_.begin_step(step.name.empty() ? "step " + std::to_string(step.position) : std::string{step.name},
                                statistics.held_bytes, statistics.budget_bytes);
        }
        return pass_.acquire(step);
    }

private:
    Backend& backend_;
    const Weights& weights_;
    typename Weights::Pass& pass_;
};

}  // namespace examples
