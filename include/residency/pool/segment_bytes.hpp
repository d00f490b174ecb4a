// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What allocations of `sizes` bytes take of an empty driver pool at most, in any order. The pool rounds each size up to
/// `rounding_bytes`, and grows by segments of whole granules; the driver puts each allocation where it fits, else at the beginning of a
/// new segment. An allocation of half a granule or more counts with a segment of its own. Of the segments that smaller ones begin, all
/// but the last have less than the largest of these unused.
[[nodiscard]] std::uint64_t segment_bytes(std::span<const std::uint64_t> sizes, std::uint64_t rounding_bytes,
                                          std::uint64_t granule_bytes);

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/segment_bytes.ipp"
#endif
