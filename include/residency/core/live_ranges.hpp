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

/// How long the plan in force leaves the bytes of a step where they are: up to which step of the pass no call overwrites them. A lease
/// that is open so long is in the way of no copy. Where a plan brings a storage once per pass, that is no earlier than the last step
/// that reads it before it comes again: what the pass before has brought for its last steps may leave after the first ones. Read off the
/// waits of the calls, so that it is safe for every plan. A default one knows no plan: every range is its step.
class LiveRanges {
public:
    LiveRanges() = default;
    /// `reads`: the steps of the plan.
    LiveRanges(const plan::Plan& plan, const UseOrder& reads);

    /// The last step until whose end no call overwrites what step `step` reads; from `step` to the last one of the pass.
    [[nodiscard]] std::uint32_t of_step(std::uint32_t step) const noexcept {
        return step < of_step_.size() ? of_step_[step] : step;
    }
    /// The same of some storages that step `step` reads.
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
#include "residency/core/impl/live_ranges.ipp"
#endif
