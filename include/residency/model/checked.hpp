// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// a + b, or none where 64 bits do not hold it.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
    if (a > UINT64_MAX - b) { return std::nullopt; }
    return a + b;
}

/// a · b, or none where 64 bits do not hold it.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
    if (b != 0 && a > UINT64_MAX / b) { return std::nullopt; }
    return a * b;
}

/// a + b, or UINT64_MAX where 64 bits do not hold it.
[[nodiscard]] constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/// Whether [offset, offset + bytes) lies inside [0, whole).
[[nodiscard]] constexpr bool lies_inside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t whole) noexcept {
    return offset <= whole && bytes <= whole - offset;
}

}}}  // namespace residency::RESIDENCY_ABI::detail
