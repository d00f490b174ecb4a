// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"
#include "residency/model/packed_form.hpp"

// The packed forms bf16_tiers, f8_e4m3_tiers and f32_tiers, as host and device see them.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace tiers {

/// The exponents of a chunk are ranked by how often they occur, and coded in tiers:
///
///     T0  2 bits a value: ranks 0 … 2, or 3 = see T1
///     T1  2 bits a value that T0 sends on: ranks 3 … 5, or 3 = see T2
///     T2  3 bits a value that T1 sends on: ranks 6 … 12, or 7 = see T3
///     T3  16 bits a value that T2 sends on: the exponent, and above it the place of the value in its lane
///
/// Sign and mantissa, the rest of a value, are stored as they are, in the plane S; its order is that of the format (Bf16, F8E4m3, F32).
///
/// All planes are positional: 16 values are a lane, 256 lanes a group; place_of() says which values. Where the entries of a lane begin is a
/// count over the lanes before it in its group, plus one index entry a group. So lanes are decoded independently. In T0, value i of a lane
/// has bits 4 (i mod 8) + 2 (i / 8) and the one above. The last group is filled up with values of rank 0 and S = 0.
struct Header {
    PackedHeader packed;       ///< what every packed form begins with
    std::uint32_t values = 0;  ///< of the format; bytes behind the last are in `tail`
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
    std::uint32_t tail = 0;  ///< the last bytes where the bytes are no multiple of a value's, the first in the lowest
    std::uint32_t zero = 0;  ///< 0
};
static_assert(sizeof(Header) == 80 && std::has_unique_object_representations_v<Header>);

inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t lane_values = 16;
inline constexpr std::uint32_t group_values = 4096;
inline constexpr std::uint32_t group_lanes = group_values / lane_values;
inline constexpr std::uint64_t most_raw_bytes = std::uint64_t{64} << 20;

/// Where everything lies in a packed form, by its number of values.
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
template <class F>
RESIDENCY_HOST_DEVICE constexpr Layout layout_of(std::uint32_t values, std::uint32_t t1_values, std::uint32_t t2_values,
                                                 std::uint32_t t3_values) noexcept {
    Layout layout;
    layout.groups = (values + group_values - 1) / group_values;
    const std::uint32_t padded = layout.groups * group_values;
    layout.t0_at = packed_header_bytes + padded / lane_values * F::rest_words * 4;
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
/// The lower two bytes of a, each below the one of b.
RESIDENCY_HOST_DEVICE std::uint32_t zip(std::uint32_t a, std::uint32_t b) noexcept {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, 0x5140);
#else
    return (a & 0xffU) | (a & 0xff00U) << 8 | (b & 0xffU) << 8 | (b & 0xff00U) << 16;
#endif
}
/// The upper two bytes of a, each below the one of b.
RESIDENCY_HOST_DEVICE std::uint32_t zip_upper(std::uint32_t a, std::uint32_t b) noexcept {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, 0x7362);
#else
    return zip(a >> 16, b >> 16);
#endif
}
/// The lower bytes of four pairs of bytes: two pairs in `a`, two in `b`.
RESIDENCY_HOST_DEVICE std::uint32_t unzip(std::uint32_t a, std::uint32_t b) noexcept {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, 0x6420);
#else
    return (a & 0xffU) | (a >> 8 & 0xff00U) | (b & 0xffU) << 16 | (b & 0xff0000U) << 8;
#endif
}
/// Two values of 16 bits, each rotated left by one bit.
RESIDENCY_HOST_DEVICE constexpr std::uint32_t rotate(std::uint32_t pair) noexcept {
    return (pair << 1 & 0xfffefffeU) | (pair >> 15 & 0x00010001U);
}
RESIDENCY_HOST_DEVICE constexpr std::uint32_t rotate_back(std::uint32_t pair) noexcept {
    return (pair >> 1 & 0x7fff7fffU) | (pair & 0x00010001U) << 15;
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

// Formats of values. Lanes are words of values, value after value, the first in the lowest bits. `rest`: what S has of a lane.

/// 8 bits of exponent, 7 of mantissa. S: a byte a value, its mantissa above its sign.
struct Bf16 {
    using Value = std::uint16_t;                                ///< the bits of a value
    static constexpr PackedForm form = PackedForm::bf16_tiers;  ///< that it is packed in
    static constexpr std::uint32_t exponent_count = 256;        ///< that values may have
    static constexpr std::uint32_t exponent_bit = 7;            ///< the lowest of the exponent
    static constexpr std::uint32_t lane_words = 8;              ///< of values
    static constexpr std::uint32_t front_words = 4;             ///< of a lane's rest, which follow one another
    static constexpr std::uint32_t rest_words = 4;              ///< of a lane's rest

    /// The rest of a lane's values.
    RESIDENCY_HOST_DEVICE static void split(const std::uint32_t (&values)[8], std::uint32_t* rest) noexcept {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::size_t word = 0; word < 4; ++word) {
            rest[word] = detail::unzip(detail::rotate(values[2 * word]), detail::rotate(values[2 * word + 1]));
        }
    }
    /// A lane's values. `exponents`: as exponents_of_lane() gives them.
    RESIDENCY_HOST_DEVICE static void join(const std::uint32_t* rest, const std::uint32_t (&exponents)[4],
                                           std::uint32_t (&values)[8]) noexcept {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::size_t word = 0; word < 4; ++word) {
            values[2 * word] = detail::rotate_back(detail::zip(rest[word], exponents[word]));
            values[2 * word + 1] = detail::rotate_back(detail::zip_upper(rest[word], exponents[word]));
        }
    }
};

/// 4 bits of exponent, 3 of mantissa. S: 4 bits a value, its sign above its mantissa; bytes of values 0 … 3 with values 4 … 7 above them, then of
/// 8 … 11 with 12 … 15.
struct F8E4m3 {
    /// As those of Bf16.
    /// @{
    using Value = std::uint8_t;
    static constexpr PackedForm form = PackedForm::f8_e4m3_tiers;
    static constexpr std::uint32_t exponent_count = 16;
    static constexpr std::uint32_t exponent_bit = 3;
    static constexpr std::uint32_t lane_words = 4;
    static constexpr std::uint32_t front_words = 2;
    static constexpr std::uint32_t rest_words = 2;

    RESIDENCY_HOST_DEVICE static void split(const std::uint32_t (&values)[4], std::uint32_t* rest) noexcept {
        const auto rest_of = [](std::uint32_t four) { return (four & 0x07070707U) | (four >> 4 & 0x08080808U); };
        rest[0] = rest_of(values[0]) | rest_of(values[1]) << 4;
        rest[1] = rest_of(values[2]) | rest_of(values[3]) << 4;
    }
    RESIDENCY_HOST_DEVICE static void join(const std::uint32_t* rest, const std::uint32_t (&exponents)[4],
                                           std::uint32_t (&values)[4]) noexcept {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (int word = 0; word < 4; ++word) {
            const std::uint32_t four = rest[word / 2] >> 4 * (word % 2);
            values[word] = exponents[word] << 3 | (four & 0x07070707U) | (four & 0x08080808U) << 4;
        }
    }
    /// @}
};

/// 8 bits of exponent, 23 of mantissa. S: of the upper halves, what it is of bf16; behind that for all groups, the lower halves, in the order of the
/// values.
struct F32 {
    /// As those of Bf16.
    /// @{
    using Value = std::uint32_t;
    static constexpr PackedForm form = PackedForm::f32_tiers;
    static constexpr std::uint32_t exponent_count = 256;
    static constexpr std::uint32_t exponent_bit = 23;
    static constexpr std::uint32_t lane_words = 16;
    static constexpr std::uint32_t front_words = 4;
    static constexpr std::uint32_t rest_words = 12;

    RESIDENCY_HOST_DEVICE static void split(const std::uint32_t (&values)[16], std::uint32_t* rest) noexcept {
        std::uint32_t upper[8];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::size_t pair = 0; pair < 8; ++pair) {
            rest[4 + pair] = (values[2 * pair] & 0xffffU) | values[2 * pair + 1] << 16;
            upper[pair] = values[2 * pair] >> 16 | (values[2 * pair + 1] & 0xffff0000U);
        }
        Bf16::split(upper, rest);
    }
    RESIDENCY_HOST_DEVICE static void join(const std::uint32_t* rest, const std::uint32_t (&exponents)[4],
                                           std::uint32_t (&values)[16]) noexcept {
        std::uint32_t upper[8];
        Bf16::join(rest, exponents, upper);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (std::size_t pair = 0; pair < 8; ++pair) {
            values[2 * pair] = (rest[4 + pair] & 0xffffU) | upper[pair] << 16;
            values[2 * pair + 1] = rest[4 + pair] >> 16 | (upper[pair] & 0xffff0000U);
        }
    }
    /// @}
};

/// Calls use(F{}) for each format F.
template <class Use>
constexpr void for_each_format(Use&& use) {
    use(Bf16{});
    use(F8E4m3{});
    use(F32{});
}
/// Whether it is the form of a format.
[[nodiscard]] constexpr bool is_tiers(PackedForm form) noexcept {
    bool is = false;
    for_each_format([&](auto format) { is = is || form == format.form; });
    return is;
}

/// Values of 16 bytes: how many of a lane follow one another at least.
template <class F>
inline constexpr std::uint32_t run_values = 16 / sizeof(typename F::Value);

/// Which value of the chunk is value i of a lane. Of 32 lanes of f32, each has four values of each 128, so that they are 512 bytes that follow one
/// another; lanes of others have 16 values that do.
template <class F>
RESIDENCY_HOST_DEVICE constexpr std::uint32_t place_of(std::uint32_t lane, std::uint32_t i) noexcept {
    if constexpr (sizeof(typename F::Value) == 4) {
        return lane / 32 * 512 + i / 4 * 128 + lane % 32 * 4 + i % 4;
    } else {
        return lane * lane_values + i;
    }
}
/// How many lanes have one of the first `values` values, counted up to the last that does.
template <class F>
RESIDENCY_HOST_DEVICE constexpr std::uint32_t lanes_of(std::uint32_t values) noexcept {
    if constexpr (sizeof(typename F::Value) == 4) {
        return (values + 511) / 512 * 32;
    } else {
        return (values + lane_values - 1) / lane_values;
    }
}
/// The exponent of value i of a lane.
template <class F>
RESIDENCY_HOST_DEVICE constexpr std::uint32_t exponent_of(const std::uint32_t (&lane)[F::lane_words],
                                                          std::uint32_t i) noexcept {
    constexpr std::uint32_t in_word = 4 / sizeof(typename F::Value), bits = 32 / in_word;
    return lane[i / in_word] >> (bits * (i % in_word) + F::exponent_bit) & (F::exponent_count - 1);
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::tiers
