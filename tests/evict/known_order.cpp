// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Evictors that know an order: Scheduled, Belady and StaticSplit.

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/model/use_order.hpp"

namespace known_order_test {

using namespace residency;

namespace {

UseOrder order_of(const std::vector<std::vector<std::uint32_t>>& steps, std::uint32_t storages,
                  Cycle cycle = Cycle::cyclic) {
    std::vector<std::uint64_t> offsets{0};
    std::vector<StorageId> ids;
    for (const auto& step : steps) {
        for (const std::uint32_t id : step) { ids.push_back(StorageId{id}); }
        offsets.push_back(ids.size());
    }
    return *UseOrder::try_from(offsets, ids, storages, cycle);
}
constexpr evict::AllMayLeave any;

}  // namespace

TEST_CASE("Scheduled: the furthest next use leaves, in the next pass too") {
    const std::vector<std::uint64_t> bytes(4, 10);
    const UseOrder order = order_of({{0}, {1}, {2}, {3}}, 4);
    evict::Scheduled evictor;
    REQUIRE(evictor.attach({bytes, 30, &order}));
    for (std::uint32_t id = 0; id < 3; ++id) {
        evictor.inserted(StorageId{id}, id);
        evictor.used(StorageId{id}, id);
    }
    CHECK(evictor.victim(3, any) == StorageId{2});
    CHECK(evictor.victim(3, [](StorageId id) { return index(id) != 2; }) == StorageId{1});
    CHECK_FALSE(evictor.victim(3, [](StorageId) { return false; }).has_value());
    evictor.used(StorageId{0}, 4);
    CHECK(evictor.victim(4, any) == StorageId{0});
}

TEST_CASE("Scheduled: a use that did not come counts as the one after it") {
    const std::vector<std::uint64_t> bytes(4, 10);
    const UseOrder order = order_of({{0}, {1}, {2}, {3}}, 4);
    evict::Scheduled evictor;
    REQUIRE(evictor.attach({bytes, 30, &order}));
    evictor.inserted(StorageId{1}, 0);
    evictor.inserted(StorageId{3}, 0);
    // Step 1 passes without storage 1: its next use is in the next pass, behind storage 3's.
    CHECK(evictor.victim(1, any) == StorageId{3});
    CHECK(evictor.victim(2, any) == StorageId{1});
    // Far ahead, any number of passes later.
    CHECK(evictor.victim(4 * 1000 + 2, any) == StorageId{1});
    CHECK(evictor.victim(4 * 1001, any) == StorageId{3});
}

TEST_CASE("Scheduled: what the order does not name leaves first, the least recently used of it") {
    const std::vector<std::uint64_t> bytes(4, 10);
    const UseOrder order = order_of({{0}, {1}}, 4);
    evict::Scheduled evictor;
    REQUIRE(evictor.attach({bytes, 40, &order}));
    for (const std::uint32_t id : {3U, 0U, 2U}) { evictor.inserted(StorageId{id}, 0); }
    CHECK(evictor.victim(0, any) == StorageId{3});
    evictor.used(StorageId{3}, 0);
    CHECK(evictor.victim(0, any) == StorageId{2});

    evict::Scheduled without;
    REQUIRE(without.attach({bytes, 40}));
    for (const std::uint32_t id : {3U, 0U, 2U}) { without.inserted(StorageId{id}, 0); }
    without.used(StorageId{3}, 5);
    CHECK(without.victim(6, any) == StorageId{0});
}

TEST_CASE("Scheduled: a one-shot order ends") {
    const std::vector<std::uint64_t> bytes(2, 10);
    const UseOrder order = order_of({{0}, {1}, {0}}, 2, Cycle::one_shot);
    evict::Scheduled evictor;
    REQUIRE(evictor.attach({bytes, 20, &order}));
    evictor.inserted(StorageId{0}, 0);
    evictor.used(StorageId{0}, 0);
    evictor.inserted(StorageId{1}, 1);
    evictor.used(StorageId{1}, 1);
    CHECK(evictor.victim(1, any) == StorageId{1});
    evictor.used(StorageId{0}, 2);
    CHECK(evictor.victim(100, any) == StorageId{1});
}

TEST_CASE("with a schedule that is wrong Scheduled still names victims that are there") {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 random{seed};
        const std::uint32_t storages = 5 + static_cast<std::uint32_t>(random() % 30);
        const std::vector<std::uint64_t> bytes(storages, 1);
        std::vector<std::vector<std::uint32_t>> steps(1 + random() % 20);
        for (auto& step : steps) { step.push_back(static_cast<std::uint32_t>(random() % storages)); }
        const UseOrder order = order_of(steps, storages, seed % 2 == 0 ? Cycle::cyclic : Cycle::one_shot);
        std::vector<StorageId> accesses;
        for (std::uint32_t i = 0; i < 500; ++i) {
            accesses.push_back(StorageId{static_cast<std::uint32_t>(random() % storages)});
        }
        evict::Scheduled evictor;
        const auto counts = lab::trace::replay_cache(accesses, {bytes, 3, &order}, evictor);
        REQUIRE(counts);
        CHECK(counts->misses >= 3);
    }
}

TEST_CASE("orders that do not fit are refused") {
    const std::vector<std::uint64_t> bytes(4, 10);
    const UseOrder small = order_of({{0}, {1}}, 2);
    CHECK(evict::Scheduled{}.attach({bytes, 40, &small}).error().kind() == ErrorKind::mismatch);
    CHECK(evict::Belady{}.attach({bytes, 40, &small}).error().kind() == ErrorKind::mismatch);
    CHECK(evict::Belady{}.attach({bytes, 40}).error().kind() == ErrorKind::invalid_argument);
    CHECK(evict::Belady{{.recorded = order_of({{0}, {3}}, 4)}}.attach({bytes, 40}));
}

TEST_CASE("StaticSplit: the resident part is spread over the pass, or its beginning, and leaves last") {
    const std::vector<std::uint64_t> bytes(20, 10);
    std::vector<std::vector<std::uint32_t>> steps;
    for (std::uint32_t i = 0; i < 20; ++i) { steps.push_back({i}); }
    const UseOrder order = order_of(steps, 20);
    const auto staying = [&](evict::StaticSplit evictor, std::uint64_t capacity, const UseOrder* known) {
        REQUIRE(evictor.attach({bytes, capacity, known}));
        std::vector<std::uint32_t> ids;
        for (std::uint32_t i = 0; i < 20; ++i) {
            if (evictor.stays(StorageId{i})) { ids.push_back(i); }
        }
        return ids;
    };
    const evict::StaticSplit prefix{{.choice = evict::StaticSplit::Choice::prefix, .ring_steps = 2}};
    CHECK(staying({}, 70, &order) == std::vector<std::uint32_t>{1, 5, 9, 13, 17});
    CHECK(staying({}, 70, nullptr) == std::vector<std::uint32_t>{1, 5, 9, 13, 17});
    CHECK(staying(prefix, 70, &order) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
    CHECK(staying({}, 15, &order).empty());
    CHECK(staying({}, 1000, &order).size() == 20);

    evict::StaticSplit evictor{prefix};
    REQUIRE(evictor.attach({bytes, 70, &order}));
    for (const std::uint32_t id : {0U, 7U, 1U, 9U}) { evictor.inserted(StorageId{id}, 0); }
    CHECK(evictor.victim(0, any) == StorageId{7});
    evictor.used(StorageId{7}, 1);
    CHECK(evictor.victim(1, any) == StorageId{9});
    CHECK(evictor.victim(1, [](StorageId id) { return index(id) < 5; }) == StorageId{0});
}

TEST_CASE("StaticSplit: what a pass reads more often stays first; the ring holds what a step needs") {
    const std::vector<std::uint64_t> bytes{40, 10, 10, 10, 10, 0};
    const UseOrder order = order_of({{0}, {1, 2}, {3}, {1}, {4}, {5}}, 6);
    evict::StaticSplit evictor{{.choice = evict::StaticSplit::Choice::prefix, .ring_steps = 1}};
    REQUIRE(evictor.attach({bytes, 50, &order}));
    CHECK(evictor.stays(StorageId{1}));
    for (const std::uint32_t other : {0U, 2U, 3U, 4U, 5U}) { CHECK_FALSE(evictor.stays(StorageId{other})); }
    REQUIRE(evictor.attach({bytes, 70, &order}));
    CHECK(evictor.stays(StorageId{2}));
    CHECK(evictor.stays(StorageId{3}));
    CHECK_FALSE(evictor.stays(StorageId{0}));
}

}  // namespace known_order_test
