// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "residency/prefetch/hinted.hpp"
#include "tests/model_based/combinations.hpp"

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: prefetch::Hinted and evictors by schedule") {
    model_based::try_with_schedule<residency::prefetch::Hinted, 3>();
}

TEST_SUITE_END();
