// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/pool/virtual.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/streaming.hpp"

namespace virtual_test {

using streaming::CheckedDevice;
using streaming::must;
using streaming::small_config;
using streaming::Stream;
using Device = residency::SimulatedDevice;
using CallKind = Device::CallKind;
using Virtual = residency::pool::Virtual<Device>;
using Table = std::vector<std::uint32_t>;

namespace {

constexpr std::uint64_t chunk = 4096;
constexpr std::uint32_t none = Virtual::none;

std::uint64_t used(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}
std::uint64_t count(const Device& device, CallKind kind) { return device.statistics().of(kind); }

std::uint32_t slots_of(const Table& table) {
    std::uint32_t slots = 0;
    for (const auto slot : table) { slots = slot == none ? slots : std::max(slots, slot + 1); }
    return slots;
}
std::vector<std::uint32_t> sharers_of(const Table& table) {
    std::vector<std::uint32_t> sharers(slots_of(table), 0);
    for (const auto slot : table) {
        if (slot != none) { ++sharers[slot]; }
    }
    return sharers;
}
bool is_alone(const Table& table, std::size_t c) { return table[c] != none && sharers_of(table)[table[c]] == 1; }

void open(Virtual& pool, Device& device, std::size_t chunks) { must(pool.open(device, chunks * chunk)); }
void fill(Device& device, const Virtual& pool, std::size_t c, std::byte value) {
    must(device.fill(pool.base() + c * chunk, value, chunk, Stream{}));
    must(device.synchronize());
}
/// Whether all bytes of a chunk have this value; read by a kernel.
bool holds(Device& device, const Virtual& pool, std::size_t c, std::byte value) {
    const std::byte* const at = pool.base() + c * chunk;
    bool same = true;
    must(device.launch(Stream{}, {.name = "look", .reads = {{at, chunk}}, .writes = {}, .body = [at, value, &same] {
                                      same = std::count(at, at + chunk, value) == chunk;
                                  }}));
    must(device.synchronize());
    return same;
}

Table random_table(std::mt19937_64& random, std::size_t chunks) {
    Table table(chunks, none);
    const std::uint32_t slots = 1 + static_cast<std::uint32_t>(random() % chunks);
    std::vector<std::uint32_t> names(slots);
    std::uint32_t used_slots = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
        if (random() % 8 == 0) { continue; }
        const bool fresh = used_slots == 0 || (used_slots < slots && random() % 2 == 0);
        table[c] = fresh ? used_slots++ : static_cast<std::uint32_t>(random() % used_slots);
    }
    for (std::uint32_t i = 0; i < used_slots; ++i) { names[i] = i; }
    std::shuffle(names.begin(), names.begin() + used_slots, random);
    for (auto& slot : table) { slot = slot == none ? none : names[slot]; }
    return table;
}

/// An open pool of `least` chunks or up to `spread` − 1 more, and what is random about it.
struct RandomPool {
    explicit RandomPool(std::uint64_t seed, std::size_t least = 1, std::size_t spread = 12)
        : random{seed}, chunks{least + random() % spread} {
        open(pool, device, chunks);
    }
    Table table() { return random_table(random, chunks); }
    /// Arrangements one after the other: `arrange(now, next)` is to make each.
    template <class Arrange>
    void rearrange(Arrange arrange) {
        Table now(chunks, none);
        for (int round = 0; round < 12; ++round) {
            Table next = table();
            arrange(now, next);
            now = std::move(next);
        }
    }

    std::mt19937_64 random;
    std::size_t chunks;
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = chunk}};
};

}  // namespace

TEST_SUITE_BEGIN("pool::Virtual");

TEST_CASE("the range is reserved once and holds nothing; what is held is slots x chunk, as the device counts it") {
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = 1}};
    CHECK(pool.chunk_bytes(device) == chunk);
    const auto before = used(device);
    must(pool.open(device, 10 * chunk - 5));
    CHECK(pool.held_bytes() == 0);
    CHECK(used(device) == before);
    CHECK(count(device, CallKind::reserve) == 1);
    const std::byte* const base = pool.base();
    must(pool.arrange(3, Table{0, 1, 2, 0, 1, 2, 0, none, none, 1}));
    CHECK(pool.held_bytes() == 3 * chunk);
    CHECK(used(device) - before == 3 * chunk);
    CHECK(pool.base() == base);
    must(pool.arrange(5, Table{0, 1, 2, 3, 4, 2, 0, none, 1, 1}));
    CHECK(used(device) - before == 5 * chunk);
    must(pool.arrange(1, Table(10, 0)));
    CHECK(used(device) - before == chunk);
    CHECK(pool.base() == base);
    CHECK(count(device, CallKind::reserve) == 1);
    pool.close();
    CHECK(used(device) == before);
    CHECK(pool.held_bytes() == 0);
}

TEST_CASE("an image of no bytes needs no range and no memory") {
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = chunk}};
    must(pool.open(device, 0));
    must(pool.arrange(0, {}));
    CHECK(pool.held_bytes() == 0);
    CHECK(count(device, CallKind::reserve) == 0);
}

TEST_CASE("chunks that share a slot are the same bytes; others are not") {
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = chunk}};
    open(pool, device, 4);
    must(pool.arrange(2, Table{0, 1, 0, 1}));
    fill(device, pool, 0, std::byte{1});
    fill(device, pool, 1, std::byte{2});
    CHECK(holds(device, pool, 2, std::byte{1}));
    CHECK(holds(device, pool, 3, std::byte{2}));
}

TEST_CASE("arranging again leaves alone what does not change: no call for it at all") {
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = chunk}};
    open(pool, device, 6);
    must(pool.arrange(4, Table{0, 1, 2, 3, 2, 3}));
    const auto calls = device.statistics();
    must(pool.arrange(4, Table{0, 1, 2, 3, 2, 3}));
    // The same under other names.
    must(pool.arrange(4, Table{3, 0, 1, 2, 1, 2}));
    for (const auto kind : {CallKind::map, CallKind::unmap, CallKind::create_chunk, CallKind::destroy_chunk}) {
        CHECK(device.statistics().of(kind) == calls.of(kind));
    }
    // One chunk moves: one unmapping, one mapping, no memory.
    must(pool.arrange(4, Table{3, 0, 1, 2, 1, 1}));
    CHECK(count(device, CallKind::map) == calls.of(CallKind::map) + 1);
    CHECK(count(device, CallKind::unmap) == calls.of(CallKind::unmap) + 1);
    CHECK(count(device, CallKind::create_chunk) == 4);
    CHECK(count(device, CallKind::destroy_chunk) == 0);
}

TEST_CASE("what stays alone keeps its bytes through any arrangements; physical use is always exact") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        RandomPool rig{seed};
        auto& [random, chunks, device, pool] = rig;
        const auto before = used(device);
        std::vector<std::optional<std::byte>> content(chunks);
        rig.rearrange([&](const Table& table, const Table& next) {
            const auto calls = device.statistics();
            const auto peak = std::max<std::uint64_t>(slots_of(table), slots_of(next));
            must(pool.arrange(slots_of(next), next));
            REQUIRE(pool.held_bytes() == slots_of(next) * chunk);
            REQUIRE(used(device) - before == slots_of(next) * chunk);
            REQUIRE(count(device, CallKind::create_chunk) - calls.of(CallKind::create_chunk) == peak - slots_of(table));
            for (std::size_t c = 0; c < chunks; ++c) {
                if (!is_alone(table, c) || !is_alone(next, c)) { content[c].reset(); }
                if (content[c]) { REQUIRE(holds(device, pool, c, *content[c])); }
                REQUIRE((pool.slot_of(static_cast<std::uint32_t>(c)) == next[c]));
            }
            for (std::size_t c = 0; c < chunks; ++c) {
                if (!is_alone(next, c) || random() % 2 == 0) { continue; }
                content[c] = static_cast<std::byte>(random() % 200);
                fill(device, pool, c, *content[c]);
            }
        });
        pool.close();
        REQUIRE(used(device) == before);
    }
}

TEST_CASE("what is named keeps its bytes on slots that it shares, and is not mapped anew") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        RandomPool rig{seed};
        auto& [random, chunks, device, pool] = rig;
        rig.rearrange([&](const Table& table, const Table& next) {
            // One chunk at most of each slot, before and after.
            std::vector<std::uint32_t> keeping;
            std::vector<bool> before(slots_of(table), false), after(slots_of(next), false);
            for (std::uint32_t c = 0; c < chunks; ++c) {
                if (table[c] == none || next[c] == none || before[table[c]] || after[next[c]] || random() % 4 == 0) {
                    continue;
                }
                before[table[c]] = after[next[c]] = true;
                keeping.push_back(c);
                fill(device, pool, c, static_cast<std::byte>(c));
            }
            must(pool.arrange(slots_of(next), next, keeping));
            REQUIRE(pool.held_bytes() == slots_of(next) * chunk);
            for (const std::uint32_t c : keeping) { REQUIRE(holds(device, pool, c, static_cast<std::byte>(c))); }
        });
    }
}

TEST_CASE("remap moves one chunk and keeps the others; held bytes do not change") {
    CheckedDevice device;
    Virtual pool{{.chunk_bytes = chunk}};
    open(pool, device, 4);
    must(pool.arrange(3, Table{0, 1, 2, 1}));
    for (std::size_t c : {0U, 1U, 2U}) { fill(device, pool, c, static_cast<std::byte>(c + 1)); }
    must(pool.remap(3, 2));
    CHECK(pool.slot_of(3) == 2);
    CHECK(holds(device, pool, 3, std::byte{3}));
    CHECK(holds(device, pool, 0, std::byte{1}));
    CHECK(holds(device, pool, 1, std::byte{2}));
    CHECK(pool.held_bytes() == 3 * chunk);
    // What comes next knows where it is now.
    must(pool.arrange(3, Table{0, 1, 2, 1}));
    CHECK(holds(device, pool, 3, std::byte{2}));
    CHECK(holds(device, pool, 2, std::byte{3}));
}

TEST_CASE("a failed remap leaves the chunk where it was") {
    for (const auto kind : {CallKind::map, CallKind::unmap}) {
        CheckedDevice device;
        Virtual pool{{.chunk_bytes = chunk}};
        open(pool, device, 3);
        must(pool.arrange(2, Table{0, 1, 0}));
        fill(device, pool, 0, std::byte{7});
        device.fail(kind, 1);
        CHECK_FALSE(pool.remap(2, 1));
        CHECK(pool.slot_of(2) == 0);
        CHECK(holds(device, pool, 2, std::byte{7}));
        must(pool.remap(2, 1));
        CHECK(pool.slot_of(2) == 1);
    }
}

TEST_CASE("whichever call fails: nothing is lost track of, what stays alone keeps its bytes, and the next one mends") {
    std::uint64_t failures = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        for (std::uint64_t nth = 1; nth < 40; ++nth) {
            CAPTURE(seed);
            CAPTURE(nth);
            RandomPool rig{seed, 2, 8};
            auto& [random, chunks, device, pool] = rig;
            const auto before = used(device);
            const Table first = rig.table(), second = rig.table();
            must(pool.arrange(slots_of(first), first));
            std::vector<bool> kept(chunks, false);
            for (std::size_t c = 0; c < chunks; ++c) {
                kept[c] = is_alone(first, c) && is_alone(second, c);
                if (kept[c]) { fill(device, pool, c, static_cast<std::byte>(c + 1)); }
            }
            device.fail(CallKind::any, nth);
            const auto arranged = pool.arrange(slots_of(second), second);
            device.clear_failures();
            REQUIRE(used(device) - before == pool.held_bytes());
            REQUIRE(pool.held_bytes() <= std::max(slots_of(first), slots_of(second)) * chunk);
            failures += arranged ? 0U : 1U;
            // Back, or on.
            const Table& last = seed % 2 == 0 ? first : second;
            if (!arranged) { must(pool.arrange(slots_of(last), last)); }
            REQUIRE(used(device) - before == pool.held_bytes());
            for (std::size_t c = 0; c < chunks; ++c) {
                if (kept[c]) { REQUIRE(holds(device, pool, c, static_cast<std::byte>(c + 1))); }
            }
            pool.close();
            REQUIRE(used(device) == before);
            if (arranged) { break; }
        }
    }
    CHECK(failures > 100);
}

TEST_CASE("out of memory in the middle gives back what was taken, and nothing has moved") {
    auto config = small_config();
    config.memory_bytes = 8 * chunk;
    CheckedDevice device{config};
    Virtual pool{{.chunk_bytes = chunk}};
    open(pool, device, 12);
    Table table(12, 0);
    for (std::uint32_t c = 0; c < 4; ++c) { table[c] = c; }
    must(pool.arrange(4, table));
    fill(device, pool, 2, std::byte{9});
    Table all(12);
    for (std::uint32_t c = 0; c < 12; ++c) { all[c] = c; }
    const auto refused = pool.arrange(12, all);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == residency::ErrorKind::out_of_memory);
    CHECK(pool.held_bytes() == 4 * chunk);
    CHECK(used(device) == 4 * chunk);
    CHECK(pool.slot_of(5) == 0);
    CHECK(holds(device, pool, 2, std::byte{9}));
}

TEST_SUITE_END();

}  // namespace virtual_test
