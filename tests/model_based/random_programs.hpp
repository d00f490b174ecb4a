// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "tests/model_based/composition.hpp"
#include "tests/model_based/run.hpp"
#include "tests/support/sanitized.hpp"

namespace model_based {

/// Checks that random programs hold on a composition: `usual` many, or RESIDENCY_MODEL_CASES.
template <class Evictor, class Prefetcher, class Pool>
void random_programs(const char* name, Tally& tally, std::uint64_t usual) {
    const std::string failure = run_scenarios(name, support::first_seed(), support::cases_each(usual),
                                              runs(composition<Evictor, Prefetcher, Pool>()), tally);
    CHECK_MESSAGE(failure.empty(), failure);
}

}  // namespace model_based
