// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/error.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace prefetch {

/// Proposes nothing: every storage is copied on demand.
class None {
public:
    /// What PrefetchPolicy asks for.
    /// @{
    static constexpr bool interruptible = false;

    [[nodiscard]] Status attach(const Context&) { return {}; }
    template <class Sink>
    void propose(StepIndex, Sink&&) noexcept {}
    /// @}
};
static_assert(PrefetchPolicy<None>);

}}}  // namespace residency::RESIDENCY_ABI::prefetch
