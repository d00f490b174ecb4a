// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/core/live_budgets.hpp"

#include <doctest/doctest.h>

namespace live_budgets_test {

TEST_SUITE_BEGIN("core live budgets");

using live_budgets::OnDemand;

TEST_CASE("stream-ordered: a smaller budget evicts just enough, by the evictor's order, and a larger one nothing") {
    live_budgets::evicts_just_enough<OnDemand>();
}
TEST_CASE("stream-ordered: leases over a change stay where they are and count, and what they keep comes later") {
    live_budgets::change_under_leases<OnDemand>();
}
TEST_CASE("stream-ordered: leases over many passes and changes; they end in any order") {
    live_budgets::change_over_many_passes<OnDemand>();
}

TEST_SUITE_END();

}  // namespace live_budgets_test
