// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/budget/budget.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// A total of device bytes for all clients of a broker, and how it came about.
struct ResolvedTotal {
    std::uint64_t bytes = 0;        ///< the total
    std::uint64_t asked_bytes = 0;  ///< before it was clamped
    bool is_clamped = false;        ///< more was asked than is free
    std::string text;               ///< one line: what was asked, and what came of it
};

/// Resolves a total that is stated as a Budget: bytes, a share of the free memory, or automatic, which is the free memory less the
/// reserve. Clamps it to what is free: a broker promises nothing else. Error budget: a share of the weights, since a total is of no one model;
/// zero; nothing is free; or an automatic total of zero.
[[nodiscard]] RESIDENCY_INLINE Result<ResolvedTotal> resolve_total(const Budget& total, const MemoryInfo& memory,
                                                                   std::uint64_t reserve_bytes);

}}}  // namespace residency::RESIDENCY_ABI::broker

#if RESIDENCY_HEADER_ONLY
#include "residency/broker/impl/total.ipp"
#endif
