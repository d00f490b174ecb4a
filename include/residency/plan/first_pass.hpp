// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/link.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The first pass of a cyclic plan brings the residents too. By call, how many of Plan::residents() go before it at least, where more
/// than those that its step needs make that pass faster; empty where they do not, nothing streams, or the plan is for one pass.
/// `compute`: seconds, one a step, or none where they are unknown; `there`: by chunk of the image, whether memory holds it already.
RESIDENCY_INLINE std::vector<std::size_t> order_first_pass(const Plan& plan, const Link& link,
                                                           std::span<const double> compute,
                                                           const std::vector<bool>& there);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/first_pass.ipp"
#endif
