// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// The front of every packed form but raw, little-endian. The whole header takes packed_header_bytes; what the form adds to it is in
/// its layout, and the rest is zero.
struct PackedHeader {
    std::uint32_t form = 0;          ///< residency::PackedForm
    std::uint32_t version = 0;       ///< of that form
    std::uint64_t raw_bytes = 0;     ///< of what was packed
    std::uint64_t packed_bytes = 0;  ///< of the packed form, header included
};

inline constexpr std::uint32_t packed_header_bytes = 128;
/// The device address of a packed form, and the offset of one in a file, are multiples of it.
inline constexpr std::uint64_t packed_alignment_bytes = 512;

}}}  // namespace residency::RESIDENCY_ABI::codec
