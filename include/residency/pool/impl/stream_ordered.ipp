// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/pool/stream_ordered.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

RESIDENCY_INLINE std::uint64_t segment_bytes(std::span<const std::uint64_t> sizes, std::uint64_t rounding_bytes,
                                             std::uint64_t granule_bytes) {
    std::uint64_t own = 0, others = 0, largest_other = 0;
    for (const std::uint64_t bytes : sizes) {
        const std::uint64_t taken = round_up(bytes, rounding_bytes);
        if (taken >= granule_bytes - granule_bytes / 2) {
            own += round_up(taken, granule_bytes);
        } else {
            others += taken;
            largest_other = (std::max)(largest_other, taken);
        }
    }
    const std::uint64_t least =
        others <= granule_bytes ? granule_bytes : granule_bytes - largest_other + rounding_bytes;
    return own + (others + least - 1) / least * granule_bytes;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
