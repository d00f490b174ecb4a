// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Random programs on compositions of online policies.
#include <doctest/doctest.h>

#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/model_based/random_programs.hpp"

using namespace model_based;
namespace evict = residency::evict;
namespace prefetch = residency::prefetch;
using StreamOrdered = residency::pool::StreamOrdered<Device>;
using Slab = residency::pool::Slab<Device>;

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: on demand") {
    Tally tally;
    random_programs<evict::Lru, prefetch::None, StreamOrdered>("Lru, None, StreamOrdered", tally, 2500);
    random_programs<evict::Lru, prefetch::None, Slab>("Lru, None, Slab", tally, 2500);
    MESSAGE(tally.cases << " programs, " << tally.operations << " operations, " << tally.leases << " leases, "
                        << tally.verified << " kernels, " << tally.evictions << " evictions, " << tally.refused
                        << " refusals, " << tally.divergences << " divergences, " << tally.host_waits << " host waits");
    CHECK(tally.evictions > tally.cases);
    CHECK(tally.refused > 0);
    CHECK(tally.divergences > 0);
    CHECK(tally.host_waits > 0);
    CHECK(tally.verified > tally.cases);
}

TEST_CASE("random programs: ahead of use") {
    Tally tally;
    random_programs<evict::Scheduled, prefetch::Lookahead<2>, Slab>("Scheduled, Lookahead, Slab", tally, 2500);
    random_programs<evict::Scheduled, prefetch::Scheduled, StreamOrdered>("Scheduled, Scheduled, StreamOrdered", tally,
                                                                          2500);
    CHECK(tally.prefetch_hits > tally.cases);
    CHECK(tally.evictions > tally.cases);
}

TEST_SUITE_END();
