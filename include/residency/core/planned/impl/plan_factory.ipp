// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <variant>

#include "residency/core/engine/decider.hpp"
#include "residency/core/planned/plan_factory.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

namespace detail {

// What there is to plan, as plain data, apart from compute times. Resident storages are pinned; storages that kernels read from the
// host have no bytes. A step also reads what the next leases_at_once - 1 steps read: their leases overlap.
inline plan::Problem make_problem(const Catalog& catalog, const Schedule& schedule, const plan::Link& link,
                                  std::uint64_t chunk_bytes, std::uint32_t leases_at_once) {
    plan::Problem problem;
    problem.link = link;
    problem.chunk_bytes = chunk_bytes;
    problem.cyclic = schedule.is_cyclic();
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const Storage& storage = catalog.storages()[i];
        problem.storage_bytes.push_back(storage.placement == Placement::host ? 0 : storage.bytes);
        problem.alignment_bytes = (std::max)(problem.alignment_bytes, storage.alignment_bytes);
        if (storage.placement == Placement::resident) { problem.kept.push_back(i); }
    }
    std::vector<std::uint32_t> reads,
        seen(catalog.storages().size(), UINT32_MAX);  // by storage: the last step that it was added to
    for (std::uint32_t i = 0; i < schedule.size(); ++i) {
        reads.clear();
        for (std::uint32_t k = 0; k < leases_at_once && i + k < schedule.size(); ++k) {
            for (const StorageId id : schedule[i + k].storages) {
                if (std::exchange(seen[index(id)], i) != i) { reads.push_back(index(id)); }
            }
        }
        problem.add_step(reads);
    }
    if (schedule.empty()) { problem.add_step({}); }
    return problem;
}

// Where copies read each storage: an allocation of host memory follows the one before behind a gap, since no copy reads two. Empty if a
// storage that has bytes on the device is not in host memory.
inline std::vector<std::uint64_t> source_offsets(const Catalog& catalog, const plan::Problem& problem) {
    const std::span<const Storage> storages = catalog.storages();
    std::vector<const HostSource*> sources(storages.size(), nullptr);
    std::vector<std::uint32_t> by_host;
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        if (problem.storage_bytes[i] == 0) { continue; }
        sources[i] = std::get_if<HostSource>(&storages[i].source);
        if (sources[i] == nullptr) { return {}; }
        by_host.push_back(i);
    }
    residency::detail::sort(by_host, [&](std::uint32_t a, std::uint32_t b) {
        const HostBytes *host_a = sources[a]->host.get(), *host_b = sources[b]->host.get();
        return host_a != host_b ? std::less<>{}(host_a, host_b) : a < b;
    });
    std::vector<std::uint32_t> first(storages.size(), 0);  // of the storages in the same allocation
    for (std::size_t k = 0; k < by_host.size(); ++k) {
        const bool is_same = k > 0 && sources[by_host[k]]->host == sources[by_host[k - 1]]->host;
        first[by_host[k]] = is_same ? first[by_host[k - 1]] : by_host[k];
    }
    std::vector<std::uint64_t> begins(storages.size(), 0), offsets(storages.size(), 0);
    std::uint64_t end = 0;
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        if (sources[i] == nullptr) { continue; }
        if (first[i] == i) {
            begins[i] = end;
            end += sources[i]->host->span().size() + 1;
        }
        offsets[i] = begins[first[i]] + sources[i]->offset_bytes;
    }
    return offsets;
}

}  // namespace detail

RESIDENCY_INLINE Status PlanFactory::prepare(const Catalog& catalog, const Schedule& schedule,
                                             std::uint64_t chunk_bytes, const plan::Plan* current_plan) {
    if (leases_at_once_ == 0) { return no_leases_at_once(); }
    if (memory_bytes_per_second_) {
        auto plausible = plan::check_given_memory_rate(*memory_bytes_per_second_, "policies.memory_bytes_per_second");
        if (!plausible) { return plausible; }
    }
    if (has_own_link_) {
        if (auto plausible = plan::check_given(*link_, "policies.link"); !plausible) { return plausible; }
    }
    plan::Problem problem =
        detail::make_problem(catalog, schedule, link_.value_or(plan::Link{}), chunk_bytes, leases_at_once_);
    bool is_written = false;
    for (const Storage& storage : catalog.storages()) {
        is_written = is_written || (storage.is_mutable && storage.bytes > 0);
    }
    // Bytes that kernels have written cannot be copied again, so that the image stays as it is laid out. It is laid out for the smaller
    // floor of two layouts, since the budget may be lowered later.
    if (current_plan != nullptr && is_written) { problem.image_offsets = current_plan->data().storage_offsets; }
    auto sizes = sizes_of(problem);
    if (!sizes) { return sizes.error(); }
    if (current_plan == nullptr && is_written && !given_) {
        const plan::Image aligned = plan::lay_out(problem, plan::ImageOrder::aligned);
        const plan::Image grouped = plan::lay_out(problem, plan::ImageOrder::grouped);
        const auto floor = [&](const plan::Image& image) { return plan::floor_chunks(image, problem.steps()).chunks; };
        problem.image_offsets = floor(aligned) < floor(grouped) ? aligned.offsets : grouped.offsets;
        sizes = sizes_of(problem);
        if (!sizes) { return sizes.error(); }
    }
    problem_ = std::move(problem);
    sizes_ = *sizes;
    work_.assign(problem_.steps(), {});
    for (const Schedule::Step& step : schedule) {
        StepWork& work = work_[step.position];
        if (step.compute) { work.declared_seconds = std::chrono::duration<double>(*step.compute).count(); }
        for (const StorageId id : step.storages) {
            const Storage& storage = catalog.storage(id);
            if (storage.placement != Placement::host) { work.device_bytes += storage.bytes; }
        }
    }
    assume_times();
    return {};
}

RESIDENCY_INLINE void PlanFactory::assume_times() {
    const double memory_rate = memory_bytes_per_second_.value_or(plan::default_memory_bytes_per_second);
    problem_.compute_seconds.assign(work_.size(), 0.0);
    for (std::size_t i = 0; i < work_.size(); ++i) {
        const StepWork& work = work_[i];
        problem_.compute_seconds[i] =
            work.declared_seconds.value_or(static_cast<double>(work.device_bytes) / memory_rate);
    }
}

RESIDENCY_INLINE Result<plan::Plan> PlanFactory::make(const Catalog& catalog, std::uint64_t budget_bytes,
                                                      const CurrentPlan& current_plan) const {
    if (given_) { return check_given(catalog, budget_bytes); }
    plan::Problem problem = problem_;
    problem.budget_bytes = budget_bytes;
    plan::Options options = options_;
    options.catalog_hash = catalog.hash();
    // With these the planner may keep the order of the file, in which storages_at_once_ storages may need more chunks than the floor says.
    if (options.captured && storages_at_once_ == 0) {
        options.source_offsets = detail::source_offsets(catalog, problem);
    }
    if (current_plan.plan != nullptr) {
        options.present_offsets = current_plan.plan->data().storage_offsets;
        if (current_plan.plan->is_cyclic()) { options.present = current_plan.present; }
    }
    if (current_plan.leased != no_storage) {
        return make_under_leases(catalog, std::move(problem), options, current_plan);
    }
    return plan::make_plan(problem, options);
}

RESIDENCY_INLINE Result<plan::Plan> PlanFactory::check_given(const Catalog& catalog, std::uint64_t budget_bytes) const {
    const plan::Plan& given = *given_;
    if (given.catalog_hash() != catalog.hash()) {
        return Error{ErrorKind::mismatch, "the plan was made for another catalog: its hash is " +
                                              std::to_string(given.catalog_hash()) + ", this catalog's is " +
                                              std::to_string(catalog.hash()) + ": make it again for this one"};
    }
    if (given.held_bytes() > budget_bytes || given.chunk_bytes() != problem_.chunk_bytes) {
        return Error{ErrorKind::mismatch,
                     "the plan holds " + residency::detail::in_bytes(given.held_bytes()) + " in chunks of " +
                         residency::detail::in_bytes(given.chunk_bytes()) + "; the budget is " +
                         residency::detail::in_bytes(budget_bytes) + ", the chunks of this pool are " +
                         residency::detail::in_bytes(problem_.chunk_bytes) + ": make it again for these"};
    }
    if (auto fits = plan::check(given, problem_); !fits) {
        return fits.error().in("the plan is not for this schedule and these options: make it again for them");
    }
    return given;
}

RESIDENCY_INLINE Result<plan::Plan> PlanFactory::make_under_leases(const Catalog& catalog, plan::Problem problem,
                                                                   const plan::Options& options,
                                                                   const CurrentPlan& current_plan) const {
    problem.image_offsets = current_plan.plan->data().storage_offsets;
    const auto sizes = sizes_of(problem);
    if (!sizes) { return sizes.error(); }
    if (sizes->floor_bytes > problem.budget_bytes) {
        return Error{ErrorKind::wrong_state,
                     "a lease of " + catalog.describe(current_plan.leased) + " (" +
                         residency::detail::in_bytes(problem.storage_bytes[index(current_plan.leased)]) +
                         ") is open, so that the image stays as it is laid out, and that takes " +
                         residency::detail::in_bytes(sizes->floor_bytes) +
                         " at least: end the lease, or give more than " +
                         residency::detail::in_bytes(problem.budget_bytes),
                     BudgetNumbers{problem.budget_bytes, current_plan.budget_bytes, current_plan.held_bytes,
                                   sizes->floor_bytes, sizes->step}};
    }
    return plan::make_plan(problem, options);
}

RESIDENCY_INLINE auto PlanCache::find(const Key& key, std::span<const std::uint64_t> image, bool keeps_image,
                                      const plan::Problem& problem) -> const Entry* {
    const auto is_image = [&](const std::vector<std::uint64_t>& offsets) {
        return std::equal(offsets.begin(), offsets.end(), image.begin(), image.end());
    };
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.key == key &&
               (is_image(entry.plan.data().storage_offsets) || (!keeps_image && is_image(entry.image_before))) &&
               is_for_problem(entry.plan, problem);
    });
    if (found == entries_.end()) { return nullptr; }
    std::rotate(found, found + 1, entries_.end());
    return &entries_.back();
}

RESIDENCY_INLINE void PlanCache::add(Entry entry) {
    if (entries_.size() == most_plans) { entries_.erase(entries_.begin()); }
    entries_.push_back(std::move(entry));
}

RESIDENCY_INLINE void PlanCache::forget(const Key& key) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

}}}  // namespace residency::RESIDENCY_ABI::core
