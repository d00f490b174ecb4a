// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/chunk_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace chunk_contents_test {

namespace plan = residency::plan;
using residency::StorageId;
using residency::core::ChunkContents;
using residency::testing::Dice;

TEST_CASE("storages per chunk, chunks per storage, and pieces of ranges and calls agree with the layout of the image") {
    std::vector<std::byte> memory(std::size_t{8} << 20);
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = residency::testing::random_problem(dice);
        problem.budget_bytes = residency::testing::total_bytes(problem) * dice(20, 110) / 100;
        const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
        if (!made) { continue; }
        REQUIRE(made->image_bytes() <= memory.size());
        const ChunkContents contents{*made, memory.data()};
        const std::uint64_t g = made->chunk_bytes();
        const auto lies_in = [&](std::uint32_t s, std::uint64_t begin, std::uint64_t end) {
            return made->storage_bytes(s) > 0 && made->storage_offset(s) < end &&
                   made->storage_offset(s) + made->storage_bytes(s) > begin;
        };
        for (std::uint32_t chunk = 0; chunk < made->chunks(); ++chunk) {
            std::vector<std::uint32_t> expected;
            for (std::uint32_t s = 0; s < made->storages(); ++s) {
                const bool lies = lies_in(s, chunk * g, (chunk + 1) * g);
                if (lies) { expected.push_back(s); }
                CHECK(contents.chunks(StorageId{s}).contains(chunk) == lies);
            }
            std::ranges::sort(expected, {}, [&](std::uint32_t s) { return std::pair{made->storage_offset(s), s}; });
            CHECK(std::ranges::equal(contents.storages(chunk), expected));
        }
        // In a range, each storage is one piece, at its address.
        const auto check = [&](std::span<const residency::transport::Fetch> pieces,
                               const std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>& expected) {
            CHECK(pieces.size() == expected.size());
            CHECK(std::ranges::is_sorted(pieces, {}, [](const auto& piece) { return piece.to; }));
            for (const auto& piece : pieces) {
                const std::uint32_t s = residency::index(piece.storage);
                REQUIRE(expected.contains(s));
                const auto [begin, end] = expected.at(s);
                CHECK(made->storage_offset(s) + piece.offset_bytes == begin);
                CHECK(piece.bytes == end - begin);
                CHECK(piece.to == memory.data() + begin);
            }
        };
        const auto pieces_in = [&](std::uint64_t begin, std::uint64_t end) {
            std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> pieces;
            for (std::uint32_t s = 0; s < made->storages(); ++s) {
                if (!lies_in(s, begin, end)) { continue; }
                pieces[s] = {std::max(begin, made->storage_offset(s)),
                             std::min(end, made->storage_offset(s) + made->storage_bytes(s))};
            }
            return pieces;
        };
        std::vector<residency::transport::Fetch> pieces;
        for (int i = 0; i < 10 && made->image_bytes() > 0; ++i) {
            const auto last = static_cast<std::uint32_t>(made->image_bytes());
            const std::uint64_t begin = dice(0, last - 1), end = dice(static_cast<std::uint32_t>(begin) + 1, last);
            pieces.clear();
            contents.append_pieces(*made, begin, end, pieces);
            check(pieces, pieces_in(begin, end));
        }
        for (std::uint32_t k = 0; k < made->calls().size(); ++k) {
            auto rest = contents.call(k);
            for (const plan::Copy& copy : made->copies(made->calls()[k])) {
                const auto expected = pieces_in(copy.image_begin, copy.image_end);
                REQUIRE(rest.size() >= expected.size());
                check(rest.first(expected.size()), expected);
                rest = rest.subspan(expected.size());
            }
            CHECK(rest.empty());
        }
    }
}

}  // namespace chunk_contents_test
