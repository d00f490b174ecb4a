// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/dtype.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

using residency::DType;
namespace dtype = residency::dtype;

static_assert(std::is_trivially_copyable_v<DType>);
static_assert(sizeof(DType) <= 40);
static_assert(DType::block("Q4_0", 18, 32) == DType::block("Q4_0", 18, 32));
static_assert(DType::block("Q4_0", 18, 32) != DType::block("Q4_0", 18, 64));
static_assert(DType::block("Q4_0", 18, 32) != DType::block("Q4_1", 18, 32));
static_assert(dtype::f16 != dtype::bf16);
static_assert(dtype::bf16.name() == "bf16");

TEST_CASE("the plain types have their sizes") {
    struct Row {
        DType type;
        std::string_view name;
        std::uint32_t bits, alignment_bytes;
    };
    const Row rows[] = {
        {dtype::f64, "f64", 64, 8},
        {dtype::f32, "f32", 32, 4},
        {dtype::f16, "f16", 16, 2},
        {dtype::bf16, "bf16", 16, 2},
        {dtype::f8_e4m3, "f8_e4m3", 8, 1},
        {dtype::f8_e4m3fn, "f8_e4m3fn", 8, 1},
        {dtype::f8_e4m3fnuz, "f8_e4m3fnuz", 8, 1},
        {dtype::f8_e5m2, "f8_e5m2", 8, 1},
        {dtype::f8_e5m2fnuz, "f8_e5m2fnuz", 8, 1},
        {dtype::f8_e8m0, "f8_e8m0", 8, 1},
        {dtype::f6_e2m3, "f6_e2m3", 6, 1},
        {dtype::f6_e3m2, "f6_e3m2", 6, 1},
        {dtype::f4, "f4", 4, 1},
        {dtype::i64, "i64", 64, 8},
        {dtype::i32, "i32", 32, 4},
        {dtype::i16, "i16", 16, 2},
        {dtype::i8, "i8", 8, 1},
        {dtype::i4, "i4", 4, 1},
        {dtype::u64, "u64", 64, 8},
        {dtype::u32, "u32", 32, 4},
        {dtype::u16, "u16", 16, 2},
        {dtype::u8, "u8", 8, 1},
        {dtype::u4, "u4", 4, 1},
        {dtype::boolean, "bool", 8, 1},
        {dtype::complex64, "complex64", 64, 4},
    };
    CHECK(std::size(rows) == dtype::all.size());
    std::set<std::string_view> names;
    for (std::size_t i = 0; i < std::size(rows); ++i) {
        const Row& row = rows[i];
        CAPTURE(row.name);
        CHECK(dtype::all[i] == row.type);
        CHECK(row.type.name() == row.name);
        CHECK(row.type.block_bits() == row.bits);
        CHECK(row.type.block_elements() == 1);
        CHECK(row.type.alignment_bytes() == row.alignment_bytes);
        CHECK(row.type.is_byte_addressable() == (row.bits >= 8));
        CHECK(*row.type.bytes_of(0) == 0);
        CHECK(*row.type.bytes_of(8) == row.bits);
        CHECK(names.insert(row.name).second);
    }
}

TEST_CASE("types below a byte count whole bytes only") {
    CHECK(*dtype::i4.bytes_of(2) == 1);
    CHECK(*dtype::f6_e2m3.bytes_of(4) == 3);
    CHECK(*dtype::f6_e2m3.bytes_of(12) == 9);
    CHECK(dtype::i4.bytes_of(3).error().message() == "3 elements of i4: they do not fill whole bytes");
    CHECK_FALSE(dtype::f6_e3m2.bytes_of(2).has_value());
    // 2^64 − 8 elements of 4 bits are 2^63 − 4 bytes: the bits alone would not fit.
    CHECK(*dtype::f4.bytes_of(UINT64_MAX - 7) == (UINT64_MAX - 7) / 2);
}

TEST_CASE("overflow is an error, at the exact limit") {
    CHECK(*dtype::u8.bytes_of(UINT64_MAX) == UINT64_MAX);
    CHECK(*dtype::f64.bytes_of(UINT64_MAX / 8) == UINT64_MAX - 7);
    CHECK(dtype::f64.bytes_of(UINT64_MAX / 8 + 1).error().kind() == residency::ErrorKind::invalid_argument);
    CHECK(*dtype::f6_e2m3.bytes_of(UINT64_MAX - 3) == (UINT64_MAX - 3) / 4 * 3);
    CHECK_FALSE(DType::block("wide", (1U << 29) - 1, 1).bytes_of(UINT64_MAX / 1000).has_value());
}

TEST_CASE("block types take whole blocks") {
    struct Row {
        std::string_view name;
        std::uint32_t bytes, elements;
    };
    const Row rows[] = {
        {"F32", 4, 1},      {"F16", 2, 1},      {"Q4_0", 18, 32},   {"Q4_1", 20, 32},   {"Q5_0", 22, 32},
        {"Q5_1", 24, 32},   {"Q8_0", 34, 32},   {"Q8_1", 36, 32},   {"Q2_K", 84, 256},  {"Q3_K", 110, 256},
        {"Q4_K", 144, 256}, {"Q5_K", 176, 256}, {"Q6_K", 210, 256}, {"Q8_K", 292, 256}, {"IQ2_XXS", 66, 256},
        {"IQ4_NL", 18, 32}, {"TQ1_0", 54, 256}, {"MXFP4", 17, 32},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const auto type = DType::try_block(row.name, row.bytes, row.elements);
        REQUIRE(type);
        CHECK(*type == DType::block(row.name, row.bytes, row.elements));
        CHECK(type->name() == row.name);
        CHECK(type->block_bits() == row.bytes * 8);
        CHECK(type->block_elements() == row.elements);
        CHECK(type->alignment_bytes() == 1);
        CHECK(*type->bytes_of(std::uint64_t{row.elements} * 1000) == std::uint64_t{row.bytes} * 1000);
        CHECK(type->bytes_of(std::uint64_t{row.elements} + 1).has_value() == (row.elements == 1));
    }
    CHECK(DType::block("Q4_0", 18, 32).bytes_of(33).error().message() ==
          "33 elements of Q4_0: they do not fill blocks of 32");
}

TEST_CASE("block types from outside are checked") {
    const std::string longest(DType::max_name_bytes, 'x');
    CHECK(DType::try_block(longest, 1, 1)->name() == longest);
    CHECK_FALSE(DType::try_block(longest + 'x', 1, 1).has_value());
    CHECK_FALSE(DType::try_block("", 1, 1).has_value());
    CHECK_FALSE(DType::try_block("zero", 0, 1).has_value());
    CHECK_FALSE(DType::try_block("zero", 1, 0).has_value());
    CHECK(DType::try_block("big", (1U << 29) - 1, UINT32_MAX).has_value());
    CHECK_FALSE(DType::try_block("big", 1U << 29, 1).has_value());
    CHECK_FALSE(DType::try_block("big", 1, std::uint64_t{UINT32_MAX} + 1).has_value());
}

TEST_CASE("a default-constructed type has no size") {
    CHECK(DType{}.name() == "none");
    CHECK_FALSE(DType{}.bytes_of(0).has_value());
    CHECK_FALSE(DType{}.is_byte_addressable());
}

namespace {

struct Half {
    std::uint16_t bits;
};
struct Other16 {
    std::uint16_t bits;
};
struct BlockQ4 {
    std::uint8_t bytes[18];
};
enum class Level : std::uint8_t { low };

}  // namespace

template <>
inline constexpr residency::DType residency::element_dtype<Half> = residency::dtype::f16;

TEST_CASE("an element type matches the dtypes that can be read as it") {
    using namespace residency;
    for (const DType& each : dtype::all) {
        CAPTURE(each.name());
        CHECK(matches<std::byte>(each));
        CHECK(matches<const unsigned char>(each));
        CHECK(matches<float>(each) == (each == dtype::f32));
        CHECK(matches<const double>(each) == (each == dtype::f64));
        CHECK(matches<bool>(each) == (each == dtype::boolean));
        CHECK(matches<std::int8_t>(each) == (each == dtype::i8));
        CHECK(matches<std::int16_t>(each) == (each == dtype::i16));
        CHECK(matches<std::int32_t>(each) == (each == dtype::i32));
        CHECK(matches<long long>(each) == (each == dtype::i64));
        CHECK(matches<long>(each) == (each == dtype::i64));
        // Unsigned integers are the bits of an element of their size.
        CHECK(matches<std::uint16_t>(each) == (each.block_bits() == 16));
        CHECK(matches<std::uint32_t>(each) == (each.block_bits() == 32));
        CHECK(matches<unsigned long long>(each) == (each.block_bits() == 64));
        // A type that was made known has one dtype, any other those of its size.
        CHECK(matches<Half>(each) == (each == dtype::f16));
        CHECK(matches<Other16>(each) == (each.block_bits() == 16));
        CHECK(matches<Level>(each) == (each.block_bits() == 8));
        CHECK_FALSE(matches<BlockQ4>(each));
    }
    constexpr DType q4 = DType::block("Q4_0", 18, 32);
    CHECK(matches<BlockQ4>(q4));
    CHECK(matches<std::byte>(q4));
    CHECK_FALSE(matches<std::uint16_t>(DType::block("two", 2, 4)));
    CHECK_FALSE(matches<Half>(q4));
    static_assert(matches<float>(dtype::f32) && !matches<double>(dtype::f32));
    static_assert(element_dtype<Other16> == DType{} && element_dtype<long double> == DType{});
}
