// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/engine/lease_table.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace lease_table_test {

using residency::core::LeaseId;
using residency::core::LeaseRecord;
using residency::core::LeaseTable;

TEST_CASE("a lease is found while it is open, and not by the id of one before in its place") {
    LeaseTable leases;
    CHECK(leases.find(LeaseId{}) == nullptr);
    LeaseRecord& next = leases.next();
    CHECK(leases.open_leases() == 0);
    next.access.step = 7;
    CHECK(&leases.next() == &next);  // asking again opens nothing
    const LeaseId first = leases.open();
    CHECK(leases.find(first) == &next);
    CHECK(leases.find(first)->access.step == 7);
    const LeaseId second = leases.open();
    REQUIRE(leases.find(first) != nullptr);
    CHECK(leases.find(first) != leases.find(second));
    CHECK(leases.open_leases() == 2);
    leases.find(first)->consumers.push_back(3);
    leases.close(first);
    CHECK(leases.find(first) == nullptr);
    CHECK(leases.open_leases() == 1);
    const LeaseId third = leases.open();
    CHECK(third.slot() == first.slot());
    CHECK(leases.find(first) == nullptr);
    REQUIRE(leases.find(third) != nullptr);
    CHECK(leases.find(third)->consumers.empty());
}

TEST_CASE("all that are open are closed, each seen once") {
    LeaseTable leases;
    std::vector<LeaseId> ids;
    for (int i = 0; i < 6; ++i) { ids.push_back(leases.open()); }
    for (std::uint32_t i = 0; i < 6; ++i) { leases.find(ids[i])->access.step = i; }
    leases.close(ids[1]);
    leases.close(ids[4]);
    std::vector<std::uint32_t> seen;
    leases.close_all([&](const LeaseRecord& lease) { seen.push_back(lease.access.step); });
    CHECK(seen == std::vector<std::uint32_t>{0, 2, 3, 5});
    CHECK(leases.open_leases() == 0);
    for (const LeaseId id : ids) { CHECK(leases.find(id) == nullptr); }
    const std::vector<LeaseId> again{leases.open(), leases.open()};
    CHECK(again[0].slot() != again[1].slot());
    CHECK(leases.open_leases() == 2);
}

}  // namespace lease_table_test
