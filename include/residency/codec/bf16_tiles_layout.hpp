// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"

// The packed form bf16_tiles, as host and device see it.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace bf16_tiles {

/// A matrix in tiles of 16 rows × 64 columns, row group by row group, filled up to whole tiles and to an even number of them across.
/// 32 lanes hold a tile in the order of mma.m16n8k16: lane 4 g + t has columns 16 t … 16 t + 15 of rows g (pairs 0 … 7) and
/// g + 8 (pairs 8 … 15), two values a 32-bit pair, the lower column in the lower half.
///
/// A value w is stored as w · 2^shift, whose exponent is 16 K + code: the code, 1 … 15, is the low exponent bits, and K is the same
/// for the whole matrix. A half has the sign in bit 15, the code in bits 7 … 10 and the mantissa in bits 0 … 6; its four idle bits
/// hold a quarter of every fourth pair. So 12 words hold 16 pairs. Code 0 is an escape: the half is zero, and an entry has the value.
/// With 16 words a lane the pairs are stored as they are, shift is 0, and there are no escapes.
///
/// Word i of a lane is the (i mod 4)-th of 16 bytes at ((i / 4) · 32 + lane) · 16 in its tile. Behind the tiles are escape blocks of
/// 32 entries, one for each 32 tiles. Entries are in the order of tile, lane and pair: bit 31 is set, then 5 bits tile within the 32,
/// 10 bits place, 16 bits of w · 2^shift. The place is that of the half in a tile of 16 words a lane. A block of more entries ends with
/// a link instead: the number of the block that goes on, bit 31 clear. 0 is no entry.
struct Header {
    PackedHeader packed;              ///< what every packed form begins with
    std::uint32_t rows = 0;           ///< of the matrix
    std::uint32_t columns = 0;        ///< the same
    std::uint32_t row_groups = 0;     ///< of 16 rows
    std::uint32_t tiles_across = 0;   ///< of 64 columns, even
    std::uint32_t words = 0;          ///< a lane and tile: 12, or 16 where the values are stored as they are
    std::int32_t shift = 0;           ///< stored values are w · 2^shift
    std::uint32_t constant = 0;       ///< the upper exponent bits of both halves of a pair, at their place
    std::uint32_t escape_blocks = 0;  ///< in all
    std::uint64_t escapes_at = 0;     ///< offset of the escape blocks; the tiles follow the header
};
static_assert(sizeof(Header) == 64 && std::has_unique_object_representations_v<Header>);

inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t tile_rows = 16, tile_columns = 64;
inline constexpr std::uint32_t packed_words = 12, plain_words = 16;
inline constexpr std::uint32_t escape_tiles = 32;    ///< that share an escape block
inline constexpr std::uint32_t escape_entries = 32;  ///< of a block
inline constexpr std::uint32_t escape_block_bytes = escape_entries * 4;
inline constexpr std::uint32_t half_mask = 0x87ff87ffU;  ///< of a pair: sign, code, mantissa

/// Bytes of a tile.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t tile_bytes(std::uint32_t words) noexcept { return words * 128; }

/// The pairs of a lane from its words, ready for mma: values of w · 2^shift. `patch`: by pair, the constant; where a half is escaped,
/// its value.
template <std::uint32_t words>
RESIDENCY_HOST_DEVICE constexpr void pairs_of_lane(const std::uint32_t (&in)[words], const std::uint32_t (&patch)[16],
                                                   std::uint32_t (&pairs)[16]) noexcept {
    if constexpr (words == plain_words) {
        for (int i = 0; i < 16; ++i) { pairs[i] = in[i]; }
    } else {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::size_t q = 0; q < 4; ++q) {
            const std::uint32_t a = in[3 * q], b = in[3 * q + 1], c = in[3 * q + 2];
            pairs[4 * q] = (a & half_mask) | patch[4 * q];
            pairs[4 * q + 1] = (b & half_mask) | patch[4 * q + 1];
            pairs[4 * q + 2] = (c & half_mask) | patch[4 * q + 2];
            std::uint32_t fourth = (a >> 11 & 0x000f000fU) | patch[4 * q + 3];
            fourth |= b >> 7 & 0x00f000f0U;
            fourth |= c >> 3 & 0x07000700U;
            fourth |= c << 1 & 0x80008000U;
            pairs[4 * q + 3] = fourth;
        }
    }
}
/// The reverse, from pairs of sign, code and mantissa, zero where a half is escaped.
RESIDENCY_HOST_DEVICE constexpr void words_of_lane(const std::uint32_t (&pairs)[16],
                                                   std::uint32_t (&words)[packed_words]) noexcept {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (std::size_t q = 0; q < 4; ++q) {
        const std::uint32_t fourth = pairs[4 * q + 3];
        words[3 * q] = pairs[4 * q] | (fourth & 0x000f000fU) << 11;
        words[3 * q + 1] = pairs[4 * q + 1] | (fourth & 0x00f000f0U) << 7;
        words[3 * q + 2] = pairs[4 * q + 2] | (fourth & 0x07000700U) << 3 | (fourth & 0x80008000U) >> 1;
    }
}

/// The place of half `half` of pair `pair` of a lane, in halves of a tile of 16 words a lane.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t place_of(std::uint32_t lane, std::uint32_t pair,
                                                       std::uint32_t half) noexcept {
    return ((pair / 4 * 32 + lane) * 4 + pair % 4) * 2 + half;
}
RESIDENCY_HOST_DEVICE constexpr std::uint32_t entry_of(std::uint32_t tile, std::uint32_t place,
                                                       std::uint32_t value) noexcept {
    return 1U << 31 | tile % escape_tiles << 26 | place << 16 | value;
}
RESIDENCY_HOST_DEVICE constexpr bool is_entry(std::uint32_t word) noexcept { return word >> 31 != 0; }
RESIDENCY_HOST_DEVICE constexpr bool is_link(std::uint32_t word) noexcept { return word != 0 && word >> 31 == 0; }

/// Whether a value keeps its meaning as w · 2^shift.
RESIDENCY_HOST_DEVICE constexpr bool can_shift(std::uint32_t value, std::int32_t shift) noexcept {
    const auto exponent = static_cast<std::int32_t>(value >> 7 & 255);
    if (shift == 0) { return true; }
    if (exponent == 0) { return (value & 127) == 0; }
    return exponent != 255 && exponent + shift >= 1 && exponent + shift <= 254;
}
/// The bits of w · 2^shift. Precondition: can_shift.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t shifted(std::uint32_t value, std::int32_t shift) noexcept {
    return (value >> 7 & 255) == 0 ? value : value + static_cast<std::uint32_t>(shift * 128);
}
/// The bits of w.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t shifted_back(std::uint32_t stored, std::int32_t shift) noexcept {
    return (stored >> 7 & 255) == 0 ? stored : (stored - static_cast<std::uint32_t>(shift * 128)) & 0xffffU;
}
/// Whether w · 2^shift, given by its bits, has a code under that constant.
RESIDENCY_HOST_DEVICE constexpr bool has_code(std::uint32_t stored, std::uint32_t constant) noexcept {
    return (stored & 0x7800U) == (constant & 0x7800U) && (stored & 0x0780U) != 0;
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::bf16_tiles
