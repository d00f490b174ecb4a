// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/use_order.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"

namespace use_order_test {

using namespace residency;

namespace {

constexpr std::uint64_t never = UseOrder::never;

UseOrder order_of(std::vector<std::uint64_t> offsets, std::vector<std::uint32_t> ids, std::uint32_t count,
                  Cycle cycle) {
    std::vector<StorageId> storages;
    for (const std::uint32_t id : ids) { storages.push_back(StorageId{id}); }
    const auto order = UseOrder::try_from(offsets, storages, count, cycle);
    REQUIRE(order);
    return *order;
}

}  // namespace

TEST_CASE("next uses in a cyclic order go on in the next pass") {
    // Steps: {0, 1}, {1}, {}, {0}; storage 2 is never read.
    const UseOrder order = order_of({0, 2, 3, 3, 4}, {0, 1, 1, 0}, 3, Cycle::cyclic);
    CHECK(order.steps() == 4);
    CHECK(order.storage_count() == 3);
    CHECK(order.is_cyclic());
    CHECK(order.next_use(StorageId{0}, 0) == 3);
    CHECK(order.next_use(StorageId{0}, 2) == 3);
    CHECK(order.next_use(StorageId{0}, 3) == 4);
    CHECK(order.next_use(StorageId{1}, 0) == 1);
    CHECK(order.next_use(StorageId{1}, 1) == 4);
    CHECK(order.next_use(StorageId{1}, 400) == 401);
    CHECK(order.next_use(StorageId{1}, 401) == 404);
    CHECK(order.next_use(StorageId{2}, 0) == never);
    CHECK(order.use_from(StorageId{0}, 0) == 0);
    CHECK(order.use_from(StorageId{0}, 1) == 3);
    CHECK(order.use_from(StorageId{2}, 0) == never);
    CHECK(order.storages_at(0).size() == 2);
    CHECK(order.storages_at(2).empty());
    CHECK(order.storages_at(4 * 1000 + 3).front() == StorageId{0});
    CHECK(order.uses(StorageId{2}).empty());
}

TEST_CASE("a one-shot order ends") {
    const UseOrder order = order_of({0, 2, 3, 3, 4}, {0, 1, 1, 0}, 2, Cycle::one_shot);
    CHECK_FALSE(order.is_cyclic());
    CHECK(order.next_use(StorageId{0}, 0) == 3);
    CHECK(order.next_use(StorageId{0}, 3) == never);
    CHECK(order.next_use(StorageId{1}, 1) == never);
    CHECK(order.next_use(StorageId{1}, 1000) == never);
    CHECK(order.use_from(StorageId{0}, 4) == never);
}

TEST_CASE("steps near the end of 64 bits do not wrap") {
    const UseOrder order = order_of({0, 1, 2, 3}, {0, 1, 2}, 3, Cycle::cyclic);
    CHECK(order.next_use(StorageId{0}, UINT64_MAX) == never);
    // 2^64 − 1 is a multiple of 3, and also what never is.
    CHECK(order.next_use(StorageId{0}, UINT64_MAX - 1) == never);
    CHECK(order.next_use(StorageId{1}, UINT64_MAX - 1) == never);
    CHECK(order.next_use(StorageId{2}, UINT64_MAX - 2) == UINT64_MAX - 1);
    CHECK(order.next_use(StorageId{1}, UINT64_MAX - 2) == never);
    CHECK(order.next_use(StorageId{0}, UINT64_MAX - 4) == UINT64_MAX - 3);

    // Four divides 2^64: the next pass would start at zero again.
    const UseOrder four = order_of({0, 1, 2, 3, 3}, {0, 1, 2}, 3, Cycle::cyclic);
    CHECK(four.next_use(StorageId{0}, UINT64_MAX - 1) == never);
    CHECK(four.next_use(StorageId{0}, UINT64_MAX - 4) == UINT64_MAX - 3);
    CHECK(four.next_use(StorageId{1}, UINT64_MAX - 2) == never);
}

TEST_CASE("an order of a schedule counts tied weights once") {
    CatalogBuilder builder;
    builder.add("a", dtype::u8, {1});
    builder.add("b", dtype::u8, {1});
    builder.tie("c", "a");
    builder.add("unused", dtype::u8, {1});
    const auto schedule = ScheduleBuilder{*builder.try_build()}.step({"a", "c"}).step({"b"}).step({"c"}).try_build();
    REQUIRE(schedule);
    const UseOrder order = schedule->use_order();
    CHECK(order.steps() == 3);
    CHECK(order.storage_count() == 3);
    CHECK(order.storages_at(0).size() == 1);
    CHECK(order.next_use(StorageId{0}, 0) == 2);
    CHECK(order.next_use(StorageId{2}, 0) == never);
    CHECK(UseOrder{}.steps() == 0);
    CHECK(UseOrder{}.storage_count() == 0);
    CHECK(Schedule{}.use_order().steps() == 0);
}

TEST_CASE("bad plain data is refused") {
    const std::vector<StorageId> storages{StorageId{0}, StorageId{1}};
    const auto refused = [&](std::vector<std::uint64_t> offsets, std::uint32_t count) {
        return !UseOrder::try_from(offsets, storages, count, Cycle::cyclic).has_value();
    };
    CHECK_FALSE(refused({0, 1, 2}, 2));
    CHECK(refused({0, 1, 2}, 1));
    CHECK(refused({}, 2));
    CHECK(refused({1, 2}, 2));
    CHECK(refused({0, 1}, 2));
    CHECK(refused({0, 3}, 2));
    CHECK(refused({0, 3, 2}, 2));
    const std::vector<std::uint64_t> offsets{0, 2};
    CHECK(UseOrder::try_from(offsets, storages, 1, Cycle::cyclic).error().message() == "step 0 reads storage 1 of 1");
}

TEST_CASE("random orders agree with a walk") {
    constexpr std::uint32_t seed = 11;
    MESSAGE("seed ", seed);
    std::mt19937 engine{seed};
    const auto below = [&](std::size_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    for (int round = 0; round < 200; ++round) {
        const std::uint32_t count = 1 + below(6);
        const std::uint32_t steps = 1 + below(12);
        const Cycle cycle = below(2) == 0 ? Cycle::cyclic : Cycle::one_shot;
        std::vector<std::uint64_t> offsets{0};
        std::vector<std::uint32_t> ids;
        std::vector<std::vector<bool>> reads(steps, std::vector<bool>(count));
        for (std::uint32_t step = 0; step < steps; ++step) {
            for (std::uint32_t reads_left = below(4); reads_left-- > 0;) {
                ids.push_back(below(count));  // the same one twice at times
                reads[step][ids.back()] = true;
            }
            offsets.push_back(ids.size());
        }
        const UseOrder order = order_of(offsets, ids, count, cycle);
        for (std::uint32_t id = 0; id < count; ++id) {
            for (std::uint64_t after = 0; after < 3 * steps; ++after) {
                std::uint64_t expected = never;
                for (std::uint64_t step = after + 1; step <= after + steps; ++step) {
                    if (cycle == Cycle::one_shot && step >= steps) { break; }
                    if (reads[step % steps][id]) {
                        expected = step;
                        break;
                    }
                }
                REQUIRE(order.next_use(StorageId{id}, after) == expected);
                REQUIRE(order.use_from(StorageId{id}, after + 1) == expected);
            }
        }
        for (std::uint32_t step = 0; step < steps; ++step) {
            std::vector<bool> seen(count);
            for (const StorageId id : order.storages_at(step)) {
                REQUIRE_FALSE(seen[index(id)]);
                seen[index(id)] = true;
            }
            REQUIRE(seen == reads[step]);
        }
    }
}

}  // namespace use_order_test
