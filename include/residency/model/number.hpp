// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

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

}}}  // namespace residency::RESIDENCY_ABI::detail
