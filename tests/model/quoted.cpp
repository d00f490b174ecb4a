// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/quoted.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

TEST_CASE("text is quoted on one line") {
    using residency::detail::quoted;
    CHECK(quoted("") == "\"\"");
    CHECK(quoted("layer.0") == "\"layer.0\"");
    CHECK(quoted("a\"b\\c") == "\"a\\\"b\\\\c\"");
    CHECK(quoted(std::string_view{"\0\n\x7f", 3}) == "\"\\x00\\x0a\\x7f\"");
    CHECK(quoted("größe") == "\"größe\"");
    CHECK(quoted(std::string(160, 'x')).size() == 162);
    CHECK(quoted(std::string(100000, 'x')).size() < 200);
}
