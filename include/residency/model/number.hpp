// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "residency/config.hpp"

// Checks of numbers that a caller, a file or a measurement gives. They look at the bits: under -ffast-math a compiler takes it that there
// are no NaNs and no infinities, so that comparisons and std::isfinite say what is not so. Clang takes it of arguments and results by value
// too: give what lies in memory.

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Whether x is no number.
[[nodiscard]] constexpr bool is_nan(const double& x) noexcept {
    constexpr std::uint64_t infinity = std::uint64_t{0x7FF} << 53U;  // without its sign
    return std::bit_cast<std::uint64_t>(x) << 1U > infinity;
}
/// Whether x is a number, and not infinite.
/// @{
[[nodiscard]] constexpr bool is_finite(const double& x) noexcept {
    return (std::bit_cast<std::uint64_t>(x) >> 52U & 0x7FFU) != 0x7FFU;
}
[[nodiscard]] constexpr bool is_finite(const float& x) noexcept {
    return (std::bit_cast<std::uint32_t>(x) >> 23U & 0xFFU) != 0xFFU;
}
/// @}
/// Whether x is finite and above 0.
[[nodiscard]] constexpr bool is_positive(const double& x) noexcept { return is_finite(x) && x > 0; }
/// Whether x is finite and not below 0.
[[nodiscard]] constexpr bool is_not_negative(const double& x) noexcept { return is_finite(x) && x >= 0; }
/// Whether x is one of 0 … 1.
template <std::floating_point T>
[[nodiscard]] constexpr bool is_share(const T& x) noexcept {
    return is_finite(x) && x >= 0 && x <= 1;
}

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
