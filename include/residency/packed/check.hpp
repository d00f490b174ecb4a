// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// Verifies a choice, and the plan of what it leaves, from their bytes alone and whatever made them. The plan passes plan::check(), and holds
/// no more than the layout leaves it. What has to stay does, has bytes that nothing else is unpacked to, and does not travel. A step
/// unpacks nothing whose packed bytes the plan does not bring for it, and nothing over bytes that stay, that an open lease covers, or that a
/// later step finds there by the list. No kernel reads what is not unpacked. The error, of kind mismatch, names the storage and the step.
[[nodiscard]] RESIDENCY_INLINE Status check(const UnpackProblem& problem, const UnpackChoice& choice,
                                            const plan::Plan& plan);

}}}  // namespace residency::RESIDENCY_ABI::packed

#if RESIDENCY_HEADER_ONLY
#include "residency/packed/impl/check.ipp"
#endif
