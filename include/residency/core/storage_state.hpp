// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What is known of one storage while the program runs.
struct StorageState {
    std::byte* address = nullptr;  ///< where kernels read it; null: not on the device and not on its way
    std::uint64_t arrival = 0;     ///< the point of the copy stream at which its bytes are there; 0: always
    std::uint64_t needed_by = 0;   ///< brought ahead of its use: the moment that it was brought for
    std::uint32_t leases = 0;      ///< leases and tickets that hold it
    Placement placement = Placement::streamed;
    bool prefetched = false;          ///< brought ahead of its use, and not used yet
    bool partially_resident = false;  ///< has an address, but not all of its bytes are there or on their way
    bool demand_missed = false;       ///< this access has to bring it
};

}}}  // namespace residency::RESIDENCY_ABI::core
