// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/model_based/combinations.hpp"

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: prefetch::None and evictors by history") {
    model_based::try_with_history<residency::prefetch::None, 0>();
}

TEST_SUITE_END();
