// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/packed/layout.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// The most steps for which exact_bound() of packed weights does not take too long.
inline constexpr std::uint32_t exact_bound_steps = 400;

/// The exact bound of a pass that streams packed weights, at latency 0 of the link and byte granularity. Of each storage a share is raw and
/// stays; the rest is packed, and travels by any plan of copies. Whatever is not raw is unpacked in front of the kernels of the first step
/// that reads it, with the latency of a launch; for each later step of the pass that reads it, a share stays unpacked till then, and the rest
/// is unpacked again. The memory for that is there all the pass. No choice of shares with any plan of copies is faster: the least value of a
/// linear program whose rows are the windows in which bytes have to come. Where there are more than `most_steps` steps, or the program takes too long: a bound, not the exact one.
/// Seconds; infinite where nothing fits. Precondition: what `travels` says is well formed.
[[nodiscard]] RESIDENCY_INLINE double exact_bound(const UnpackProblem& problem, std::uint64_t budget_bytes,
                                                  std::uint32_t most_steps = exact_bound_steps);

}}}  // namespace residency::RESIDENCY_ABI::packed

#if RESIDENCY_HEADER_ONLY
#include "residency/packed/impl/bound.ipp"
#endif
