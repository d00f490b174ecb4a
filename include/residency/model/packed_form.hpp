// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// In which form the bytes of weights are packed. The numbers are those of files.
enum class PackedForm : std::uint32_t {
    raw = 0,            ///< the bytes themselves
    bf16_tiers = 1,     ///< codec::Bf16Tiers: smallest; a kernel unpacks it
    bf16_tiles = 2,     ///< codec::Bf16Tiles: kernels read it as it is
    f8_e4m3_tiers = 3,  ///< codec::F8E4m3Tiers: a kernel unpacks it
    f32_tiers = 4,      ///< codec::F32Tiers: a kernel unpacks it
};

/// A weight on the device as kernels read it packed.
struct PackedWeight {
    const std::byte* data = nullptr;    ///< device memory; null: the weight is not packed, or a lease unpacks it
    std::uint64_t bytes = 0;            ///< from there
    PackedForm form = PackedForm::raw;  ///< how they are packed
};

}}  // namespace residency::RESIDENCY_ABI
