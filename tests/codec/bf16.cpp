// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The two packed forms of bf16: how small they are, what they do with every value, and that their bytes are those of the files.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "residency/codec/bf16_tiers.hpp"
#include "residency/codec/bf16_tiers_layout.hpp"
#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/bf16_tiles_layout.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/stable_hash.hpp"

using namespace residency;
using Bytes = std::vector<std::byte>;

namespace {

template <class C>
Bytes pack(const codec::Extents& extents, const Bytes& raw, std::size_t room) {
    Bytes packed(room);
    packed.resize(C{}.pack(extents, raw, packed));
    return packed;
}

template <class C>
bool comes_back(const codec::Extents& extents, const Bytes& raw, const Bytes& packed) {
    Bytes back(raw.size(), std::byte{0x5A});
    const Status unpacked = C{}.unpack(extents, packed, back);
    return unpacked && back == raw;
}

Bytes weights(std::size_t bytes, float scale = 0.02F, std::uint32_t seed = 7) {
    std::mt19937 random{seed};
    return conformance::detail::normal_weights(random, bytes, scale);
}

std::uint64_t hash(const Bytes& bytes) {
    StableHash hash;
    hash.bytes(bytes);
    return hash.value();
}

void set(Bytes& raw, std::size_t index, std::uint16_t value) { std::memcpy(raw.data() + 2 * index, &value, 2); }

}  // namespace

TEST_CASE("they take bf16 and nothing else") {
    for (const DType& dtype : dtype::all) {
        CHECK(codec::Bf16Tiers{}.takes(dtype) == (dtype == dtype::bf16));
        CHECK(codec::Bf16Tiles{}.takes(dtype) == (dtype == dtype::bf16));
    }
}

TEST_CASE("tiers: normal weights take two thirds") {
    for (const float scale : {0.02F, 1.0F, 37.0F}) {
        const Bytes raw = weights(std::size_t{2} << 20, scale);
        const Bytes packed = pack<codec::Bf16Tiers>({1, raw.size() / 2}, raw, raw.size());
        CHECK(static_cast<double>(packed.size()) <= 0.675 * static_cast<double>(raw.size()));
        CHECK(comes_back<codec::Bf16Tiers>({1, raw.size() / 2}, raw, packed));
    }
}

TEST_CASE("tiers: every value, in a chunk of its own kind and among weights") {
    Bytes all(std::size_t{2} << 16);
    for (std::uint32_t value = 0; value < 65536; ++value) { set(all, value, static_cast<std::uint16_t>(value)); }
    const Bytes packed = pack<codec::Bf16Tiers>({1, 65536}, all, all.size() * 2);
    REQUIRE(!packed.empty());
    CHECK(comes_back<codec::Bf16Tiers>({1, 65536}, all, packed));
    CHECK_MESSAGE(pack<codec::Bf16Tiers>({1, 65536}, all, all.size() * 97 / 100).empty(), "it does not pay: raw");

    Bytes mixed = weights(std::size_t{4} << 16);
    std::mt19937 random{3};
    for (std::uint32_t value = 0; value < 65536; ++value) {
        set(mixed, random() % 131072, static_cast<std::uint16_t>(value));
    }
    CHECK(
        comes_back<codec::Bf16Tiers>({1, 131072}, mixed, pack<codec::Bf16Tiers>({1, 131072}, mixed, mixed.size() * 2)));
}

TEST_CASE("tiers: too many bytes stay raw") {
    const Bytes raw(codec::bf16_tiers::most_raw_bytes + 2);
    CHECK(pack<codec::Bf16Tiers>({1, raw.size() / 2}, raw, raw.size()).empty());
}

TEST_CASE("tiers: a lane alone, by every choice of tiers") {
    // Exponents of ranks 0 … 15 in a lane, by a random word; the ranks come from values outside the lane.
    std::mt19937 random{11};
    for (std::uint32_t run = 0; run < 200; ++run) {
        Bytes raw(2 * 4096);
        std::uint32_t at = 16;
        for (std::uint32_t rank = 0; rank < 16; ++rank) {
            for (std::uint32_t i = 0; i < 300 - 15 * rank && at < 4096; ++i) {
                set(raw, at++, static_cast<std::uint16_t>((100 + rank) << 7 | (random() & 0x807f)));
            }
        }
        for (; at < 4096; ++at) { set(raw, at, static_cast<std::uint16_t>(100 << 7)); }
        for (std::uint32_t i = 0; i < 16; ++i) {
            set(raw, i, static_cast<std::uint16_t>((100 + random() % (1 + run % 16)) << 7 | (random() & 0x807f)));
        }
        CHECK(comes_back<codec::Bf16Tiers>({1, 4096}, raw, pack<codec::Bf16Tiers>({1, 4096}, raw, raw.size() * 2)));
    }
}

TEST_CASE("tiles: normal weights take three quarters, whatever their scale") {
    for (const float scale : {0.02F, 1.0F, 37.0F, 1e-20F, 1e20F}) {
        const codec::Extents extents{512, 2048};
        const Bytes raw = weights(2 * 512 * 2048, scale);
        const Bytes packed = pack<codec::Bf16Tiles>(extents, raw, raw.size());
        REQUIRE(!packed.empty());
        CHECK(static_cast<double>(packed.size()) <= 0.753 * static_cast<double>(raw.size()));
        CHECK(comes_back<codec::Bf16Tiles>(extents, raw, packed));
    }
}

TEST_CASE("tiles: rows of zeros, infinities and denormals among weights stay packed") {
    const codec::Extents extents{512, 1024};
    Bytes raw = weights(2 * 512 * 1024);
    SUBCASE("a row of zeros") { std::memset(raw.data() + 2 * 1024 * 100, 0, 2 * 1024); }
    SUBCASE("an infinity") { set(raw, 12345, 0x7f80); }
    SUBCASE("a NaN with a payload") { set(raw, 23456, 0xffa5); }
    SUBCASE("denormals") {
        for (std::size_t i = 0; i < 20; ++i) { set(raw, 1000 * i, static_cast<std::uint16_t>(1 + i)); }
    }
    SUBCASE("negative zeros") {
        for (std::size_t i = 0; i < 200; ++i) { set(raw, 17 * i, 0x8000); }
    }
    SUBCASE("the largest and the smallest number") {
        set(raw, 1, 0x7f7f);
        set(raw, 2, 0x0080);
    }
    const Bytes packed = pack<codec::Bf16Tiles>(extents, raw, raw.size());
    REQUIRE(!packed.empty());
    CHECK(static_cast<double>(packed.size()) <= 0.78 * static_cast<double>(raw.size()));
    CHECK(comes_back<codec::Bf16Tiles>(extents, raw, packed));
}

TEST_CASE("tiles: every value, and what does not pay is stored as it is where there is room") {
    Bytes all(std::size_t{2} << 16);
    for (std::uint32_t value = 0; value < 65536; ++value) { set(all, value, static_cast<std::uint16_t>(value)); }
    for (const std::uint64_t rows : {64U, 256U}) {
        const codec::Extents extents{rows, 65536 / rows};
        const std::uint64_t plain = *codec::Bf16Tiles::plain_bytes(extents);
        const Bytes packed = pack<codec::Bf16Tiles>(extents, all, static_cast<std::size_t>(plain));
        CHECK(packed.size() == plain);
        CHECK(comes_back<codec::Bf16Tiles>(extents, all, packed));
        CHECK(pack<codec::Bf16Tiles>(extents, all, all.size()).empty());
    }
}

TEST_CASE("tiles: entries of an escape block that go on in others") {
    for (const std::size_t escapes : {31U, 32U, 33U, 62U, 63U, 64U, 95U, 1000U}) {
        CAPTURE(escapes);
        const codec::Extents extents{64, 1024};  // two escape groups
        Bytes raw = weights(2 * 64 * 1024);
        for (std::size_t i = 0; i < escapes; ++i) { set(raw, 64 + i * 29 % (32 * 1024 - 64), 0); }
        CHECK(comes_back<codec::Bf16Tiles>(extents, raw, pack<codec::Bf16Tiles>(extents, raw, raw.size())));
    }
}

TEST_CASE("tiles: no matrix, and none of that size") {
    const Bytes raw = weights(2 * 64 * 64);
    CHECK(pack<codec::Bf16Tiles>({0, 64}, {}, 100000).empty());
    CHECK(pack<codec::Bf16Tiles>({64, 63}, raw, 100000).empty());
    CHECK(pack<codec::Bf16Tiles>({std::uint64_t{1} << 33, std::uint64_t{1} << 33}, raw, 100000).empty());
    CHECK(!codec::Bf16Tiles::plain_bytes({std::uint64_t{1} << 40, 1}));
}

TEST_CASE("the packed bytes are those of the version in the header") {
    // Integers only, so that the bytes are the same everywhere. Another hash asks for another version.
    Bytes raw(2 * 96 * 200);
    std::mt19937 random{1};
    for (std::size_t i = 0; i < raw.size() / 2; ++i) {
        std::uint32_t exponent = 120;
        while (random() % 2 == 0 && exponent > 90) { --exponent; }
        set(raw, i, static_cast<std::uint16_t>(exponent << 7 | (random() & 0x807f)));
    }
    CHECK(codec::bf16_tiers::version == 1);
    CHECK(hash(pack<codec::Bf16Tiers>({96, 200}, raw, raw.size())) == 11291687817509538195U);
    CHECK(codec::bf16_tiles::version == 1);
    CHECK(hash(pack<codec::Bf16Tiles>({96, 200}, raw, raw.size() * 2)) == 9854237376239461135U);
}
