// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/read_coalescer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace read_coalescer_test {

using namespace residency;
using transport::ReadCoalescer;
using transport::SlotRead;
using transport::StoragePart;
using transport::WeightSource;

namespace {

constexpr std::uint64_t page = ReadCoalescer::page_bytes;

WeightSource in_file(std::uint32_t file, std::uint64_t offset, bool is_direct = false) {
    WeightSource source;
    source.file = file;
    source.file_offset = offset;
    source.is_direct = is_direct;
    return source;
}

}  // namespace

TEST_CASE("ReadCoalescer: near neighbours of a file are one read, those of memory only without a gap") {
    ReadCoalescer reads{1 << 20};
    CHECK(reads.add(in_file(0, 1000), {StorageId{0}, 0, 500}).at_bytes == 0);
    CHECK(reads.add(in_file(0, 1500 + ReadCoalescer::padding_bytes), {StorageId{1}, 0, 100}).at_bytes == 564);
    REQUIRE(reads.reads().size() == 1);
    CHECK(reads.reads()[0].from_bytes == 1000);
    CHECK(reads.reads()[0].bytes == 664);
    CHECK(reads.reads()[0].parts == 2);
    // One byte more than a gap, another file, and backwards: a read each, aligned.
    CHECK(reads.add(in_file(0, 1665 + ReadCoalescer::padding_bytes), {StorageId{2}, 0, 10}).at_bytes == 704);
    CHECK(reads.add(in_file(1, 1739), {StorageId{3}, 0, 10}).at_bytes == 768);
    CHECK(reads.add(in_file(1, 0), {StorageId{4}, 0, 10}).at_bytes == 832);
    CHECK(reads.reads().size() == 4);
    CHECK(reads.parts().size() == 5);

    reads.clear();
    CHECK(reads.reads().empty());
    CHECK(reads.parts().empty());
    const std::vector<std::byte> memory(1000);
    WeightSource source;
    source.memory = memory.data();
    CHECK(reads.add(source, {StorageId{0}, 100, 200}).at_bytes == 0);
    CHECK(reads.add(source, {StorageId{0}, 300, 100}).at_bytes == 200);
    CHECK(reads.reads().size() == 1);
    CHECK(reads.add(source, {StorageId{0}, 401, 100}).at_bytes == 320);
    CHECK(reads.reads().size() == 2);
}

TEST_CASE(
    "ReadCoalescer: direct reads are of whole pages, and a slot takes as many bytes as it has from the first on") {
    ReadCoalescer reads{2 * page};
    const ReadCoalescer::Placed first = reads.add(in_file(0, 100, true), {StorageId{0}, 0, page});
    CHECK(first.at_bytes == 100);
    CHECK(first.bytes == page);
    CHECK(reads.reads()[0].from_bytes == 0);
    CHECK(reads.reads()[0].window_bytes == 2 * page);
    const ReadCoalescer::Placed second = reads.add(in_file(0, 100, true), {StorageId{0}, page, 3 * page});
    CHECK(second.at_bytes == 100 + page);
    CHECK(second.bytes == page);
    CHECK(reads.reads()[0].window_bytes == 3 * page);
    CHECK(reads.add(in_file(0, 100, true), {StorageId{0}, 2 * page, 1}).bytes == 0);
    CHECK(reads.add(in_file(7, 0), {StorageId{1}, 0, 1}).bytes == 0);
    CHECK(reads.parts().size() == 2);
}

TEST_CASE("ReadCoalescer: whatever is added, the reads bring every part to its place, and none overlaps another") {
    std::mt19937 random{11};
    std::vector<std::vector<std::byte>> contents(4, std::vector<std::byte>(64 * page));  // two files, two memories
    for (auto& bytes : contents) {
        for (std::byte& byte : bytes) { byte = static_cast<std::byte>(random()); }
    }
    for (int round = 0; round < 400; ++round) {
        CAPTURE(round);
        const std::uint64_t slot_bytes = page << random() % 4;
        ReadCoalescer reads{slot_bytes};
        std::vector<std::byte> slot(slot_bytes + page, std::byte{0xee});
        struct Wanted {
            std::size_t content;
            std::uint64_t from;
            ReadCoalescer::Placed placed;
        };
        std::vector<Wanted> wanted;
        std::uint64_t from = random() % (32 * page);
        for (std::uint32_t i = 0;; ++i) {
            const std::size_t content = random() % 8 != 0 && !wanted.empty() ? wanted.back().content : random() % 4;
            const std::uint64_t storage_offset = content < 2 ? random() % 1000 : 0;
            from = random() % 6 == 0 ? random() % (32 * page) : from + (random() % 3 == 0 ? random() % 300 : 0);
            const std::uint64_t offset = from < storage_offset ? 0 : from - storage_offset;
            from = storage_offset + offset;
            WeightSource source;
            if (content < 2) {
                source = in_file(static_cast<std::uint32_t>(content), storage_offset, content == 1);
            } else {
                source.memory = contents[content].data();
            }
            const std::uint64_t bytes = 1 + random() % 3000;
            const ReadCoalescer::Placed placed = reads.add(source, {StorageId{i}, offset, bytes});
            if (placed.bytes == 0) { break; }
            REQUIRE(placed.bytes <= bytes);
            wanted.push_back({content, from, placed});
            from += placed.bytes;
            if (placed.bytes < bytes) { break; }
        }
        std::size_t parts = 0;
        std::uint64_t used = 0;
        for (const SlotRead& read : reads.reads()) {
            REQUIRE(read.at_bytes >= used);
            used = read.at_bytes + read.window_bytes;
            REQUIRE(used <= slot.size());
            REQUIRE(read.window_bytes >= read.bytes);
            if (read.file == 1) { REQUIRE((read.from_bytes % page == 0 && read.window_bytes % page == 0)); }
            if (read.file == 1) { REQUIRE(read.at_bytes % page == 0); }
            const std::byte* const source = read.memory != nullptr ? read.memory : contents[read.file].data();
            std::memcpy(slot.data() + read.at_bytes, source + read.from_bytes, read.window_bytes);
            parts += read.parts;
        }
        REQUIRE(parts == wanted.size());
        REQUIRE(reads.parts().size() == wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const Wanted& part = wanted[i];
            CHECK(reads.parts()[i].storage == StorageId{static_cast<std::uint32_t>(i)});
            CHECK(reads.parts()[i].bytes == part.placed.bytes);
            CHECK(std::memcmp(slot.data() + part.placed.at_bytes, contents[part.content].data() + part.from,
                              part.placed.bytes) == 0);
        }
    }
}

}  // namespace read_coalescer_test
