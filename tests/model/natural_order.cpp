// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/natural_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "residency/model/catalog_builder.hpp"

namespace natural_order_test {

using namespace residency;

namespace {

Catalog of(const std::vector<std::string>& names) {
    CatalogBuilder builder;
    for (const std::string& name : names) { builder.add(name, dtype::u8, {1}); }
    return builder.try_build().value();
}
/// The names of the storages in natural order.
std::vector<std::string> ordered(const Catalog& catalog) {
    std::vector<std::string> names;
    for (const StorageId id : natural_order(catalog)) {
        names.push_back(catalog.weight(catalog.weights_of(id).front()).name);
    }
    return names;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("digit runs compare as numbers") {
    const std::string_view ascending[] = {"",    "a",    "a0",   "a00",  "a01",       "a1",
                                          "a2",  "a9",   "a10",  "a10b", "a11a",      "a20",
                                          "a.1", "a.1b", "a.10", "aa1",  "layer9.up", "layer10.down"};
    for (std::size_t i = 0; i < std::size(ascending); ++i) {
        for (std::size_t k = 0; k < std::size(ascending); ++k) {
            CAPTURE(ascending[i]);
            CAPTURE(ascending[k]);
            const int order = detail::compare_natural(ascending[i], ascending[k]);
            if (i == k) { CHECK(order == 0); }
            // '.' comes before the digits, so the row above is sorted by hand but for that.
            if ((ascending[i].substr(0, 2) == "a.") == (ascending[k].substr(0, 2) == "a.")) {
                CHECK((order < 0) == (i < k));
            }
        }
    }
    // Longer than any integer.
    CHECK(detail::compare_natural("x99999999999999999999999", "x100000000000000000000000") < 0);
}

TEST_CASE("an alphabetical order, as that of a safetensors file, becomes the natural one") {
    Names alphabetical;
    for (int layer = 0; layer < 24; ++layer) {
        for (const char* part : {".attn.o", ".attn.q", ".mlp.down", ".mlp.up"}) {
            alphabetical.push_back("model.layers." + std::to_string(layer) + part);
        }
    }
    const Names natural = alphabetical;
    std::sort(alphabetical.begin(), alphabetical.end());
    REQUIRE(alphabetical != natural);
    CHECK(ordered(of(alphabetical)) == natural);
}

TEST_CASE("any other order stays: it may be that of the model") {
    for (const Names& names :
         {Names{}, Names{"b", "a"}, Names{"embed", "l.0.up", "l.0.down", "l.1.up", "l.1.down", "head"},
          Names{"l.9", "l.10", "l.11"}, Names{"up.3", "up.2", "up.1", "up.0"},
          Names{"up.11", "up.10", "up.9", "up.8", "up.7"}}) {
        CHECK(ordered(of(names)) == names);
    }
}

TEST_CASE("shards that are alphabetical each, and one name out of order, do not hide that the order is alphabetical") {
    const Names shards = {"l.5", "l.0",  "l.1",  "l.10", "l.2", "l.3", "l.4",
                          "l.6", "l.11", "l.12", "l.13", "l.7", "l.8", "l.9"};
    Names natural;
    for (int layer = 0; layer < 14; ++layer) { natural.push_back("l." + std::to_string(layer)); }
    CHECK(ordered(of(shards)) == natural);
}

TEST_CASE("two numbers in a name: experts by layer, then by number") {
    Names names;
    for (int layer = 0; layer < 12; ++layer) {
        for (int expert = 0; expert < 12; ++expert) {
            names.push_back("layers." + std::to_string(layer) + ".experts." + std::to_string(expert) + ".w");
        }
    }
    const Names natural = names;
    std::sort(names.begin(), names.end());
    CHECK(ordered(of(names)) == natural);
    CHECK(ordered(of(natural)) == natural);
}

TEST_CASE("a storage of several weights stands where the first of their names does") {
    CatalogBuilder builder;
    for (const char* name : {"l.1", "l.10", "l.11", "l.2", "l.20", "l.3", "z"}) { builder.add(name, dtype::u8, {1}); }
    builder.tie("l.0", "z");
    CHECK(ordered(builder.try_build().value()) == Names{"z", "l.1", "l.2", "l.3", "l.10", "l.11", "l.20"});
}

TEST_CASE("the order has each storage once, whatever the names") {
    std::mt19937 random{7};
    for (int round = 0; round < 200; ++round) {
        CatalogBuilder builder;
        const auto count = 1 + random() % 40;
        for (unsigned i = 0; i < count; ++i) {
            std::string name;
            for (unsigned k = 0; k < 1 + random() % 6; ++k) { name += "019ab."[random() % 6]; }
            if (!builder.find(name)) { builder.add(name, dtype::u8, {1}); }
        }
        const Catalog catalog = builder.try_build().value();
        auto order = natural_order(catalog);
        std::sort(order.begin(), order.end());
        REQUIRE(order.size() == catalog.storages().size());
        for (std::uint32_t i = 0; i < order.size(); ++i) { REQUIRE(order[i] == StorageId{i}); }
    }
}

}  // namespace natural_order_test
