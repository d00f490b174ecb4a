// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// How the bytes of a storage travel.
struct Form {
    std::shared_ptr<const std::vector<PackedPart>> parts{};  ///< null: raw
    const std::byte* host = nullptr;                         ///< where the first part lies; kept alive by the catalog
    std::uint64_t raw_bytes = 0;                             ///< of the storage
    bool unpacks = false;                                    ///< false: kernels read what travels
};

}}}  // namespace residency::RESIDENCY_ABI::packed
