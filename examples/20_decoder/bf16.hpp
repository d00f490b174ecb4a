// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace decoder {

/// The upper half of a float, as files and GPUs have it.
struct Bf16 {
    std::uint16_t bits = 0;
};

[[nodiscard]] inline float to_float(Bf16 value) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
/// To the nearest, halves to even; NaN stays NaN.
[[nodiscard]] inline Bf16 to_bf16(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) { return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)}; }
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U)};
}
/// What is left of a float that goes through memory.
[[nodiscard]] inline float rounded(float value) noexcept { return to_float(to_bf16(value)); }

}  // namespace decoder
