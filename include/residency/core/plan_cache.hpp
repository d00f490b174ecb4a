// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/step_range.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Whether a plan brings the storages with the bytes that a problem has, and lays them out so where it prescribes that.
[[nodiscard]] inline bool is_for_problem(const plan::Plan& plan, const plan::Problem& problem) noexcept {
    return plan.data().storage_bytes == problem.storage_bytes &&
           (problem.image_offsets.empty() || problem.image_offsets == plan.data().storage_offsets);
}

/// Plans that were made, each known by what it was made for. At most `most_plans` are kept: the one that was wanted least recently goes.
class PlanCache {
public:
    static constexpr std::size_t most_plans = 32;

    /// What a plan is made for, apart from what memory holds.
    struct Key {
        Schedule schedule;  ///< with the compute times that the plan assumes
        std::uint64_t budget_bytes = 0;
        bool captured = false;
    };
    struct Entry {
        Key key;
        std::vector<std::uint64_t>
            image_before;  ///< offsets of the storages while it was made; empty: there was no image
        plan::Plan plan;
        std::shared_ptr<std::vector<StepRange>>
            ranges;  ///< of a pass of the plan; empty: not known yet. Shared with who uses it
    };

    /// The plan that would be made again, if it is known. `image`: offsets of the storages now; empty: there is no image. A plan of another
    /// image is one only where it was made beside this image: then the planner has seen that this image is not as good. `keeps_image`: no
    /// such plan is wanted. Null: there is none. Valid until the next call of another member.
    /// `problem`: what it would be made of.
    [[nodiscard]] RESIDENCY_INLINE const Entry* find(const Key& key, std::span<const std::uint64_t> image,
                                                     bool keeps_image, const plan::Problem& problem);
    /// A plan was made.
    RESIDENCY_INLINE void add(Entry entry);
    /// Forgets the plans for other budgets.
    RESIDENCY_INLINE void keep_budget(std::uint64_t budget_bytes);

private:
    std::vector<Entry> entries_;  // the one that was wanted last at the end
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/plan_cache.ipp"
#endif
