// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/link.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What another plan follows.
struct CurrentPlan {
    const plan::Plan* plan = nullptr;     ///< null: there was none
    std::vector<plan::Presence> present;  ///< by chunk of its image
    StorageId leased = no_storage;        ///< one that an open lease keeps where it is, if there is any
    std::uint64_t budget_bytes = 0;
    std::uint64_t held_bytes = 0;
};

/// Makes the plans for one catalog: what there is to plan, its floor, and a plan for each budget.
class PlanFactory {
public:
    /// `leases_at_once`: steps whose bytes have to be there together, at least 1. `link`: unset until set_link(). `given`: instead of
    /// making one.
    PlanFactory(plan::Options options, std::uint32_t leases_at_once, std::optional<plan::Link> link,
                std::optional<plan::Plan> given)
        : options_{std::move(options)}, leases_at_once_{leases_at_once}, link_{link}, given_{std::move(given)} {}

    /// What a schedule asks for; `in_force` is null while there is no plan.
    [[nodiscard]] Status prepare(const Catalog& catalog, const Schedule& schedule, std::uint64_t chunk_bytes,
                                 const plan::Plan* current_plan);
    [[nodiscard]] const plan::Problem& problem() const noexcept { return problem_; }
    [[nodiscard]] const plan::ChunkFloor& sizes() const noexcept { return sizes_; }

    [[nodiscard]] bool knows_link() const noexcept { return link_.has_value(); }
    void set_link(const plan::Link& link) noexcept { link_ = problem_.link = link; }
    [[nodiscard]] bool is_given() const noexcept { return given_.has_value(); }
    /// Plans are for passes that are replayed as graphs from now on, or not.
    void set_captured(bool captured) noexcept { options_.captured = captured; }

    /// Errors: mismatch (the given plan is for another catalog, budget or chunk size); wrong_state (a lease keeps the image as it lies,
    /// and that takes more than the budget); or the planner's.
    [[nodiscard]] Result<plan::Plan> make(const Catalog& catalog, std::uint64_t budget_bytes,
                                          const CurrentPlan& current_plan) const;

private:
    [[nodiscard]] Result<plan::Plan> check_given(const Catalog& catalog, std::uint64_t budget_bytes) const;
    /// What is leased keeps its address: the image stays as it is.
    [[nodiscard]] Result<plan::Plan> make_under_leases(const Catalog& catalog, plan::Problem problem,
                                                       const plan::Options& options,
                                                       const CurrentPlan& current_plan) const;

    plan::Options options_;
    std::uint32_t leases_at_once_;
    std::optional<plan::Link> link_;
    std::optional<plan::Plan> given_;
    plan::Problem problem_;
    plan::ChunkFloor sizes_;
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/plan_factory.ipp"
#endif
