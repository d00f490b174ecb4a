// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// A number of bytes for people, exact and readable: "12,582,912 bytes (12 MiB)", "512 bytes". The unit is the largest of which there is at
/// least one.
[[nodiscard]] inline std::string in_bytes(std::uint64_t bytes) {
    std::string text = std::to_string(bytes);
    for (std::size_t at = text.size(); at > 3; at -= 3) { text.insert(at - 3, 1, ','); }
    text += bytes == 1 ? " byte" : " bytes";
    if (bytes < 1024) { return text; }
    constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    for (; value >= 1024 && unit < 3; ++unit) { value /= 1024; }
    char rounded[48];
    std::snprintf(rounded, sizeof rounded, " (%.4g %s)", value, units[unit]);
    return text + rounded;
}

}}}  // namespace residency::RESIDENCY_ABI::detail
