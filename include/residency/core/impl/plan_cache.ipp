// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "residency/config.hpp"
#include "residency/core/plan_cache.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE auto PlanCache::find(const Key& key, std::span<const std::uint64_t> image, bool keeps_image,
                                      const plan::Problem& problem) -> const Entry* {
    const auto is_image = [&](const std::vector<std::uint64_t>& offsets) {
        return std::equal(offsets.begin(), offsets.end(), image.begin(), image.end());
    };
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.key.budget_bytes == key.budget_bytes && entry.key.captured == key.captured &&
               (is_image(entry.plan.data().storage_offsets) || (!keeps_image && is_image(entry.image_before))) &&
               is_for_problem(entry.plan, problem) && entry.key.schedule == key.schedule;
    });
    if (found == entries_.end()) { return nullptr; }
    std::rotate(found, found + 1, entries_.end());
    return &entries_.back();
}

RESIDENCY_INLINE void PlanCache::add(Entry entry) {
    if (entries_.size() == most_plans) { entries_.erase(entries_.begin()); }
    entries_.push_back(std::move(entry));
}

RESIDENCY_INLINE void PlanCache::keep_budget(std::uint64_t budget_bytes) {
    const auto is_other = [&](const Entry& entry) { return entry.key.budget_bytes != budget_bytes; };
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(), is_other), entries_.end());
}

}}}  // namespace residency::RESIDENCY_ABI::core
