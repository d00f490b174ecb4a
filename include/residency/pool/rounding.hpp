// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return (bytes + multiple - 1) / multiple * multiple;
}
[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return bytes / multiple * multiple;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
