// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Assertions off, whatever the build says, and so apart from the compiled library: what a broken precondition comes to.
#undef RESIDENCY_ASSERTIONS
#define RESIDENCY_ASSERTIONS 0
#undef RESIDENCY_HEADER_ONLY
#define RESIDENCY_HEADER_ONLY 1
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "residency/residency.hpp"
#include "residency/simulation/simulated_device.hpp"

using namespace residency;

TEST_CASE("without assertions the address of what no lease covers is null") {
    SimulatedDevice device;
    const auto stream = device.create_stream();
    REQUIRE(stream);
    const std::vector<std::byte> bytes(4096);
    CatalogBuilder builder;
    const WeightId read = builder.add("read", dtype::u8, {4096}, std::span{bytes});
    const WeightId left = builder.add("left", dtype::u8, {4096}, std::span{bytes});
    auto weights =
        Cached<SimulatedDevice>::try_create(device, builder.build(), {.budget = Budget::percent_of_weights(100)});
    REQUIRE_MESSAGE(weights.has_value(), weights.error().message());
    auto pass = weights->try_begin(*stream);
    REQUIRE(pass);
    REQUIRE(pass->try_acquire(left));  // it stays on the device
    auto lease = pass->try_acquire(read);
    REQUIRE(lease);
    CHECK(lease->data(read) != nullptr);
    CHECK(lease->span<std::byte>(read).size() == 4096);
    for (const WeightId unleased : {left, WeightId{7}}) {
        CHECK(lease->data(unleased) == nullptr);
        CHECK(lease->get<unsigned char>(unleased) == nullptr);
        CHECK(lease->bytes(unleased).empty());
        CHECK(lease->span<unsigned char>(unleased).empty());
        CHECK(lease->address(unleased) == nullptr);
        CHECK(lease->packed(unleased).data == nullptr);
    }
    lease->end();
    CHECK(lease->data(read) == nullptr);
    CHECK(lease->bytes(read).empty());
    CHECK(lease->address<unsigned char>(read) == nullptr);
    REQUIRE(pass->try_end());
    REQUIRE(weights->try_drain());
}
