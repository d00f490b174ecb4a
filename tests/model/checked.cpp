// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/number.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace checked_test {

using namespace residency::detail;

static_assert(checked_add(UINT64_MAX - 1, 1) == UINT64_MAX);
static_assert(!checked_add(UINT64_MAX, 1));
static_assert(checked_multiply(std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1).has_value());
static_assert(!checked_multiply(std::uint64_t{1} << 32, std::uint64_t{1} << 32));
static_assert(checked_multiply(UINT64_MAX, 0) == 0);
static_assert(saturating_add(UINT64_MAX, 1) == UINT64_MAX);

TEST_CASE("a range lies inside a whole, or does not, without overflow") {
    CHECK(lies_inside(0, 0, 0));
    CHECK(lies_inside(3, 7, 10));
    CHECK(lies_inside(10, 0, 10));
    CHECK_FALSE(lies_inside(11, 0, 10));
    CHECK_FALSE(lies_inside(3, 8, 10));
    CHECK_FALSE(lies_inside(UINT64_MAX, 2, 10));
    CHECK_FALSE(lies_inside(2, UINT64_MAX, 10));
    CHECK(lies_inside(0, UINT64_MAX, UINT64_MAX));
}

}  // namespace checked_test
