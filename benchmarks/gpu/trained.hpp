// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace bench {

/// Of a normal distribution of deviation 0.02, the exponents of bf16 values at 256 quantiles.
inline std::array<std::uint8_t, 256> exponents() {
    std::array<std::uint8_t, 256> result{};
    int exponent = 60;
    for (int i = 0; i < 256; ++i) {
        const double quantile = (i + 0.5) / 256;
        while (std::erf(std::ldexp(1.0, exponent + 1 - 127) / 0.02 / std::sqrt(2.0)) < quantile) { ++exponent; }
        result[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(exponent);
    }
    return result;
}
/// Four bf16 values out of 8 random bytes: in each a byte that chooses the exponent, 7 bits of mantissa, a sign.
inline std::uint64_t trained(std::uint64_t random) {
    static const std::array<std::uint8_t, 256> table = exponents();
    std::uint64_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t bits = random >> (16 * i) & 0xffff;
        const std::uint64_t value = (bits & 0x8000) | std::uint64_t{table[bits >> 7 & 0xff]} << 7 | (bits & 0x7f);
        result |= value << (16 * i);
    }
    return result;
}

}  // namespace bench
