// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/chunk_miss_handler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/core/planned_parts.hpp"
#include "tests/support/planning.hpp"

namespace chunk_miss_handler_test {

using namespace planned_parts;
using residency::Cycle;
using residency::ErrorKind;
using residency::Placement;
using residency::simulation::CallKind;
using residency::testing::Dice;

namespace {

residency::Status bring(Parts& parts, std::vector<std::uint32_t> storages) {
    std::vector<StorageId> wanted;
    for (const std::uint32_t s : storages) { wanted.push_back(StorageId{s}); }
    return parts.demand.bring(wanted, false);
}
bool is_there(const Parts& parts, std::uint32_t storage) {
    bool all = true;
    for (const std::uint32_t c : parts.store.contents().chunks(StorageId{storage})) {
        all = all && parts.store.table().is_there(c);
    }
    return all;
}

}  // namespace

TEST_CASE("chunk misses: what is missing is brought, in one call, and what is there is left alone") {
    Parts parts{chunks(8)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    must(bring(parts, {5}));
    CHECK(is_there(parts, 5));
    CHECK(bool{parts.states[5].demand_missed});
    CHECK(parts.counters.calls == 1);
    parts.use(5);
    CHECK(parts.player.mode() == PlanMode::verifying);
    must(bring(parts, {5}));
    CHECK(parts.counters.calls == 1);
    must(bring(parts, {0, 5, 1}));
    CHECK(parts.counters.calls == 2);
    for (const std::uint32_t s : {0U, 5U, 1U}) {
        CHECK(is_there(parts, s));
        parts.use(s);
    }
}

TEST_CASE("chunk misses: chunks of one slot that are needed together: one is mapped elsewhere, and comes home later") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK(parts.pass() == 6);
    std::uint32_t one = 0, other = 0;
    for (std::uint32_t a = 0; a < 6; ++a) {
        for (std::uint32_t b = 0; b < a; ++b) {
            if (parts.store.plan().slot_of_chunk(parts.chunk_of(a)) ==
                parts.store.plan().slot_of_chunk(parts.chunk_of(b))) {
                one = a;
                other = b;
            }
        }
    }
    REQUIRE(one != other);
    must(bring(parts, {one}));
    parts.hold(one);
    const std::uint64_t waits = parts.counters.host_waits;
    must(bring(parts, {other}));
    CHECK(parts.counters.host_waits > waits);
    CHECK(parts.store.has_remapped());
    CHECK(is_there(parts, one));
    CHECK(is_there(parts, other));
    parts.use(other);
    parts.read(one);
    parts.let_go(one);
    for (int i = 0; i < 2; ++i) { static_cast<void>(parts.pass()); }
    CHECK(parts.pass() == 6);
    CHECK_FALSE(parts.store.has_remapped());
    CHECK(parts.player.mode() == PlanMode::following);
}

TEST_CASE("chunk misses: without room nothing changes, and the error says what to do") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(2 * chunk)));
    must(bring(parts, {0}));
    parts.hold(0);
    must(bring(parts, {1}));
    parts.hold(1);
    const auto brought = bring(parts, {2});
    REQUIRE_FALSE(brought);
    CHECK(brought.error().kind() == ErrorKind::budget);
    const std::string message = brought.error().message();
    CHECK(message.find("policies.leases_at_once") != std::string::npos);
    CHECK(message.find("8,192 bytes (8 KiB) are leased beside them") != std::string::npos);
    CHECK(message.find("4,096 bytes (4 KiB) are asked for together") != std::string::npos);
    parts.read(0);
    parts.read(1);
    parts.let_go(0);
    parts.let_go(1);
    must(bring(parts, {2}));
    parts.use(2);

    const auto all = bring(parts, {0, 1, 2, 3});
    REQUIRE_FALSE(all);
    CHECK(std::string{all.error().message()}.find("ask for less") != std::string::npos);
}

TEST_CASE("chunk misses: residents give way last, once their uses are recorded, and come back") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(5 * chunk)));
    CHECK(parts.pass() == 6);
    std::vector<std::uint32_t> streamed, residents;
    for (std::uint32_t s = 0; s < 6; ++s) {
        (parts.store.table().stays(parts.chunk_of(s)) ? residents : streamed).push_back(s);
    }
    REQUIRE(residents.size() >= 2);
    REQUIRE(streamed.size() >= 2);
    CHECK_FALSE(parts.uses.records_residents());
    for (const std::uint32_t s : streamed) {
        must(bring(parts, {s}));
        parts.hold(s);
        parts.read(s);
    }
    CHECK(parts.uses.records_residents());
    CHECK_FALSE(parts.player.has_all_residents());
    for (const std::uint32_t s : streamed) { parts.let_go(s); }
    for (int i = 0; i < 3; ++i) { static_cast<void>(parts.pass()); }
    CHECK(parts.player.has_all_residents());
    for (const std::uint32_t s : residents) { CHECK(is_there(parts, s)); }
}

TEST_CASE("chunk misses: what is pinned does not give way, nor do the residents of a one-shot plan") {
    for (const Cycle cycle : {Cycle::cyclic, Cycle::one_shot}) {
        std::vector<Spec> specs = chunks(5);
        if (cycle == Cycle::cyclic) { specs[0].placement = specs[1].placement = Placement::resident; }
        Parts parts{specs, cycle};
        must(parts.adopt(parts.make_plan(3 * chunk)));
        CHECK(parts.pass() == 5);
        parts.player.pass_began(0);
        std::vector<std::uint32_t> held;
        for (std::uint32_t s = 2; s < 5; ++s) {
            if (!bring(parts, {s})) { break; }
            parts.hold(s);
            held.push_back(s);
        }
        for (std::uint32_t s = 0; cycle == Cycle::cyclic && s < 2; ++s) { CHECK(is_there(parts, s)); }
        CHECK_FALSE(parts.uses.records_residents());
        for (const std::uint32_t s : held) { parts.let_go(s); }
        parts.player.pass_ended();
        CHECK(parts.pass() == 5);
    }
}

TEST_CASE("chunk misses: a lost use is waited for before anything is overwritten") {
    Parts parts{chunks(4)};
    must(parts.adopt(parts.make_plan(2 * chunk)));
    must(bring(parts, {0}));
    parts.read(0, std::chrono::milliseconds{1});
    parts.uses.note_lost();
    must(bring(parts, {1}));
    CHECK_FALSE(parts.uses.has_lost());
    must(bring(parts, {2}));
    parts.use(2);
}

TEST_CASE("chunk misses: requests at random, leased for a while, between passes of the plan") {
    std::uint64_t refused = 0, missed = 0, remapped = 0;
    for (std::uint64_t seed = 0; seed < 80; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const std::uint32_t count = dice(3, 9);
        std::vector<Spec> specs;
        for (std::uint32_t i = 0; i < count; ++i) { specs.push_back({dice(1, 3 * chunk)}); }
        Parts parts{specs};
        std::uint64_t everything = 0;
        for (const Spec& spec : specs) { everything += (spec.bytes / chunk + 1) * chunk; }
        const std::uint64_t floor = parts.factory.sizes().floor_bytes;
        must(parts.adopt(parts.make_plan(floor + (everything - floor) * dice(0, 100) / 100)));
        std::vector<std::uint32_t> held;
        for (int i = 0; i < 40; ++i) {
            if (dice(0, 9) == 0 && held.empty()) {
                // At the floor a step that follows a demand may miss: the decider brings it, the player alone does not.
                static_cast<void>(parts.pass());
            }
            std::vector<std::uint32_t> wanted{dice(0, count - 1)};
            if (dice(0, 2) == 0) { wanted.push_back((wanted.front() + 1) % count); }
            const std::uint64_t waits = parts.counters.host_waits;
            const bool brought = bring(parts, wanted).has_value();
            if (!brought) {
                ++refused;
                CHECK_FALSE((held.empty() && wanted.size() == 1));
            }
            remapped += parts.counters.host_waits - waits;
            for (const std::uint32_t s : held) { CHECK(is_there(parts, s)); }
            for (const std::uint32_t s : wanted) {
                if (!brought) { continue; }
                CHECK(is_there(parts, s));
                missed += parts.states[s].demand_missed ? 1U : 0U;
                parts.hold(s);
                parts.read(s);
                held.push_back(s);
            }
            while (!held.empty() && dice(0, 1) == 0) {
                parts.read(held.back());
                parts.let_go(held.back());
                held.pop_back();
            }
            CHECK(parts.store.held_bytes() == parts.store.plan().held_bytes());
        }
        for (const std::uint32_t s : held) { parts.let_go(s); }
        for (int i = 0; i < 3; ++i) { static_cast<void>(parts.pass()); }
        CHECK(parts.pass() == count);
    }
    CHECK(refused > 0);
    CHECK(missed > 0);
    CHECK(remapped > 0);
}

}  // namespace chunk_miss_handler_test
