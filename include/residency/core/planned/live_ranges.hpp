// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// For each step, the last step until whose end no copy overwrites its bytes. A lease that ends by then delays no copy. Computed from what
/// the calls of the plan wait for, so that it holds for every plan. Where a plan brings a storage once per pass, its range lasts at least
/// until the last step that reads it before it comes again: what the pass before brought for its last steps may leave after the first steps
/// of this one. A default-constructed object has no plan: each range is its step alone.
class LiveRanges {
public:
    LiveRanges() = default;
    /// `reads`: the steps of the plan.
    LiveRanges(const plan::Plan& plan, const UseOrder& reads);

    /// The last step until whose end no call overwrites what step `step` reads; from `step` to the last one of the pass.
    [[nodiscard]] std::uint32_t of_step(std::uint32_t step) const noexcept {
        return step < of_step_.size() ? of_step_[step] : step;
    }
    /// The last step until whose end no call overwrites these storages, which step `step` reads.
    [[nodiscard]] std::uint32_t of(std::uint32_t step, std::span<const StorageId> storages) const noexcept;

private:
    UseOrder reads_;
    std::vector<std::uint32_t> of_step_;  // by step: the least of its storages
    std::vector<std::uint32_t> longest_;  // by step: the most of its storages
    std::vector<std::size_t> offsets_;    // by step, into last_
    std::vector<std::uint32_t> last_;     // of all steps, in the order of reads_.storages_at()
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/planned/impl/live_ranges.ipp"
#endif
