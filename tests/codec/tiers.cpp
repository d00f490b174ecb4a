// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The packed forms of fp8 and f32: how small they are, what they do with every pattern and every length, that their bytes are those of the
// files; and of all three formats, that kernels compute what the host does.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/codec/tiers.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/model/dtype.hpp"
#include "tests/codec/support.hpp"

namespace tiers_test {

using namespace residency;
using namespace test;
namespace tiers = codec::tiers;

namespace {

/// The nearest e4m3 value of at most 448; halves go to the even one.
std::uint8_t to_e4m3(double value) {
    const double size = std::min(std::abs(value), 448.0);
    const int exponent = std::max(size == 0 ? -6 : static_cast<int>(std::floor(std::log2(size))), -6);
    auto eighths = static_cast<std::uint32_t>(std::lround(std::nearbyint(std::ldexp(size, 3 - exponent))));
    // 8 … 15 are normal, 16 is the next exponent, below 8 there is only the smallest exponent, whose field is 0.
    const std::uint32_t bits = eighths + 8 * static_cast<std::uint32_t>(exponent + 6);
    return static_cast<std::uint8_t>(bits | (std::signbit(value) ? 0x80U : 0U));
}

/// Rows of a normal distribution, each scaled so that its largest is 448.
Bytes fp8_weights(std::size_t rows, std::size_t columns) {
    std::mt19937 random{3};
    std::normal_distribution<double> normal{0, 0.02};
    Bytes raw;
    raw.reserve(rows * columns);
    std::vector<double> row(columns);
    for (std::size_t r = 0; r < rows; ++r) {
        double largest = 0;
        for (double& value : row) {
            value = normal(random);
            largest = std::max(largest, std::abs(value));
        }
        for (const double value : row) { raw.push_back(std::byte{to_e4m3(value * 448 / largest)}); }
    }
    return raw;
}

Bytes f32_weights(std::size_t values, float scale) {
    std::mt19937 random{5};
    std::normal_distribution<float> normal{0, scale};
    Bytes raw(4 * values);
    for (std::size_t i = 0; i < values; ++i) {
        const float value = normal(random);
        std::memcpy(raw.data() + 4 * i, &value, sizeof value);
    }
    return raw;
}

/// Words of all kinds: weights, random ones, zeros of both signs, denormals, infinities, NaNs with payloads.
Bytes f32_patterns(std::size_t bytes, std::uint32_t seed) {
    std::mt19937 random{seed};
    std::normal_distribution<float> normal{0, 0.02F};
    Bytes raw(bytes + 4);
    for (std::size_t at = 0; at < bytes; at += 4) {
        const auto word = static_cast<std::uint32_t>(random());
        const std::uint32_t sign = word & 0x80000000U, mantissa = word & 0x7fffffU;
        const std::uint32_t specials[] = {word,
                                          sign,
                                          sign | mantissa,
                                          sign | 0x7f800000U,
                                          sign | 0x7f800000U | mantissa,
                                          sign | 0x7fc00000U,
                                          sign | 0x7f800001U,
                                          sign | 0x7f7fffffU,
                                          sign | 1U};
        const auto kind = static_cast<std::uint32_t>(random() % 18);
        const std::uint32_t value = kind < 9 ? specials[kind] : std::bit_cast<std::uint32_t>(normal(random));
        std::memcpy(raw.data() + at, &value, sizeof value);
    }
    raw.resize(bytes);
    return raw;
}

template <class C>
void check_comes_back(const Bytes& raw) {
    CAPTURE(raw.size());
    const Bytes packed = pack<C>({}, raw, raw.size() * 2 + 65536);
    REQUIRE(!packed.empty());
    CHECK(comes_back<C>({}, raw, packed));
}

/// What a kernel does, lane by lane, with the arithmetic that it shares with the host; `lost`: where a lane has other values than `raw`.
template <class F>
void unpack_as_kernels_do(const Bytes& packed, const Bytes& raw, std::uint32_t& lost) {
    const auto word_at = [&](std::size_t at) {
        std::uint32_t word = 0;
        std::memcpy(&word, packed.data() + at, std::min<std::size_t>(sizeof word, packed.size() - at));
        return word;
    };
    const auto window = [&](std::size_t plane, std::uint32_t bit) {
        const std::uint64_t two =
            std::uint64_t{word_at(plane + bit / 32 * 4 + 4)} << 32 | word_at(plane + bit / 32 * 4);
        return static_cast<std::uint32_t>(two >> bit % 32);
    };
    tiers::Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    const std::uint32_t lanes = (header.values + tiers::group_values - 1) / tiers::group_values * tiers::group_lanes;
    const std::size_t s = codec::packed_header_bytes, t0 = s + std::size_t{lanes} * F::rest_words * 4;
    std::uint32_t begin[3] = {};
    lost = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        if (lane % tiers::group_lanes == 0) {
            std::memcpy(begin, packed.data() + header.index_at + 12 * (lane / tiers::group_lanes), sizeof begin);
        }
        const std::uint32_t word0 = word_at(t0 + 4 * std::size_t{lane}), n1 = tiers::entries_in_t1(word0);
        const std::uint32_t word1 = window(header.t1_at, 2 * begin[0]), n2 = tiers::entries_in_t2(word1, n1);
        const std::uint32_t bit2 = 3 * begin[1];
        const std::uint64_t high2 = n2 > 10 ? window(header.t2_at, bit2 + 32) : 0;
        const std::uint64_t word2 = high2 << 32 | window(header.t2_at, bit2);
        std::uint32_t exponents[4], rest[F::rest_words], words[F::lane_words];
        tiers::exponents_of_lane(word0, word1, word2, header.ranks, exponents);
        const auto n3 = static_cast<std::uint32_t>(std::popcount(tiers::sent_to_t3(word2, n2)));
        for (std::uint32_t i = 0; i < n3; ++i) {
            const std::uint32_t entry = word_at(header.t3_at + 2 * (begin[2] + i)) & 0xffffU;
            const std::uint32_t place = entry >> 8, shift = 8 * (place % 4);
            exponents[place / 4] = (exponents[place / 4] & ~(255U << shift)) | (entry & 255U) << shift;
        }
        begin[0] += n1;
        begin[1] += n2;
        begin[2] += n3;
        for (std::uint32_t i = 0; i < F::front_words; ++i) {
            rest[i] = word_at(s + 4 * (std::size_t{lane} * F::front_words + i));
        }
        for (std::uint32_t i = F::front_words; i < F::rest_words; ++i) {  // two values of f32 each
            rest[i] = word_at(s + std::size_t{lanes} * F::front_words * 4 +
                              2 * std::size_t{tiers::place_of<F>(lane, 2 * (i - F::front_words))});
        }
        F::join(rest, exponents, words);
        constexpr std::uint32_t bytes = sizeof(typename F::Value);
        for (std::uint32_t i = 0; i < tiers::lane_values; ++i) {
            const std::size_t place = tiers::place_of<F>(lane, i);
            if (place >= header.values) { continue; }
            lost += std::memcmp(reinterpret_cast<const std::byte*>(words) + i * bytes, raw.data() + place * bytes,
                                bytes) != 0
                        ? 1U
                        : 0U;
        }
    }
}

template <class F>
void check_kernels(std::size_t bytes) {
    std::uint32_t lost = 0;
    for (std::uint32_t kind = 0; kind < 32; ++kind) {
        CAPTURE(kind);
        std::mt19937 random{kind};
        const Bytes raw = sizeof(typename F::Value) == 4 && kind % 2 == 1
                              ? f32_patterns(bytes, kind)
                              : conformance::detail::codec_input(random, kind, bytes);
        const Bytes packed = pack<codec::Tiers<F>>({}, raw, raw.size() * 2 + 65536);
        REQUIRE(!packed.empty());
        unpack_as_kernels_do<F>(packed, raw, lost);
        CHECK(lost == 0);
    }
}

}  // namespace

TEST_CASE("each takes its types, and a type has one form of chunks") {
    for (const DType& dtype : dtype::all) {
        CAPTURE(dtype.name());
        const bool is_e4m3 = dtype == dtype::f8_e4m3 || dtype == dtype::f8_e4m3fn || dtype == dtype::f8_e4m3fnuz;
        CHECK(codec::Bf16Tiers{}.takes(dtype) == (dtype == dtype::bf16));
        CHECK(codec::F8E4m3Tiers{}.takes(dtype) == is_e4m3);
        CHECK(codec::F32Tiers{}.takes(dtype) == (dtype == dtype::f32));
        const PackedForm form = codec::chunk_form(dtype);
        CHECK(form == (dtype == dtype::bf16  ? PackedForm::bf16_tiers
                       : is_e4m3             ? PackedForm::f8_e4m3_tiers
                       : dtype == dtype::f32 ? PackedForm::f32_tiers
                                             : PackedForm::raw));
        CHECK(unwrap(codec::takes(form, dtype)));
        CHECK(unwrap(codec::takes(PackedForm::bf16_tiles, dtype)) == (dtype == dtype::bf16));
    }
    const auto unknown = codec::takes(static_cast<PackedForm>(77), dtype::bf16);
    REQUIRE(!unknown);
    CHECK(unknown.error().kind() == ErrorKind::unsupported);
    CHECK(tiers::is_tiers(PackedForm::f32_tiers));
    CHECK(!tiers::is_tiers(PackedForm::bf16_tiles));
    CHECK(!tiers::is_tiers(PackedForm::raw));
}

TEST_CASE("normal weights take five sixths") {
    const Bytes fp8 = fp8_weights(512, 4096);
    const Bytes packed = pack<codec::F8E4m3Tiers>({}, fp8, fp8.size());
    REQUIRE(!packed.empty());
    const double share = static_cast<double>(packed.size()) / static_cast<double>(fp8.size());
    MESSAGE("fp8 e4m3: ", share);
    CHECK(share <= 0.86);
    CHECK(comes_back<codec::F8E4m3Tiers>({}, fp8, packed));
    for (const float scale : {0.02F, 1.0F, 37.0F}) {
        const Bytes raw = f32_weights(std::size_t{1} << 19, scale);
        const Bytes small = pack<codec::F32Tiers>({}, raw, raw.size());
        REQUIRE(!small.empty());
        const double of_f32 = static_cast<double>(small.size()) / static_cast<double>(raw.size());
        MESSAGE("f32: ", of_f32);
        CHECK(of_f32 <= 0.85);
        CHECK(comes_back<codec::F32Tiers>({}, raw, small));
    }
}

TEST_CASE("fp8: every value, of every length") {
    Bytes all(4096);
    for (std::size_t i = 0; i < all.size(); ++i) { all[i] = static_cast<std::byte>(i * 167); }  // each of 256 in turn
    for (std::size_t bytes = 0; bytes <= 300; ++bytes) {
        check_comes_back<codec::F8E4m3Tiers>({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes)});
    }
    for (const std::size_t bytes : {4095U, 4096U, 4097U, 8191U, 8192U, 8193U, 70001U}) {
        Bytes raw = all;
        while (raw.size() < bytes) { raw.insert(raw.end(), all.begin(), all.end()); }
        raw.resize(bytes);
        check_comes_back<codec::F8E4m3Tiers>(raw);
    }
    for (std::uint32_t value = 0; value < 256; ++value) {
        check_comes_back<codec::F8E4m3Tiers>(Bytes(33, static_cast<std::byte>(value)));
    }
}

TEST_CASE("f32: patterns of every kind, of every length") {
    for (std::size_t bytes = 0; bytes <= 300; ++bytes) { check_comes_back<codec::F32Tiers>(f32_patterns(bytes, 7)); }
    for (const std::size_t values : {511U, 512U, 513U, 1024U, 4095U, 4096U, 4097U, 8192U, 20000U}) {
        for (std::size_t tail = 0; tail < 4; ++tail) {
            check_comes_back<codec::F32Tiers>(f32_patterns(4 * values + tail, static_cast<std::uint32_t>(values)));
        }
    }
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {  // in each, the ends of its mantissas and both signs
        Bytes raw;
        for (const std::uint32_t rest : {0U, 1U, 0x7fffffU, 0x80000000U, 0x80000001U, 0x807fffffU}) {
            const std::uint32_t word = exponent << 23 | rest;
            raw.resize(raw.size() + 4);
            std::memcpy(raw.data() + raw.size() - 4, &word, sizeof word);
        }
        check_comes_back<codec::F32Tiers>(raw);
    }
}

TEST_CASE("too many bytes stay raw") {
    const Bytes raw(static_cast<std::size_t>(tiers::most_raw_bytes) + 1);
    CHECK(pack<codec::F8E4m3Tiers>({}, raw, raw.size()).empty());
    CHECK(pack<codec::F32Tiers>({}, raw, raw.size()).empty());
}

TEST_CASE("kernels compute the values of a lane as the host does") {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{333}, std::size_t{4100}, std::size_t{40'006}}) {
        CAPTURE(bytes);
        check_kernels<tiers::Bf16>(bytes);
        check_kernels<tiers::F8E4m3>(bytes);
        check_kernels<tiers::F32>(bytes);
    }
}

TEST_CASE("fp8: an exponent that no value has is refused") {
    Bytes raw(8192);
    std::mt19937 random{1};
    for (std::byte& byte : raw) { byte = static_cast<std::byte>(random() & 0x87U); }
    for (std::uint32_t e = 0; e < 16; ++e) {  // so that some values are in T3
        for (std::uint32_t i = 0; i < 200 - 10 * e; ++i) { raw[17 * i % 4096 + e] = static_cast<std::byte>(e << 3); }
    }
    const Bytes packed = pack<codec::F8E4m3Tiers>({}, raw, 3 * raw.size());
    REQUIRE(!packed.empty());
    tiers::Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    REQUIRE(header.t3_values > 0);
    const auto said = [&](std::size_t at, std::uint8_t byte) {
        Bytes changed = packed;
        changed[at] = std::byte{byte};
        const Status checked = codec::F8E4m3Tiers{}.check({}, changed, raw.size());
        return checked ? std::string{} : checked.error().message();
    };
    const std::size_t ranks_at = offsetof(tiers::Header, ranks);
    CHECK(said(ranks_at, std::to_integer<std::uint8_t>(packed[ranks_at])).empty());
    CHECK(said(ranks_at, 16).find("f8_e4m3_tiers: byte") == 0);
    CHECK(said(ranks_at, 16).find("an exponent that no value has") != std::string::npos);
    CHECK(said(header.t3_at, 0x90).find("an exponent that no value has") != std::string::npos);
    CHECK(said(header.t3_at + 1, 16).find("a place outside its lane") != std::string::npos);
}

TEST_CASE("a part in another form is refused") {
    const Bytes raw = f32_weights(40'960, 1);
    std::vector<std::byte> packed, scratch;
    PackedPart part = unwrap(codec::try_pack_part(PackedForm::f32_tiers, {}, raw, packed, scratch));
    REQUIRE(part.form == PackedForm::f32_tiers);
    Bytes back(raw.size());
    CHECK(codec::unpack_part(part, packed, back));
    CHECK(back == raw);
    part.form = PackedForm::f8_e4m3_tiers;
    const Status refused = codec::unpack_part(part, packed, back);
    REQUIRE(!refused);
    CHECK(refused.error().kind() == ErrorKind::unsupported);
}

TEST_CASE("the packed bytes are those of the version in the header") {
    // Integers only, so that the bytes are the same everywhere. Another hash asks for another version.
    std::mt19937 random{1};
    Bytes fp8(19'203), f32(4 * 9'001 + 3);
    for (std::byte& byte : fp8) {
        std::uint32_t exponent = 14;
        while (random() % 2 == 0 && exponent > 0) { --exponent; }
        byte = static_cast<std::byte>(exponent << 3 | (random() & 0x87U));
    }
    for (std::size_t at = 0; at + 4 <= f32.size(); at += 4) {
        std::uint32_t exponent = 120;
        while (random() % 2 == 0 && exponent > 90) { --exponent; }
        const auto word = static_cast<std::uint32_t>(exponent << 23 | (random() & 0x807fffffU));
        std::memcpy(f32.data() + at, &word, sizeof word);
    }
    CHECK(tiers::version == 1);
    CHECK(hash(pack<codec::F8E4m3Tiers>({}, fp8, 2 * fp8.size())) == 9632961450671882959U);
    CHECK(hash(pack<codec::F32Tiers>({}, f32, 2 * f32.size())) == 12811062245774380249U);
}

}  // namespace tiers_test
