// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A name for an object of one simulated device. A default one names nothing. Tag keeps the types apart.
template <class Tag>
struct Handle {
    std::uint32_t index = 0;       ///< of its place in the table, from 1
    std::uint32_t generation = 0;  ///< how many objects had that place before
    const void* owner = nullptr;   ///< the device that made it
    /// Compares all members.
    friend bool operator==(const Handle&, const Handle&) = default;
};

// What the handles of a SimulatedDevice name.
struct EventTag;
struct PoolTag;
struct ChunkTag;
struct GraphTag;
struct FlagTag;

}}}  // namespace residency::RESIDENCY_ABI::simulation
