// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The plan in force when another one is made, and the state that it left.
struct CurrentPlan {
    const plan::Plan* plan = nullptr;     ///< null: there was none
    std::vector<plan::Presence> present;  ///< by chunk of its image: what memory holds
    StorageId leased =
        no_storage;  ///< a storage with an open lease, if there is any: the image stays as it is laid out
    std::uint64_t budget_bytes = 0;  ///< device bytes that the plan was made for
    std::uint64_t held_bytes = 0;    ///< device bytes, as the driver counts them
};

/// Makes plans for one catalog. Every plan that it returns is for the schedule that was prepared last, and holds no more than its budget.
class PlanFactory {
public:
    /// `leases_at_once`: the number of consecutive steps whose bytes are there together, at least 1. `link`: the caller's; unset until set_link().
    /// `given`: a plan to be used instead of making one.
    /// `memory_bytes_per_second`: unset until set_memory_rate(). `storages_at_once`: this number of the largest storages must fit together
    /// too.
    PlanFactory(plan::Options options, std::uint32_t leases_at_once, std::optional<plan::Link> link,
                std::optional<double> memory_bytes_per_second, std::optional<plan::Plan> given,
                std::uint32_t storages_at_once = 0)
        : options_{std::move(options)},
          leases_at_once_{leases_at_once},
          link_{link},
          has_own_link_{link.has_value()},
          memory_bytes_per_second_{memory_bytes_per_second},
          given_{std::move(given)},
          storages_at_once_{storages_at_once} {}

    /// Computes problem() and sizes() for a schedule. `current_plan`: null while there is none. Errors: numbers of the caller that no machine has; what the planner says of a
    /// malformed problem.
    [[nodiscard]] Status prepare(const Catalog& catalog, const Schedule& schedule, std::uint64_t chunk_bytes,
                                 const plan::Plan* current_plan);
    [[nodiscard]] std::uint32_t leases_at_once() const noexcept { return leases_at_once_; }
    [[nodiscard]] std::uint32_t storages_at_once() const noexcept { return storages_at_once_; }
    /// What there is to plan, apart from the budget.
    [[nodiscard]] const plan::Problem& problem() const noexcept { return problem_; }
    /// The smallest budget that works, and the one from which on everything is resident.
    [[nodiscard]] const plan::ChunkFloor& sizes() const noexcept { return sizes_; }

    [[nodiscard]] bool knows_link() const noexcept { return link_.has_value(); }
    void set_link(const plan::Link& link) {
        link_ = problem_.link = link;
        has_own_link_ = false;
    }
    /// The rate at which kernels read device memory.
    [[nodiscard]] bool knows_memory_rate() const noexcept { return memory_bytes_per_second_.has_value(); }
    void set_memory_rate(double bytes_per_second) {
        memory_bytes_per_second_ = bytes_per_second;
        assume_times();
    }
    [[nodiscard]] bool is_given() const noexcept { return given_.has_value(); }
    /// Whether the plans made from now on are for passes that are replayed as graphs.
    void set_captured(bool captured) noexcept { options_.captured = captured; }
    [[nodiscard]] bool is_captured() const noexcept { return options_.captured; }

    /// A plan for a budget. Errors: mismatch (the given plan is for another catalog, budget or chunk size); wrong_state (the image stays as
    /// it is, for an open lease, and needs more than the budget); those of the planner. Takes milliseconds to seconds.
    [[nodiscard]] Result<plan::Plan> make(const Catalog& catalog, std::uint64_t budget_bytes,
                                          const CurrentPlan& current_plan) const;

private:
    /// What one step takes of the device.
    struct StepWork {
        std::optional<double> declared_seconds;
        std::uint64_t device_bytes = 0;  ///< of its storages, apart from those that kernels read from the host
    };

    /// A step for which no time is declared takes its bytes over the rate at which kernels read them. Of a storage that stays on the host
    /// it reads a few rows, as of a table of embeddings: that takes no time, so that the bound is none that a pass beats.
    void assume_times();
    /// The ends of the range of budgets. Where no step reads anything, the floor holds the largest storage.
    [[nodiscard]] Result<plan::ChunkFloor> sizes_of(const plan::Problem& problem) const {
        return plan::chunk_floor(problem,
                                 problem.step_storages.empty() ? (std::max)(storages_at_once_, 1U) : storages_at_once_);
    }
    [[nodiscard]] Result<plan::Plan> check_given(const Catalog& catalog, std::uint64_t budget_bytes) const;
    /// A plan that keeps the layout of the image, hence the addresses of leased storages.
    [[nodiscard]] Result<plan::Plan> make_under_leases(const Catalog& catalog, plan::Problem problem,
                                                       const plan::Options& options,
                                                       const CurrentPlan& current_plan) const;

    plan::Options options_;
    std::uint32_t leases_at_once_;
    std::optional<plan::Link> link_;
    bool has_own_link_;  // link_ is the caller's, not measured
    std::optional<double> memory_bytes_per_second_;
    std::optional<plan::Plan> given_;
    std::uint32_t storages_at_once_;
    std::vector<StepWork> work_;  // by step of problem_
    plan::Problem problem_;       // of the schedule that was prepared last; its budget is not set
    plan::ChunkFloor sizes_;      // of that problem
};

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

        friend bool operator==(const Key& a, const Key& b) noexcept {
            return a.budget_bytes == b.budget_bytes && a.captured == b.captured && a.schedule == b.schedule;
        }
    };
    struct Entry {
        Key key;
        std::vector<std::uint64_t>
            image_before;  ///< offsets of the storages while it was made; empty: there was no image
        plan::Plan plan;
        std::shared_ptr<std::vector<StepRange>> ranges;  ///< of a pass; empty: not known yet. Shared with who uses it
        plan::Link link{};                               ///< that it was made for
    };

    /// The plan that would be made again, if it is known. `image`: offsets of the storages now; empty: there is no image. A plan of another
    /// image is one only where it was made beside this image: then the planner has seen that this image is not as good. `keeps_image`: no
    /// such plan is wanted. Null: there is none. Valid until the next call of another member.
    /// `problem`: what it would be made of.
    [[nodiscard]] RESIDENCY_INLINE const Entry* find(const Key& key, std::span<const std::uint64_t> image,
                                                     bool keeps_image, const plan::Problem& problem);
    /// A plan was made.
    RESIDENCY_INLINE void add(Entry entry);
    /// Forgets the plans for a key.
    RESIDENCY_INLINE void forget(const Key& key);

private:
    std::vector<Entry> entries_;  // the one that was wanted last at the end
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/planned/impl/plan_factory.ipp"
#endif
