// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Where one storage is. Online: if `address` is not null, its bytes are on the device at `arrival` of the copy stream. Planned: the address is
/// set as long as the plan is in force, and the ChunkStore knows which of its bytes are there.
struct StorageState {
    /// Written by ChunkStore, StorageCache and ResidentStore only.
    std::byte* address = nullptr;  ///< where it travels to; null, online: not on the device, and no copy is enqueued
    /// Written by packed::UnpackMemory only.
    std::byte* unpacked = nullptr;  ///< where kernels read it, unpacked; null: at `address`
    /// Written by CopyScheduler, and without copies from the host by PoolResizer and GraphRunner.
    std::uint64_t arrival = 0;    ///< the point of the copy stream after its copy, or its unpacking; 0: it has arrived
    std::uint64_t needed_by = 0;  ///< of a prefetched storage: the step index that it was fetched for
    std::uint32_t leases = 0;     ///< open leases and tickets that cover it
    Placement placement = Placement::streamed;
    bool prefetched = false;          ///< fetched before its use, and not used yet
    bool partially_resident = false;  ///< has an address, but only a part of its bytes is on the device or enqueued
    bool demand_missed : 1 = false;   ///< the current access has to fetch it
    bool was_missed : 1 = false;      ///< the last access had to fetch it
    bool was_evicted : 1 = false;     ///< it had been on the device before, of an online composition
};

}}}  // namespace residency::RESIDENCY_ABI::core
