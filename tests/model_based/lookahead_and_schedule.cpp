// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "residency/prefetch/scheduled.hpp"
#include "tests/model_based/combinations.hpp"

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: prefetch::Lookahead and evictors by schedule") {
    model_based::try_with_schedule<residency::prefetch::Lookahead<2>, 1>();
}

TEST_SUITE_END();
