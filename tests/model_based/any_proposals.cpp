// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Random programs with prefetchers that propose anything.
#include <doctest/doctest.h>

#include <string>

#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "tests/model_based/composition.hpp"
#include "tests/model_based/proposals.hpp"
#include "tests/model_based/random_programs.hpp"
#include "tests/model_based/run.hpp"
#include "tests/support/sanitized.hpp"

using namespace model_based;
namespace evict = residency::evict;
namespace prefetch = residency::prefetch;
using StreamOrdered = residency::pool::StreamOrdered<Device>;
using Slab = residency::pool::Slab<Device>;

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: any proposals, whole and in pieces") {
    Tally tally;
    random_programs<evict::Lru, Proposals<false>, StreamOrdered>("Lru, any proposals, StreamOrdered", tally, 1000);
    random_programs<evict::Lru, Proposals<true>, Slab>("Lru, any proposals in pieces, Slab", tally, 1000);
    random_programs<evict::Lru, prefetch::Hinted, StreamOrdered>("Lru, Hinted, StreamOrdered", tally, 1000);
    CHECK(tally.prefetch_hits > tally.cases);
    CHECK(tally.evictions > tally.cases);
}

TEST_CASE("random programs: proposals of several pieces") {
    Tally tally;
    const auto run = [](Scenario scenario, Tally& counts) {
        for (StorageSpec& storage : scenario.storages) { storage.bytes *= 1000; }  // a piece is 1 MiB
        return model_based::run(composition<evict::Lru, Proposals<true>, Slab>(), scenario, counts);
    };
    const std::string failure = run_scenarios("Lru, proposals of several pieces, Slab", support::first_seed(),
                                              support::cases_each(60), run, tally);
    CHECK_MESSAGE(failure.empty(), failure);
    CHECK(tally.prefetch_hits > 0);
    CHECK(tally.evictions > 0);
}

TEST_SUITE_END();
