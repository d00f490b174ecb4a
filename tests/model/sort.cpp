// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/sort.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

TEST_CASE("sorts like the standard library, for every length up to a hundred") {
    std::mt19937 random{1};
    for (std::size_t length = 0; length <= 100; ++length) {
        std::vector<std::uint32_t> items(length);
        for (std::uint32_t& item : items) { item = static_cast<std::uint32_t>(random() % (length + 1)); }
        std::vector<std::uint32_t> expected = items;
        std::sort(expected.begin(), expected.end());
        residency::detail::sort(items);
        CHECK(items == expected);
        std::sort(expected.begin(), expected.end(), std::greater{});
        residency::detail::sort(items, std::greater{});
        CHECK(items == expected);
    }
}

TEST_CASE("sorts items that own memory") {
    std::vector<std::string> items{"a name that is too long to be stored in place", "b", "", "c", "a"};
    residency::detail::sort(items);
    CHECK(items == std::vector<std::string>{"", "a", "a name that is too long to be stored in place", "b", "c"});
}
