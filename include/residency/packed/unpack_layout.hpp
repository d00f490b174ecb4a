// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// Where weights are unpacked: what stays has bytes of its own; the rest shares memory with what is not unpacked at the same time. Its
/// places are part of the layout, or found when a lease unpacks.
struct UnpackLayout {
    /// No place: kernels read the storage as it travels, or no step reads it and it is larger than what steps share; or it is found.
    static constexpr std::uint64_t none = UINT64_MAX;
    static constexpr std::uint64_t alignment_bytes = 512;  ///< of each place
    /// The bytes of a place for a storage of `raw_bytes` raw bytes.
    [[nodiscard]] static constexpr std::uint64_t place_bytes(std::uint64_t raw_bytes) noexcept {
        return pool::round_up(raw_bytes, alignment_bytes);
    }

    std::vector<std::uint64_t> offset;  ///< by storage, in the memory
    std::vector<bool> stays;            ///< by storage: unpacked when the memory is taken, and never again
    std::uint64_t shared_at = 0;        ///< from here to table_at, places of different steps overlap
    std::uint64_t table_at = 0;         ///< where the table begins; at the end: the tasks go with each launch
    std::uint64_t bytes = 0;            ///< of the memory; 0: nothing is unpacked
    bool finds_places = false;          ///< of what does not stay, when a lease unpacks it
    /// Where places are found: of one of the equal parts of the shared memory, each for one lease. 0: each storage has a place of its own.
    std::uint64_t lane_bytes = 0;
    friend bool operator==(const UnpackLayout&, const UnpackLayout&) = default;  ///< compares all members
};

}}}  // namespace residency::RESIDENCY_ABI::packed
