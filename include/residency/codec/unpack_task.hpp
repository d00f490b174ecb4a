// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// A packed part in memory that kernels read, and the device memory for the raw bytes that it stands for. Both begin at a multiple of 16.
/// Kernels trust the packed bytes: check() of the codec has accepted them before.
struct UnpackTask {
    const std::byte* packed = nullptr;  ///< device memory, or pinned host memory under its device address
    std::byte* raw = nullptr;           ///< device memory
};

}}}  // namespace residency::RESIDENCY_ABI::codec
