// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/container_reader.hpp"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/container_writer.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "tests/support/sealed.hpp"

namespace container_reader_test {

using namespace residency;

namespace {

constexpr std::uint32_t first_tag = section_tag("AAAA");
constexpr std::uint32_t second_tag = section_tag("BBBB");

std::vector<std::byte> sample() {
    ContainerWriter writer{ContainerKind::plan, 3, 0x1122334455667788};
    SectionWriter& first = writer.section(first_tag);
    SectionWriter& second = writer.section(second_tag);
    writer.section(section_tag("NONE"));
    first.u8(7);
    first.text("hello");
    second.u32(9);
    second.u64(UINT64_MAX);
    second.i64(-5);
    second.f64(-0.25);
    second.array(std::vector<std::uint16_t>{1, 2, 65535});
    second.array(std::vector<StorageId>{StorageId{4}});
    second.array(std::vector<float>{1.5F});
    first.u8(8);
    return writer.finish();
}

void put_u64(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value) {
    for (std::size_t i = 0; i < 8; ++i) { bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xff); }
}
void put_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) { bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xff); }
}

}  // namespace

TEST_CASE("what is written is read back") {
    const auto bytes = sample();
    CHECK(bytes.size() % 8 == 0);
    const auto reader = ContainerReader::try_open(bytes, "sample");
    REQUIRE(reader);
    CHECK(reader->kind() == 2);
    CHECK(reader->kind_version() == 3);
    CHECK(reader->catalog_hash() == 0x1122334455667788);
    CHECK(reader->source() == "sample");
    CHECK(reader->expect(ContainerKind::plan, 3, 0x1122334455667788).has_value());
    CHECK(reader->has(first_tag));
    CHECK_FALSE(reader->has(section_tag("CCCC")));

    SectionReader first = reader->section(first_tag);
    CHECK(first.u8() == 7);
    CHECK(first.text(5) == "hello");
    CHECK(first.u8() == 8);
    CHECK(first.finish().has_value());

    SectionReader second = reader->section(second_tag);
    CHECK(second.u32() == 9);
    CHECK(second.u64() == UINT64_MAX);
    CHECK(second.i64() == -5);
    CHECK(second.f64() == -0.25);
    CHECK(second.array<std::uint16_t>(3) == std::vector<std::uint16_t>{1, 2, 65535});
    CHECK(second.array<StorageId>(10) == std::vector<StorageId>{StorageId{4}});
    CHECK(second.array<float>(1) == std::vector<float>{1.5F});
    CHECK(second.finish().has_value());
    CHECK(reader->section(section_tag("NONE")).finish().has_value());
}

TEST_CASE("the bytes are as documented") {
    ContainerWriter writer{ContainerKind::trace, 2, 0x0807060504030201};
    writer.section(section_tag("ABCD")).text("xyz");
    const auto bytes = writer.finish();
    const std::array<std::uint8_t, 80> expected{
        0x89, 'R', 'S', 'D', 'Y', '\r', '\n', 0x1a,                                 // magic
        1,    0,   0,   0,   3,   0,    0,    0,    2,  0, 0, 0, 1,   0,   0,   0,  // versions, kind, sections
        88,   0,   0,   0,   0,   0,    0,    0,    1,  2, 3, 4, 5,   6,   7,   8,  // total, catalog
        'A',  'B', 'C', 'D', 0,   0,    0,    0,    64, 0, 0, 0, 0,   0,   0,   0, 11, 0, 0, 0,
        0,    0,   0,   0,   3,   0,    0,    0,    0,  0, 0, 0, 'x', 'y', 'z', 0, 0,  0, 0, 0};
    REQUIRE(bytes.size() == 88);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK(std::to_integer<std::uint8_t>(bytes[i]) == expected[i]);
    }
}

TEST_CASE("numbers keep their bits") {
    const std::vector<double> values{0.0, -0.0, std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::denorm_min(),
                                     std::numeric_limits<double>::quiet_NaN()};
    ContainerWriter writer{ContainerKind::trace, 1, 0};
    writer.section(first_tag).array(values);
    writer.section(second_tag).array(std::vector<std::int8_t>{-128, 127});
    const auto bytes = writer.finish();
    const auto reader = ContainerReader::try_open(bytes, "numbers");
    REQUIRE(reader);
    const auto read = reader->section(first_tag).array<double>(100);
    REQUIRE(read.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(std::bit_cast<std::uint64_t>(read[i]) == std::bit_cast<std::uint64_t>(values[i]));
    }
    CHECK(reader->section(second_tag).array<std::int8_t>(2) == std::vector<std::int8_t>{-128, 127});
}

TEST_CASE("a container without sections") {
    const auto bytes = ContainerWriter{ContainerKind::plan, 1, 0}.finish();
    CHECK(bytes.size() == 48);
    CHECK(ContainerReader::try_open(bytes, "empty").has_value());
}

TEST_CASE("kind, version and catalog must be those expected") {
    const auto bytes = sample();
    const auto reader = ContainerReader::try_open(bytes, "sample");
    REQUIRE(reader);
    const Status kind = reader->expect(ContainerKind::schedule, 3, 0x1122334455667788);
    CHECK(kind.error().kind() == ErrorKind::malformed);
    CHECK(kind.error().message() == "sample at byte 12: found a plan, expected a schedule");
    const Status version = reader->expect(ContainerKind::plan, 2, 0x1122334455667788);
    CHECK(version.error().kind() == ErrorKind::unsupported);
    CHECK(version.error().message() == "sample at byte 16: found version 3 of a plan, this library reads 1 to 2");
    CHECK(reader->expect(ContainerKind::plan, 4, 0x1122334455667788).has_value());
    const Status catalog = reader->expect(ContainerKind::plan, 3, 5);
    CHECK(catalog.error().kind() == ErrorKind::mismatch);
    CHECK(catalog.error().message().find("not for the one with hash 5") != std::string::npos);

    const auto zero = ContainerWriter{ContainerKind::plan, 0, 0}.finish();
    CHECK(ContainerReader::try_open(zero, "zero")->expect(ContainerKind::plan, 3, 0).error().kind() ==
          ErrorKind::unsupported);
}

TEST_CASE("C7: every prefix, every extension and every changed byte is refused") {
    const auto good = sample();
    for (std::size_t size = 0; size < good.size(); ++size) {
        // A copy of exactly that size, so that a sanitizer sees a read beyond it.
        const std::vector<std::byte> prefix{good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)};
        const auto opened = ContainerReader::try_open(prefix, "prefix");
        REQUIRE_FALSE(opened.has_value());
        REQUIRE(opened.error().detail<FileLocation>() != nullptr);
        CHECK(opened.error().detail<FileLocation>()->offset <= size);
        CHECK(opened.error().message().find("it is cut off: copy or make it again: found " + detail::in_bytes(size) +
                                            ", expected ") != std::string::npos);
    }
    for (std::size_t more = 1; more <= 16; ++more) {
        auto longer = good;
        longer.resize(good.size() + more);
        CHECK_FALSE(ContainerReader::try_open(longer, "longer").has_value());
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
            auto changed = good;
            changed[at] ^= static_cast<std::byte>(1 << bit);
            REQUIRE_FALSE(ContainerReader::try_open(changed, "changed").has_value());
        }
    }
}

TEST_CASE("a wrong frame under a right checksum is refused with its place") {
    const auto good = sample();
    constexpr std::size_t second_entry = 40 + 24;
    struct Row {
        std::string what;
        std::uint64_t place;
        void (*change)(std::vector<std::byte>&);
    };
    const Row rows[] = {
        {"container version", 8, [](std::vector<std::byte>& b) { put_u32(b, 8, 2); }},
        {"too many sections", 20, [](std::vector<std::byte>& b) { put_u32(b, 20, 65); }},
        {"more sections than bytes", 20, [](std::vector<std::byte>& b) { put_u32(b, 20, 64); }},
        {"one section less", 48, [](std::vector<std::byte>& b) { put_u32(b, 20, 2); }},
        {"the same tag twice", second_entry, [](std::vector<std::byte>& b) { put_u32(b, second_entry, first_tag); }},
        {"reserved bytes", second_entry + 4, [](std::vector<std::byte>& b) { put_u32(b, second_entry + 4, 1); }},
        {"an overlap", second_entry + 8, [](std::vector<std::byte>& b) { put_u64(b, second_entry + 8, 112); }},
        {"an offset beyond", second_entry + 8,
         [](std::vector<std::byte>& b) { put_u64(b, second_entry + 8, UINT64_MAX - 7); }},
        {"a length beyond", second_entry + 16,
         [](std::vector<std::byte>& b) { put_u64(b, second_entry + 16, UINT64_MAX); }},
        {"a length one too short", 0, [](std::vector<std::byte>& b) { put_u64(b, 40 + 16, 14); }},
        {"padding", 127, [](std::vector<std::byte>& b) { b[127] = std::byte{1}; }},
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        auto changed = good;
        row.change(changed);
        test::seal(changed);
        const auto opened = ContainerReader::try_open(changed, "changed");
        REQUIRE_FALSE(opened.has_value());
        REQUIRE(opened.error().detail<FileLocation>() != nullptr);
        CHECK(opened.error().detail<FileLocation>()->source == "changed");
        if (row.place != 0) { CHECK(opened.error().detail<FileLocation>()->offset == row.place); }
    }
    auto same = good;
    test::seal(same);
    CHECK(same == good);
}

TEST_CASE("reads beyond a section fail once, with the place, and give nothing from then on") {
    ContainerWriter writer{ContainerKind::plan, 1, 0};
    writer.section(first_tag).u32(5);
    const auto bytes = writer.finish();
    const auto reader = ContainerReader::try_open(bytes, "short");
    REQUIRE(reader);
    SectionReader section = reader->section(first_tag);
    CHECK(section.offset() == 64);
    CHECK(section.u64() == 0);
    CHECK_FALSE(section.ok());
    CHECK(section.u32() == 0);
    CHECK(section.text(10).empty());
    CHECK(section.array<std::uint8_t>(10).empty());
    CHECK(section.count(10, 1) == 0);
    CHECK_FALSE(section.require(false, "later", "nothing"));
    const Status status = section.finish();
    CHECK(status.error().message() == "short at byte 64: found 4 bytes, expected 8 bytes");

    SectionReader unread = reader->section(first_tag);
    CHECK(unread.finish().error().message() ==
          "short at byte 64: found 4 bytes too many, expected the end of the section");
    SectionReader absent = reader->section(second_tag);
    CHECK(absent.u32() == 0);
    CHECK(absent.finish().error().message() == "short at byte 40: found no section BBBB, expected one");
    SectionReader wrong = reader->section(first_tag);
    CHECK(wrong.u32() == 5);
    CHECK_FALSE(wrong.require(false, "5", "6"));
    CHECK(wrong.finish().error().message() == "short at byte 68: found 5, expected 6");
}

TEST_CASE("counts are bounded before anything is allocated") {
    for (const std::uint64_t count : {std::uint64_t{3}, std::uint64_t{1} << 40, UINT64_MAX / 8 + 1, UINT64_MAX}) {
        CAPTURE(count);
        ContainerWriter writer{ContainerKind::plan, 1, 0};
        SectionWriter& section = writer.section(first_tag);
        section.u64(count);
        section.u64(0);
        section.u64(0);
        const auto bytes = writer.finish();
        const auto reader = ContainerReader::try_open(bytes, "counts");
        REQUIRE(reader);
        SectionReader unbounded = reader->section(first_tag);
        CHECK(unbounded.array<std::uint64_t>(UINT64_MAX).empty());
        CHECK(unbounded.finish().error().detail<FileLocation>()->offset == 64);
        SectionReader bounded = reader->section(first_tag);
        CHECK(bounded.array<std::uint8_t>(2).empty());
        CHECK(bounded.finish().error().message() ==
              "counts at byte 64: found a count of " + std::to_string(count) + ", expected at most 2");
        SectionReader text = reader->section(first_tag);
        CHECK(text.text(3).size() == (count == 3 ? 3 : 0));
    }
}

TEST_CASE("random damage under a right checksum never reads outside the bytes") {
    constexpr std::uint32_t seed = 20260101;
    MESSAGE("seed ", seed);
    std::mt19937 engine{seed};
    const auto below = [&](std::size_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    const auto good = sample();
    std::uint64_t opened_count = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> bytes = good;
        for (std::uint32_t changes = 1 + below(4); changes-- > 0;) {
            // After the magic and the version, up to the checksum.
            bytes[12 + below(bytes.size() - 20)] = static_cast<std::byte>(below(256));
        }
        put_u64(bytes, 24, bytes.size());
        test::seal(bytes);
        const auto reader = ContainerReader::try_open(bytes, "damaged");
        if (!reader) { continue; }
        ++opened_count;
        for (const std::uint32_t tag : {first_tag, second_tag}) {
            SectionReader section = reader->section(tag);
            static_cast<void>(section.u8());
            static_cast<void>(section.text(100));
            static_cast<void>(section.array<std::uint16_t>(100));
            static_cast<void>(section.array<double>(100));
            static_cast<void>(section.finish());
        }
    }
    CHECK(opened_count > 100);
}

}  // namespace container_reader_test
