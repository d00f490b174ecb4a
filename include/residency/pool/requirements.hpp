// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What a pool has to hold: sizes of streamed storages in bytes, before the pool rounds them.
struct Requirements {
    std::span<const std::uint64_t> storages;  ///< the size of each storage; none is 0
    std::span<const std::uint64_t>
        step;  ///< the size of each storage that one step needs at once; the largest one if none is known
    std::uint64_t largest_storage_bytes = 0;    ///< of all storages that the pool may have to hold
    std::uint64_t largest_alignment_bytes = 1;  ///< every address is a multiple of it
    std::uint64_t largest_scheduled_bytes = 0;  ///< the largest storage that a step reads; 0: no steps are known
};

}}}  // namespace residency::RESIDENCY_ABI::pool
