// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/broker/ledger.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace split_test {

using residency::ErrorKind;
using residency::broker::Claim;
using residency::broker::split;
using Bytes = std::vector<std::uint64_t>;

TEST_SUITE_BEGIN("broker split");

namespace {

Bytes split_of(std::uint64_t total, const std::vector<Claim>& claims) {
    const auto given = split(total, claims);
    REQUIRE(given);
    return *given;
}

}  // namespace

TEST_CASE("C12: floors, then priorities, then the same share of what each streams") {
    const std::vector<Claim> equals{{0, 100, 500}, {0, 50, 850}};  // stream 400 and 800 at their floors
    CHECK(split_of(150, equals) == Bytes{100, 50});
    CHECK(split_of(150 + 300, equals) == Bytes{200, 250});
    CHECK(split_of(150 + 1199, equals) == Bytes{499, 849});  // 399.67 and 799.33, rounded down
    CHECK(split_of(150 + 1200, equals) == Bytes{500, 850});
    CHECK(split_of(UINT64_MAX, equals) == Bytes{500, 850});

    const std::vector<Claim> ranked{{0, 100, 500}, {7, 50, 850}, {-1, 10, 20}};
    CHECK(split_of(160, ranked) == Bytes{100, 50, 10});
    CHECK(split_of(160 + 799, ranked) == Bytes{100, 849, 10});
    CHECK(split_of(160 + 801, ranked) == Bytes{101, 850, 10});
    CHECK(split_of(160 + 1205, ranked) == Bytes{500, 850, 15});
}

TEST_CASE("C12: corner cases") {
    CHECK(split_of(0, {}).empty());
    CHECK(split_of(10, {{0, 10, 0}}) == Bytes{10});  // wants less than its floor
    CHECK(split_of(10, {{0, 0, 0}, {0, 0, 0}}) == Bytes{0, 0});
    CHECK(split_of(UINT64_MAX, {{0, 0, UINT64_MAX}}) == Bytes{UINT64_MAX});
    CHECK(split_of(UINT64_MAX - 1, {{0, 0, UINT64_MAX}}) == Bytes{UINT64_MAX - 1});
    CHECK(split_of(std::uint64_t{1} << 62, {{0, 0, std::uint64_t{1} << 62}, {0, 0, std::uint64_t{1} << 62}}) ==
          Bytes{std::uint64_t{1} << 61, std::uint64_t{1} << 61});
    const auto refused = split(99, std::vector<Claim>{{0, 50, 60}, {9, 50, 60}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == 100);
    CHECK(refused.error().detail<residency::BudgetNumbers>()->budget_bytes == 99);
    CHECK_FALSE(split(UINT64_MAX, std::vector<Claim>{{0, UINT64_MAX, 0}, {0, 1, 0}}));
}

TEST_CASE("random claims: never above the total, never below a floor, nobody served before a higher priority") {
    constexpr unsigned seed = 12;
    MESSAGE("seed " << seed);
    std::mt19937_64 random{seed};
    for (int round = 0; round < 5000; ++round) {
        const std::uint64_t scale = std::uint64_t{1} << random() % 58;
        std::vector<Claim> claims(1 + random() % 6);
        std::uint64_t floors = 0, wanted = 0;
        for (Claim& claim : claims) {
            claim.priority = static_cast<std::int32_t>(random() % 3);
            claim.floor_bytes = random() % scale;
            claim.wanted_bytes = claim.floor_bytes + random() % (4 * scale);
            floors += claim.floor_bytes;
            wanted += claim.wanted_bytes;
        }
        const std::uint64_t total = floors + random() % (6 * scale);
        const Bytes given = split_of(total, claims);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < claims.size(); ++i) {
            sum += given[i];
            REQUIRE(given[i] >= claims[i].floor_bytes);
            REQUIRE(given[i] <= claims[i].wanted_bytes);
        }
        REQUIRE(sum <= total);
        if (wanted <= total) { REQUIRE(sum == wanted); }
        if (wanted > total) { REQUIRE(sum + claims.size() > total); }
        for (std::size_t i = 0; i < claims.size(); ++i) {
            for (std::size_t k = 0; k < claims.size(); ++k) {
                const auto a = static_cast<long double>(given[i] - claims[i].floor_bytes);
                const auto b = static_cast<long double>(given[k] - claims[k].floor_bytes);
                const auto wants_a = static_cast<long double>(claims[i].wanted_bytes - claims[i].floor_bytes);
                const auto wants_b = static_cast<long double>(claims[k].wanted_bytes - claims[k].floor_bytes);
                // Only the bytes that rounding left may go past a higher priority.
                if (claims[i].priority > claims[k].priority && a < wants_a) {
                    REQUIRE(b <= static_cast<long double>(claims.size()));
                }
                if (claims[i].priority == claims[k].priority && wants_a > 0 && wants_b > 0) {
                    // |a / wants_a − b / wants_b| is less than a byte of either.
                    const long double difference = a * wants_b - b * wants_a;
                    const long double most = (wants_a + wants_b) * 1.001L;
                    REQUIRE(difference <= most);
                    REQUIRE(difference >= -most);
                }
            }
        }
    }
}

TEST_SUITE_END();

}  // namespace split_test
