// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Random programs on plans.
#include <doctest/doctest.h>

#include <string>

#include "residency/core/planned/planned_decider.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/model_based/composition.hpp"
#include "tests/model_based/run.hpp"
#include "tests/support/sanitized.hpp"

using namespace model_based;

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: planned") {
    Tally tally;
    const auto run = [](Scenario scenario, Tally& counts) {
        for (StorageSpec& storage : scenario.storages) { storage.bytes *= 6; }  // several chunks
        return model_based::run(
            composition<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<Device>>(),
            scenario, counts);
    };
    const std::string failure = run_scenarios("Planned", support::first_seed(), support::cases_each(2000), run, tally);
    CHECK_MESSAGE(failure.empty(), failure);
    MESSAGE(tally.cases << " programs, " << tally.operations << " operations, " << tally.evictions << " evictions, "
                        << tally.refused << " refusals, " << tally.divergences << " divergences");
    CHECK(tally.evictions > 0);
    CHECK(tally.divergences > 0);
}

TEST_SUITE_END();
