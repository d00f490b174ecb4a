// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>

#include "residency/core/planned/step_retirement.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE StepRetirement::StepRetirement(std::uint32_t steps, std::size_t consumers)
    : window_{2 * std::size_t{steps}}, leases_(window_, 0), points_(consumers, std::vector<EventPoint>(window_, 0)) {}

RESIDENCY_INLINE void StepRetirement::go_to(std::uint64_t current, std::uint64_t ended) noexcept {
    current_ = current;
    ended_ = ended;
}

RESIDENCY_INLINE std::uint64_t StepRetirement::open_leases() const noexcept {
    return std::accumulate(leases_.begin(), leases_.end(), std::uint64_t{0});
}

}}}  // namespace residency::RESIDENCY_ABI::core
