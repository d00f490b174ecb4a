// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The two packed forms of bf16: how small they are, what they do with every value, and that their bytes are those of the files.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/bf16_tiles_layout.hpp"
#include "residency/codec/tiers.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/model/dtype.hpp"
#include "tests/codec/support.hpp"

namespace bf16_test {

using namespace residency;
using namespace test;

namespace {

Bytes weights(std::size_t bytes, float scale = 0.02F, std::uint32_t seed = 7) {
    std::mt19937 random{seed};
    return conformance::detail::normal_weights(random, bytes, scale);
}

void set(Bytes& raw, std::size_t index, std::uint16_t value) { std::memcpy(raw.data() + 2 * index, &value, 2); }

}  // namespace

TEST_CASE("tiles take bf16 and nothing else") {
    for (const DType& dtype : dtype::all) { CHECK(codec::Bf16Tiles{}.takes(dtype) == (dtype == dtype::bf16)); }
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
    const Bytes raw(codec::tiers::most_raw_bytes + 2);
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
    // Kernels that multiply with packed weights compute with w · 2^shift.
    codec::bf16_tiles::Header header;
    std::memcpy(&header, packed.data(), sizeof header);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < raw.size() / 2; ++i) {
        std::uint16_t value = 0;
        std::memcpy(&value, raw.data() + 2 * i, 2);
        changed += codec::bf16_tiles::can_shift(value, header.shift) ? 0U : 1U;
    }
    CHECK(changed == 0);
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

TEST_CASE("bytes that would lead a kernel outside are refused, each with its message") {
    // Of the packed form, which `change` alters; the message of check().
    const auto said = [](const auto& codec, const codec::Extents& extents, Bytes packed, std::uint64_t raw_bytes,
                         const auto& change) {
        change(packed);
        const Status checked = codec.check(extents, packed, raw_bytes);
        return checked ? std::string{} : checked.error().message();
    };
    const auto word = [](std::size_t at, std::uint32_t value) {
        return [at, value](Bytes& packed) { std::memcpy(packed.data() + at, &value, 4); };
    };
    const auto has = [](const std::string& text, const char* what) { return text.find(what) != std::string::npos; };

    Bytes raw = weights(2 * 10'000);
    for (std::size_t i = 0; i < 10'000; i += 9) { set(raw, i, static_cast<std::uint16_t>(i % 256 << 7)); }
    const codec::Extents row{1, 10'000};
    const Bytes tiers = pack<codec::Bf16Tiers>(row, raw, raw.size());
    codec::tiers::Header header;
    REQUIRE(!tiers.empty());
    std::memcpy(&header, tiers.data(), sizeof header);
    const auto tiers_say = [&](const auto& change) { return said(codec::Bf16Tiers{}, row, tiers, raw.size(), change); };
    using codec::tiers::Header;
    CHECK(tiers_say([](Bytes&) {}).empty());
    CHECK(has(tiers_say(word(offsetof(Header, values), 9999)), "the number of values"));
    CHECK(has(tiers_say(word(offsetof(Header, t2_values), header.t1_values + 1)), "more values than the one before"));
    CHECK(has(tiers_say(word(offsetof(Header, t3_at), header.t3_at + 16)), "do not lie where their sizes put them"));
    CHECK(has(tiers_say(word(header.index_at + 12, 1)), "the index does not fit"));
    CHECK(has(tiers_say(word(header.index_at - 4096 / 4, ~0U)), "T1 ends before"));  // in the last group of T0
    CHECK(has(tiers_say([&](Bytes& packed) { std::memset(packed.data() + header.t1_at, 0xff, header.t1_values / 4); }),
              "the index does not fit"));
    CHECK(has(tiers_say([&](Bytes& packed) {  // the first entry of T3: place 16
                  packed[header.t3_at + 1] = std::byte{16};
              }),
              "a place outside its lane"));

    const codec::Extents extents{64, 1024};  // two escape groups
    Bytes matrix = weights(2 * 64 * 1024);
    for (std::size_t i = 0; i < 100; ++i) { set(matrix, 64 + 29 * i, 0); }
    const Bytes tiles = pack<codec::Bf16Tiles>(extents, matrix, matrix.size());
    REQUIRE(!tiles.empty());
    codec::bf16_tiles::Header front;
    std::memcpy(&front, tiles.data(), sizeof front);
    const auto tiles_say = [&](const auto& change) {
        return said(codec::Bf16Tiles{}, extents, tiles, matrix.size(), change);
    };
    using Front = codec::bf16_tiles::Header;
    REQUIRE(front.escape_blocks > 3);
    const std::size_t link_at = static_cast<std::size_t>(front.escapes_at) + codec::bf16_tiles::escape_block_bytes - 4;
    CHECK(tiles_say([](Bytes&) {}).empty());
    CHECK(has(tiles_say(word(offsetof(Front, rows), 63)), "a matrix of 63 × 1024 was packed"));
    CHECK(has(tiles_say(word(offsetof(Front, row_groups), 5)), "the number of tiles"));
    CHECK(has(tiles_say(word(offsetof(Front, words), 13)), "12 or 16 words"));
    CHECK(has(tiles_say(word(offsetof(Front, shift), 256)), "do not fit together"));
    CHECK(has(tiles_say(word(offsetof(Front, escapes_at), 128)), "do not fit together"));
    for (const std::uint32_t link : {1U, 3U, front.escape_blocks, 0x7fffffffU}) {  // a circle, a leap, outside
        CHECK(has(tiles_say(word(link_at, link)), "a link that does not lead to the next block"));
    }
    CHECK(has(tiles_say(word(link_at, 0)), "escape blocks that nothing leads to"));
    CHECK(has(tiles_say(word(link_at - 4, 2)), "a link that does not lead to the next block"));  // not the last entry
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
    CHECK(codec::tiers::version == 1);
    CHECK(hash(pack<codec::Bf16Tiers>({96, 200}, raw, raw.size())) == 11291687817509538195U);
    CHECK(codec::bf16_tiles::version == 1);
    CHECK(hash(pack<codec::Bf16Tiles>({96, 200}, raw, raw.size() * 2)) == 9854237376239461135U);
}

}  // namespace bf16_test
