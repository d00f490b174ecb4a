// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The parts of the simulated device, each alone.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "residency/simulation/address_space.hpp"
#include "residency/simulation/handle_table.hpp"
#include "residency/simulation/kernel.hpp"
#include "residency/simulation/shadow_memory.hpp"

namespace simulation_test {

using namespace residency::simulation;

namespace {

/// Counts findings.
struct Sink {
    int conflicts = 0, unwritten = 0, gone = 0;
    static bool later(const Access&) noexcept { return false; }
    void conflict(const Access&, bool, std::uint64_t, std::uint64_t) noexcept { ++conflicts; }
    void uninitialised(const Access&, std::uint64_t, std::uint64_t) noexcept { ++unwritten; }
    void dead(const Access&, std::uint64_t, std::uint64_t) noexcept { ++gone; }
};

Access access(std::uint64_t sequence, std::uint32_t actor) { return {sequence, actor, 0, 0, OperationKind::kernel}; }

}  // namespace

TEST_CASE("kernel functions: small ones in place, large ones not, each destroyed once") {
    const auto alive = std::make_shared<int>(0);
    const std::array<std::byte, 200> large{};
    int calls = 0;
    {
        KernelFunction small{[alive, &calls] { ++calls; }};
        KernelFunction big{[alive, large, &calls] { calls += 10 + std::to_integer<int>(large[0]); }};
        CHECK(alive.use_count() == 3);
        KernelFunction moved{std::move(big)};
        moved();
        big = std::move(small);
        big();
        CHECK(alive.use_count() == 3);
        moved = std::move(big);
        CHECK(alive.use_count() == 2);
        moved();
        moved.reset();
        CHECK(alive.use_count() == 1);
        CHECK_FALSE(moved);
    }
    CHECK(calls == 12);
    CHECK(alive.use_count() == 1);
}

TEST_CASE("byte ranges keep their order beyond the four that need no allocation") {
    const std::array<std::byte, 16> bytes{};
    ByteRanges ranges{{bytes.data(), 1}, {bytes.data() + 1, 2}};
    for (std::uint64_t i = 2; i < 10; ++i) {
        ranges.push_back({bytes.data() + i, i + 1});
        REQUIRE(ranges.view().size() == i + 1);
    }
    for (std::uint64_t i = 0; i < 10; ++i) {
        CHECK(ranges.view()[i].at == bytes.data() + i);
        CHECK(ranges.view()[i].bytes == i + 1);
    }
    ranges.clear();
    CHECK(ranges.view().empty());
}

TEST_CASE("names are numbered once") {
    NameTable names;
    const auto a = names.number("a");
    CHECK(names.number("b") != a);
    CHECK(names.number(std::string{"a"}) == a);
    CHECK(names.name(a) == "a");
}

TEST_CASE("a table of handles recognises those of destroyed objects and of other tables") {
    const int owner = 0, other = 0;
    HandleTable<int, struct Tag> table{&owner};
    const auto first = table.add();
    *table.find(first) = 7;
    table.remove(first);
    CHECK(table.find(first) == nullptr);
    const auto second = table.add();
    CHECK(second.index == first.index);
    CHECK(*table.find(second) == 0);
    CHECK(table.find(first) == nullptr);
    CHECK(table.find({}) == nullptr);
    CHECK(table.find({99, 1, &owner}) == nullptr);
    CHECK(table.find({second.index, second.generation, &other}) == nullptr);
}

TEST_CASE("an address map finds every byte of its ranges, and none between") {
    AddressMap map;
    auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 30U);
    for (const std::uint64_t i : {5U, 0U, 2U, 1U}) {
        const auto begin = reinterpret_cast<std::uintptr_t>(base + 100 * i);
        map.insert({begin, begin + 100, static_cast<std::uint32_t>(i), 0, true, false, 0});
    }
    for (std::uint64_t at = 0; at < 700; ++at) {
        const auto* const entry = map.find(base + at);
        const bool inside = at < 300 || (at >= 500 && at < 600);
        REQUIRE((entry != nullptr) == inside);
        if (inside) { CHECK(entry->region == at / 100); }
    }
    CHECK(map.holds(base, 300));
    CHECK(map.holds(base + 150, 150));
    CHECK_FALSE(map.holds(base, 301));
    CHECK_FALSE(map.holds(base + 250, 300));
    CHECK(map.touches(base + 299, 1));
    CHECK(map.touches(base + 300, 201));
    CHECK_FALSE(map.touches(base + 300, 200));
    const auto before = map.generation();
    map.erase(base + 100, 200);
    CHECK(map.generation() != before);
    CHECK(map.holds(base, 100));
    CHECK_FALSE(map.touches(base + 100, 400));
}

TEST_CASE("a shadow splits and joins: it stays as small as what there is to say") {
    AccessLists lists;
    ShadowMemory shadow;
    Sink sink;
    VectorClock clock;
    shadow.reset(lists, 1000, Content::written, access(1, 1));
    clock.set(1, 1);
    for (std::uint64_t round = 0; round < 100; ++round) {
        // One stream reads all of the memory in pieces; then it reads a moving window.
        const std::uint64_t sequence = 10 + round * 20;
        clock.set(2, sequence);
        for (std::uint64_t at = 0; at < 1000; at += 10) {
            shadow.read(lists, at, at + 10, access(sequence, 2), clock, false, sink);
        }
        CHECK(shadow.size() == 1);
        clock.set(2, sequence + 1);
        shadow.read(lists, round, 500 + round, access(sequence + 1, 2), clock, false, sink);
        CHECK(shadow.size() <= 3);
        clock.set(2, sequence + 2);
        shadow.write(lists, 0, 1000, access(sequence + 2, 2), clock, false, Content::written, sink);
        CHECK(shadow.size() == 1);
    }
    CHECK(sink.conflicts == 0);
    // A stream that has waited for nothing conflicts with the write, once for each interval.
    shadow.read(lists, 200, 300, access(5000, 3), VectorClock{}, false, sink);
    CHECK(sink.conflicts == 1);
    CHECK(shadow.size() == 3);
    clock.set(2, 6000);
    shadow.write(lists, 250, 260, access(6000, 2), clock, false, Content::freed, sink);
    CHECK(sink.conflicts == 2);
    shadow.write(lists, 0, 1000, access(6000, 2), clock, false, Content::written, sink);
    CHECK(sink.gone == 1);
    shadow.read(lists, 255, 256, access(6000, 2), clock, false, sink);
    CHECK(sink.gone == 2);
    shadow.assign(lists, 0, 1000, access(7000, 2), Content::uninitialised);
    CHECK(shadow.size() == 1);
    clock.set(2, 7001);
    shadow.read(lists, 0, 1000, access(7001, 2), clock, false, sink);
    CHECK(sink.unwritten == 1);
}

TEST_CASE("an address space knows its own, and hands a range out again only much later") {
    AddressSpace space;
    const std::uint64_t page = AddressSpace::page_bytes();
    std::set<std::byte*> seen;
    std::byte* again = nullptr;
    for (int i = 0; i < 4200 && again == nullptr; ++i) {
        std::byte* const at = space.reserve(page, page);
        REQUIRE(at != nullptr);
        CHECK(space.owns(at));
        if (!seen.insert(at).second) { again = at; }
        space.give_back(at, page);
        if (i < 4096) { REQUIRE(again == nullptr); }
    }
    CHECK(again != nullptr);
    CHECK_FALSE(space.owns(&space));
    std::byte* const aligned = space.reserve(3 * page, 1 << 21);
    CHECK(reinterpret_cast<std::uintptr_t>(aligned) % (1 << 21) == 0);
    REQUIRE(AddressSpace::commit(aligned, 3 * page));
    std::memset(aligned, 1, 3 * page);
    std::byte* const huge = space.reserve(std::uint64_t{3} << 30U, page);
    CHECK(space.owns(huge + (std::uint64_t{3} << 30U) - 1));

    std::uint64_t offset = 0;
    REQUIRE(space.create(2 * page, offset, std::byte{5}));
    REQUIRE(space.map(huge, offset, 2 * page));
    REQUIRE(space.map(huge + 2 * page, offset + page, page));
    CHECK(huge[0] == std::byte{5});
    huge[page + 9] = std::byte{6};
    CHECK(huge[2 * page + 9] == std::byte{6});
}

}  // namespace simulation_test
