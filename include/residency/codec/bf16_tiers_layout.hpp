// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"

// The packed form bf16_tiers, as host and device see it.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace bf16_tiers {

/// A value rotated left by one bit is its exponent and a byte of mantissa and sign. That byte is stored as it is, in the plane S. The
/// exponents of a chunk are ranked by how often they occur, and coded in tiers:
///
///     T0  2 bits a value: ranks 0 … 2, or 3 = see T1
///     T1  2 bits a value that T0 sends on: ranks 3 … 5, or 3 = see T2
///     T2  3 bits a value that T1 sends on: ranks 6 … 12, or 7 = see T3
///     T3  16 bits a value that T2 sends on: the exponent, and above it the place of the value in its lane
///
/// All planes are positional: 16 consecutive values are a lane, 256 lanes a group. Where the entries of a lane begin is a count over
/// the lanes before it in its group, plus one index entry a group. So lanes are decoded independently. In T0, value i of a lane has bits
/// 4 (i mod 8) + 2 (i / 8) and the one above. The last group is filled up with values of rank 0 and S = 0.
struct Header {
    PackedHeader packed;       ///< what every packed form begins with
    std::uint32_t values = 0;  ///< of 16 bits; a last odd byte is in `tail`
    std::uint32_t index_at =
        0;  ///< offset of the index: for each group and the end, where it begins in T1, T2, T3, in entries
    std::uint32_t t1_at = 0;      ///< offsets of T1, T2, T3; S and T0 follow the header
    std::uint32_t t2_at = 0;      ///< the same
    std::uint32_t t3_at = 0;      ///< the same
    std::uint32_t t1_values = 0;  ///< entries in T1, T2, T3
    std::uint32_t t2_values = 0;  ///< the same
    std::uint32_t t3_values = 0;  ///< the same
    std::uint32_t ranks[4] =
        {};                  ///< exponents of ranks 0 … 2, 3 … 5, 6 … 9, 10 … 12, the lowest rank in the lowest byte
    std::uint32_t tail = 0;  ///< the last byte of an odd number
    std::uint32_t zero = 0;  ///< 0
};
static_assert(sizeof(Header) == 80 && std::has_unique_object_representations_v<Header>);

inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t lane_values = 16;
inline constexpr std::uint32_t group_values = 4096;
inline constexpr std::uint32_t group_lanes = group_values / lane_values;
inline constexpr std::uint64_t most_raw_bytes = std::uint64_t{64} << 20;

/// Where everything lies in a packed form of so many values.
struct Layout {
    std::uint32_t groups = 0;    ///< of 4,096 values
    std::uint32_t t0_at = 0;     ///< offset of T0
    std::uint32_t index_at = 0;  ///< of the index
    std::uint32_t t1_at = 0;     ///< of T1
    std::uint32_t t2_at = 0;     ///< of T2
    std::uint32_t t3_at = 0;     ///< of T3
    std::uint32_t bytes = 0;     ///< of the whole: a multiple of 16
};

RESIDENCY_HOST_DEVICE constexpr std::uint32_t up_to_16(std::uint32_t bytes) noexcept { return (bytes + 15) / 16 * 16; }

/// Lanes read whole words at the bit where their entries begin: each plane ends with words that a last lane may read beyond it.
RESIDENCY_HOST_DEVICE constexpr Layout layout_of(std::uint32_t values, std::uint32_t t1_values, std::uint32_t t2_values,
                                                 std::uint32_t t3_values) noexcept {
    Layout layout;
    layout.groups = (values + group_values - 1) / group_values;
    const std::uint32_t padded = layout.groups * group_values;
    layout.t0_at = packed_header_bytes + padded;
    layout.index_at = layout.t0_at + padded / 4;
    layout.t1_at = layout.index_at + up_to_16((layout.groups + 1) * 12);
    layout.t2_at = layout.t1_at + up_to_16((t1_values * 2 + 31) / 32 * 4 + 8);
    layout.t3_at = layout.t2_at + up_to_16((t2_values * 3 + 31) / 32 * 4 + 12);
    layout.bytes = layout.t3_at + up_to_16(t3_values * 2);
    return layout;
}

namespace detail {

RESIDENCY_HOST_DEVICE std::uint32_t count_ones(std::uint32_t bits) noexcept {
#ifdef __CUDA_ARCH__
    return static_cast<std::uint32_t>(__popc(bits));
#else
    return static_cast<std::uint32_t>(std::popcount(bits));
#endif
}
/// Bytes of b:a, chosen by the nibbles of `choice`.
RESIDENCY_HOST_DEVICE std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t choice) noexcept {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, choice);
#else
    const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
    std::uint32_t chosen = 0;
    for (int i = 0; i < 4; ++i) {
        chosen |= static_cast<std::uint32_t>(bytes >> 8 * (choice >> 4 * i & 7) & 255) << 8 * i;
    }
    return chosen;
#endif
}
/// For each nibble of `mask` that is 1, the next byte of `queue`; else the own byte.
RESIDENCY_HOST_DEVICE std::uint32_t merge(std::uint32_t own, std::uint32_t queue, std::uint32_t mask) noexcept {
    const std::uint32_t taken = mask * 15U;
    return permute(own, queue, (0x3210U & ~taken) | ((mask * 0x1110U + 0x4444U) & taken));
}
/// Ones for the first n fields of 2 bits.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t first_pairs(std::uint32_t n) noexcept {
    return n >= 16 ? ~0U : (1U << 2 * n) - 1;
}

}  // namespace detail

/// How many of a lane's values are in T1. `t0`: its word of T0.
RESIDENCY_HOST_DEVICE std::uint32_t entries_in_t1(std::uint32_t t0) noexcept {
    return detail::count_ones(t0 & t0 >> 1 & 0x55555555U);
}
/// How many are in T2. `t1`: 32 bits of T1 from the lane's first entry; `n1`: its entries.
RESIDENCY_HOST_DEVICE std::uint32_t entries_in_t2(std::uint32_t t1, std::uint32_t n1) noexcept {
    return detail::count_ones(t1 & t1 >> 1 & 0x55555555U & detail::first_pairs(n1));
}
/// Bit 3i is set where the lane's i-th entry of T2 sends on to T3. `t2`: 64 bits of T2 from its first entry; `n2`: its entries.
RESIDENCY_HOST_DEVICE std::uint64_t sent_to_t3(std::uint64_t t2, std::uint32_t n2) noexcept {
    return t2 & t2 >> 1 & t2 >> 2 & 0x249249249249U & ((std::uint64_t{1} << 3 * n2) - 1);
}
/// The exponents of a lane, value i in byte i mod 4 of word i / 4. Those that are in T3 are not meaningful.
RESIDENCY_HOST_DEVICE void exponents_of_lane(std::uint32_t t0, std::uint32_t t1, std::uint64_t t2,
                                             const std::uint32_t (&ranks)[4], std::uint32_t (&exponents)[4]) noexcept {
    std::uint32_t passed = 0;  // entries of T2 before these four values
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int word = 0; word < 4; ++word) {
        const std::uint32_t codes = t0 >> (16 * (word & 1) + 2 * (word >> 1)) & 0x3333U;
        const std::uint32_t in_t1 = codes & codes >> 1 & 0x1111U;
        const std::uint32_t n1 = detail::count_ones(in_t1);
        std::uint32_t codes1 = t1 & 255U;  // four entries of T1, a nibble each
        codes1 = (codes1 | codes1 << 4) & 0x0f0fU;
        codes1 = (codes1 | codes1 << 2) & 0x3333U;
        const std::uint32_t in_t2 = codes1 & codes1 >> 1 & 0x1111U;
        const std::uint32_t four = static_cast<std::uint32_t>(t2 >> 3 * passed) & 0xfffU;  // entries of T2
        const std::uint32_t codes2 = (four & 7U) | (four << 1 & 0x70U) | (four << 2 & 0x700U) | (four << 3 & 0x7000U);
        const std::uint32_t below =
            detail::merge(detail::permute(ranks[1], 0, codes1), detail::permute(ranks[2], ranks[3], codes2), in_t2);
        exponents[word] = detail::merge(detail::permute(ranks[0], 0, codes), below, in_t1);
        passed += detail::count_ones(in_t2 & ((1U << 4 * n1) - 1));
        t1 = n1 == 4 ? t1 >> 8 : t1 >> 2 * n1;
    }
}
/// Two values from rotated ones, each with its exponent in the upper byte.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t rotate_back(std::uint32_t pair) noexcept {
    return (pair >> 1 & 0x7fff7fffU) | (pair & 0x00010001U) << 15;
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::bf16_tiers
