// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a device is given to pack and to unpack.

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Raw bytes in device memory, and where their packed form goes. Both begin at a multiple of 16.
struct PackTask {
    const std::byte* raw = nullptr;     ///< device memory
    std::byte* packed = nullptr;        ///< device memory
    std::uint32_t raw_bytes = 0;        ///< up to codec::part_bytes
    std::uint32_t room_bytes = 0;       ///< that the packed form may take; it stays raw where it needs more
    PackedForm form = PackedForm::raw;  ///< to be packed in; kernels of other forms leave it alone
    std::uint32_t zero = 0;             ///< 0
};

/// What packing came to.
struct PackResult {
    std::uint64_t checksum = 0;      ///< codec::checksum of the packed bytes; of the raw ones where there are none
    std::uint32_t packed_bytes = 0;  ///< of the packed form; 0: there is no room for it
    std::uint32_t zero = 0;          ///< 0
};

/// A packed part in memory that kernels read, and the device memory for the raw bytes that it stands for. Both begin at a multiple of 16.
/// Kernels trust the packed bytes: check() of the codec has accepted them before.
struct UnpackTask {
    const std::byte* packed = nullptr;  ///< device memory, or pinned host memory under its device address
    std::byte* raw = nullptr;           ///< device memory
};

}}}  // namespace residency::RESIDENCY_ABI::codec
