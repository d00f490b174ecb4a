// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// Where the bytes of a model wait for their turn on the device.
enum class Tier : std::uint8_t {
    automatic,  ///< the first of the others that the machine has room for
    pinned,     ///< page-locked memory: the device copies it by itself
    pageable,   ///< ordinary memory: it goes through a pinned ring
    file,       ///< on disk, larger than host memory or left there: direct reads into the pinned ring
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
