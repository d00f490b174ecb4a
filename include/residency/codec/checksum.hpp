// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// What one word of 8 bytes, the `index`-th, adds to a checksum. A sum does not depend on the order, so that threads and kernels may
/// take parts.
RESIDENCY_HOST_DEVICE constexpr std::uint64_t checksum_term(std::uint64_t index, std::uint64_t word) noexcept {
    const std::uint64_t mixed = (word ^ (index + 1) * 0x9E3779B97F4A7C15U) * 0xBF58476D1CE4E5B9U;
    return (mixed ^ mixed >> 29) * 0x94D049BB133111EBU;
}

/// The checksum of packed bytes: the terms of their words, and one of their number. Bytes behind the last count as zero. Any change of one
/// word changes it. An adversary can make collisions.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
    const std::size_t words = bytes.size() / 8;
    std::uint64_t sum = checksum_term(~std::uint64_t{0} - 1, bytes.size());
    for (std::size_t i = 0; i < words; ++i) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data() + 8 * i, sizeof word);
        sum += checksum_term(i, word);
    }
    if (bytes.size() % 8 != 0) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + 8 * words, bytes.size() % 8);
        sum += checksum_term(words, word);
    }
    return sum;
}

}}}  // namespace residency::RESIDENCY_ABI::codec
