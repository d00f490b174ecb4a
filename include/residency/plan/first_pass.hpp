// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// When the first pass of a cyclic plan copies the residents: for each call, how many of Plan::residents() go before it. Empty where it is
/// best to copy each resident just before the first call of a later step, where nothing streams, and for one-shot plans. `compute`:
/// seconds, one for each step, empty where they are unknown. `there`: by chunk of the image, whether memory holds it already.
[[nodiscard]] RESIDENCY_INLINE std::vector<std::size_t> order_first_pass(const Plan& plan, const Link& link,
                                                                         std::span<const double> compute,
                                                                         const std::vector<bool>& there);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/first_pass.ipp"
#endif
