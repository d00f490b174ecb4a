// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/stable_hash.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>

namespace stable_hash_test {

using residency::StableHash;

TEST_CASE("the published values of FNV-1a") {
    const auto of = [](std::string_view text) {
        StableHash hash;
        hash.bytes(std::as_bytes(std::span{text}));
        return hash.value();
    };
    CHECK(of("") == 0xcbf29ce484222325ULL);
    CHECK(of("a") == 0xaf63dc4c8601ec8cULL);
    CHECK(of("foobar") == 0x85944171f73967e8ULL);
}

TEST_CASE("integers enter as little-endian bytes, texts with their length") {
    StableHash whole;
    whole.u32(0x04030201);
    whole.u64(2);
    whole.byte('h');
    whole.byte('i');
    StableHash parts;
    for (std::uint8_t byte = 1; byte <= 4; ++byte) { parts.byte(byte); }
    parts.text("hi");
    CHECK(whole.value() == parts.value());
}

}  // namespace stable_hash_test
