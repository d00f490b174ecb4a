// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// Where the bytes of a model are before they are copied to the device.
enum class Tier : std::uint8_t {
    automatic,  ///< the first of the others that the machine has room for
    pinned,     ///< in page-locked memory, which the device copies by itself
    pageable,   ///< in ordinary memory, which goes through a pinned ring
    file,       ///< on disk: direct reads into the pinned ring
};

[[nodiscard]] constexpr const char* name(Tier tier) noexcept {
    switch (tier) {
        case Tier::automatic: return "automatic";
        case Tier::pinned: return "pinned";
        case Tier::pageable: return "pageable";
        case Tier::file: return "file";
    }
    return "?";
}

}}}  // namespace residency::RESIDENCY_ABI::host
