// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// How the planned decider works at the moment. PlanPlayer::mode() derives it, in this order of precedence.
enum class PlanMode : std::uint8_t {
    unmapped,  ///< a device call failed and parts of the image may be unmapped: nothing is brought until it is mapped again
    capturing,  ///< a graph of a pass is being captured: the host must not wait, and nothing runs
    at_rest,  ///< everything is on the device and stays there: leases wait for nothing, and nothing waits for their ends
    verifying,  ///< memory may differ from what the plan assumes: each call brings only what is absent, and works around leases
    following,  ///< memory is as the plan assumes: calls are enqueued as the plan has them
};

}}}  // namespace residency::RESIDENCY_ABI::core
