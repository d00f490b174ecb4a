// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/quoted.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

TEST_CASE("text is quoted on one line") {
    namespace detail = residency::detail;  // not std::quoted
    CHECK(detail::quoted("") == "\"\"");
    CHECK(detail::quoted("layer.0") == "\"layer.0\"");
    CHECK(detail::quoted("a\"b\\c") == "\"a\\\"b\\\\c\"");
    CHECK(detail::quoted(std::string_view{"\0\n\x7f", 3}) == "\"\\x00\\x0a\\x7f\"");
    CHECK(detail::quoted("größe") == "\"größe\"");
    CHECK(detail::quoted(std::string(160, 'x')).size() == 162);
    CHECK(detail::quoted(std::string(100000, 'x')).size() < 200);
}

TEST_CASE("what a terminal would obey, and what is not UTF-8, is shown as bytes") {
    namespace detail = residency::detail;  // not std::quoted
    using residency::detail::escaped;
    using residency::detail::utf8_bytes;
    CHECK(escaped("a\\b \"größe\" 漢 \U0001F600") == "a\\b \"größe\" 漢 \U0001F600");
    CHECK(escaped("\x1b[2J\r\n\t\x7f") == "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
    CHECK(escaped("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");  // C1: one character begins a command
    CHECK(escaped("\xe2\x80\xae"
                  "txt") == "\\xe2\\x80\\xaetxt");  // the direction of writing
    CHECK(escaped("\xe2\x81\xa6"
                  "\xe2\x80\x93") == "\\xe2\\x81\\xa6\xe2\x80\x93");  // a dash stays
    CHECK(escaped("\xff"
                  "a\xc3") == "\\xffa\\xc3");
    CHECK(detail::quoted("\x1b\"\\\xff") == "\"\\x1b\\\"\\\\\\xff\"");
    CHECK(escaped(escaped("\x1b\xff")) == escaped("\x1b\xff"));

    for (const char* whole : {"a", "é", "漢", "\U0001F600", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
        CHECK(utf8_bytes(whole) == std::string_view{whole}.size());
        CHECK(utf8_bytes(std::string{whole} + "x") == std::string_view{whole}.size());
    }
    for (const char* none : {"", "\x80", "\xc1\x80", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                             "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x80", "\xf0\x9f\x98"}) {
        CHECK(utf8_bytes(none) == 0);
    }
}

TEST_CASE("a long text loses its middle, and no character is cut") {
    using residency::detail::shortened;
    CHECK(shortened("12345678", 8) == "12345678");
    CHECK(shortened("123456789", 8) == "1234…6789");
    std::string many;
    for (int i = 0; i < 1000; ++i) { many += "漢"; }
    for (std::size_t longest = 1; longest < 40; ++longest) {
        const std::string shown = shortened(many, longest);
        CHECK(shown.size() <= longest + 3);
        CHECK(shown.find('x') == std::string::npos);
    }
}
