// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What each prefetcher proposes, and in which order.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "residency/model/use_order.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"

namespace prefetchers_test {

using namespace residency;

namespace {

using Proposals = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

template <class P>
Proposals proposals(P& prefetcher, StepIndex now, std::size_t patience = 1000) {
    Proposals all;
    prefetcher.propose(now, [&](StorageId id, StepIndex needed_at) {
        all.emplace_back(index(id), needed_at);
        return all.size() < patience;
    });
    return all;
}
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

const std::vector<std::uint64_t> bytes(5, 10);
constexpr std::uint64_t never = UseOrder::never;

}  // namespace

TEST_CASE("None proposes nothing") {
    prefetch::None none;
    REQUIRE(none.attach({bytes, 30}));
    CHECK(proposals(none, 0).empty());
}

TEST_CASE("Lookahead: the next steps, the nearest first, each storage once, round the end of the pass") {
    const UseOrder order = order_of({{0}, {1, 2}, {0, 3}, {4}}, 5);
    prefetch::Lookahead<2> two;
    REQUIRE(two.attach({bytes, 30, &order}));
    CHECK(proposals(two, 0) == Proposals{{1, 1}, {2, 1}, {0, 2}, {3, 2}});
    CHECK(proposals(two, 3) == Proposals{{0, 4}, {1, 5}, {2, 5}});
    CHECK(proposals(two, 0, 3) == Proposals{{1, 1}, {2, 1}, {0, 2}});
    prefetch::Lookahead<100> all;
    REQUIRE(all.attach({bytes, 30, &order}));
    CHECK(proposals(all, 1) == Proposals{{0, 2}, {3, 2}, {4, 3}, {1, 5}, {2, 5}});

    const UseOrder once = order_of({{0}, {1, 2}, {0, 3}, {4}}, 5, Cycle::one_shot);
    REQUIRE(all.attach({bytes, 30, &once}));
    CHECK(proposals(all, 1) == Proposals{{0, 2}, {3, 2}, {4, 3}});
    CHECK(proposals(all, 3).empty());
    CHECK(proposals(all, 50).empty());
}

TEST_CASE("without an order there is nothing to propose; one of another model is refused") {
    prefetch::Lookahead<2> two;
    prefetch::Scheduled scheduled;
    REQUIRE(two.attach({bytes, 30}));
    REQUIRE(scheduled.attach({bytes, 30}));
    CHECK(proposals(two, 0).empty());
    CHECK(proposals(scheduled, 0).empty());
    const UseOrder small = order_of({{0}}, 1);
    CHECK(two.attach({bytes, 30, &small}).error().kind() == ErrorKind::mismatch);
    CHECK(scheduled.attach({bytes, 30, &small}).error().kind() == ErrorKind::mismatch);
}

TEST_CASE("Scheduled goes on where it was refused, and offers the nearest steps again") {
    const UseOrder order = order_of({{0}, {1}, {2}, {3}, {4}}, 5);
    prefetch::Scheduled scheduled{{.most_steps = UINT32_MAX, .near_steps = 1}};
    REQUIRE(scheduled.attach({bytes, 30, &order}));
    CHECK(proposals(scheduled, 0, 3) == Proposals{{1, 1}, {2, 2}, {3, 3}});
    CHECK(proposals(scheduled, 1) == Proposals{{2, 2}, {3, 3}, {4, 4}, {0, 5}, {1, 6}});
    CHECK(proposals(scheduled, 2) == Proposals{{3, 3}, {2, 7}});
    CHECK(proposals(scheduled, 2) == Proposals{{3, 3}});
    // After a jump, from there on.
    CHECK(proposals(scheduled, 20) == Proposals{{1, 21}, {2, 22}, {3, 23}, {4, 24}, {0, 25}});
    prefetch::Scheduled capped{{.most_steps = 2}};
    REQUIRE(capped.attach({bytes, 30, &order}));
    CHECK(proposals(capped, 0) == Proposals{{1, 1}, {2, 2}});
}

TEST_CASE("Hinted: by probability, then by time, then as named; once; not after its moment") {
    prefetch::Hinted hinted;
    REQUIRE(hinted.attach({bytes, 30}));
    const std::vector<prefetch::Hint> hints{{StorageId{0}, 0.25F, 9},
                                            {StorageId{1}, 0.5F, never},
                                            {StorageId{2}, 0.5F, 8},
                                            {StorageId{3}, 1.0F, 3},
                                            {StorageId{4}, 0.25F, 9}};
    REQUIRE(hinted.hint(hints));
    CHECK(hinted.size() == 5);
    CHECK(proposals(hinted, 4, 2) == Proposals{{2, 8}, {1, never}});
    CHECK(hinted.size() == 2);
    const prefetch::Hint again{StorageId{4}, 0.75F, 6};
    REQUIRE(hinted.hint({&again, 1}));
    CHECK(hinted.size() == 2);
    CHECK(proposals(hinted, 5) == Proposals{{4, 6}, {0, 9}});
    CHECK(proposals(hinted, 5).empty());

    REQUIRE(hinted.hint(hints));
    hinted.clear();
    CHECK(hinted.size() == 0);
    CHECK(proposals(hinted, 0).empty());
}

TEST_CASE("Hinted keeps the most probable, and refuses what is no hint") {
    prefetch::Hinted hinted{{.capacity = 2, .least_probability = 0.2F}};
    REQUIRE(hinted.attach({bytes, 30}));
    const std::vector<prefetch::Hint> hints{
        {StorageId{0}, 0.1F}, {StorageId{1}, 0.5F}, {StorageId{2}, 0.3F}, {StorageId{3}, 0.4F}, {StorageId{4}, 0.3F}};
    REQUIRE(hinted.hint(hints));
    CHECK(proposals(hinted, 0) == Proposals{{1, never}, {3, never}});
    for (const prefetch::Hint& wrong :
         {prefetch::Hint{StorageId{5}, 0.5F}, prefetch::Hint{StorageId{1}, 1.5F}, prefetch::Hint{StorageId{1}, -0.5F},
          prefetch::Hint{StorageId{1}, std::numeric_limits<float>::quiet_NaN()}}) {
        const std::vector<prefetch::Hint> both{{StorageId{2}, 0.9F}, wrong};
        CHECK(hinted.hint(both).error().kind() == ErrorKind::invalid_argument);
        CHECK(hinted.size() == 0);
    }
}

}  // namespace prefetchers_test
