// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// In which form the bytes of weights are packed. The numbers are those of files.
enum class PackedForm : std::uint32_t {
    raw = 0,         ///< the bytes themselves
    bf16_tiers = 1,  ///< codec::Bf16Tiers: smallest; a kernel unpacks it
    bf16_tiles = 2,  ///< codec::Bf16Tiles: kernels read it as it is
};

}}  // namespace residency::RESIDENCY_ABI
