// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/packed.md quotes.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "residency/codec/bf16_tiers.hpp"
#include "residency/error.hpp"

using namespace residency;

TEST_CASE("docs/packed.md: pack and unpack on the host") {
    // As trained weights are: the exponents of most are near each other.
    std::vector<std::byte> raw(std::size_t{2} << 20);
    std::mt19937 random{1};
    std::normal_distribution<float> weight{0, 0.02F};
    for (std::size_t at = 0; at < raw.size(); at += 2) {
        const float value = weight(random);
        std::memcpy(raw.data() + at, reinterpret_cast<const std::byte*>(&value) + 2, 2);
    }
    std::vector<std::byte> packed(raw.size()), again(raw.size());

    const codec::Bf16Tiers tiers;
    const codec::Extents extents{.rows = 1, .columns = raw.size() / 2};
    const std::size_t bytes = tiers.pack(extents, raw, packed);  // 0: it does not pay, the weight stays raw
    if (bytes > 0) {
        unwrap(tiers.unpack(extents, std::span{packed}.first(bytes), again));  // or an error: never other bytes
    }

    CHECK(again == raw);
    CHECK(bytes > 0);
    CHECK(bytes < raw.size() * 7 / 10);
}
