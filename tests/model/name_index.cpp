// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/name_index.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace name_index_test {

using namespace residency;

namespace {

std::vector<Weight> named(const std::vector<std::string>& names) {
    std::vector<Weight> weights;
    for (const std::string& name : names) {
        weights.emplace_back();
        weights.back().name = name;
    }
    return weights;
}
std::string nearest(const std::string& name, const std::vector<std::string>& names) {
    const auto weights = named(names);
    const auto found = detail::nearest_name(name, weights);
    return found ? weights[index(*found)].name : "none";
}
/// Levenshtein's distance, by its definition.
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t k = 0; k <= b.size(); ++k) {
            d[i][k] = i == 0 ? k : i;
            if (i == 0 || k == 0) { continue; }
            d[i][k] = std::min({d[i - 1][k] + 1, d[i][k - 1] + 1, d[i - 1][k - 1] + (a[i - 1] == b[k - 1] ? 0U : 1U)});
        }
    }
    return d[a.size()][b.size()];
}

}  // namespace

TEST_CASE("names are found as in a map, also after some have changed") {
    std::mt19937 random{11};
    for (int round = 0; round < 50; ++round) {
        detail::NameIndex names;
        std::vector<Weight> weights;
        std::map<std::string, WeightId> reference;
        if (round % 2 == 0) { names.reserve(random() % 300, weights); }
        const auto some_name = [&] { return "w" + std::to_string(random() % 400); };
        for (int i = 0; i < 300; ++i) {
            const std::string name = some_name();
            const auto expected = reference.find(name);
            const auto found = names.find(name, weights);
            REQUIRE(found.has_value() == (expected != reference.end()));
            if (found) {
                REQUIRE(*found == expected->second);
                const std::string fresh = name + "'";
                if (reference.contains(fresh)) { continue; }
                reference.erase(name);
                reference[fresh] = *found;
                weights[index(*found)].name = fresh;
                names.insert(*found, weights);
            } else {
                const WeightId id{static_cast<std::uint32_t>(weights.size())};
                weights.emplace_back();
                weights.back().name = name;
                names.insert(id, weights);
                reference[name] = id;
            }
        }
        for (const auto& [name, id] : reference) { REQUIRE(names.find(name, weights) == id); }
    }
    CHECK_FALSE(detail::NameIndex{}.find("a", {}));
}

TEST_CASE("the nearest name in spelling") {
    const std::vector<std::string> names = {"model.embed.weight", "model.layers.0.up", "model.layers.1.up", "lm_head"};
    CHECK(nearest("model.layers.1.upp", names) == "model.layers.1.up");
    CHECK(nearest("model.layer.0.up", names) == "model.layers.0.up");
    CHECK(nearest("layers.0.up", names) == "model.layers.0.up");
    CHECK(nearest("transformer.lm_head", names) == "lm_head");
    CHECK(nearest("ayers.0.up", names) == "none");
    CHECK(nearest("embed.weight", {"m.embed.weight"}) == "m.embed.weight");
    CHECK(nearest("LM_HEAD", names) == "none");
    CHECK(nearest("lmhead", names) == "lm_head");
    CHECK(nearest("x", {"y"}) == "none");
    CHECK(nearest("", names) == "none");
    CHECK(nearest("a", {}) == "none");
    CHECK(detail::nearest_name_hint("lmhead", named(names)) == "; the nearest name is \"lm_head\"");
    CHECK(detail::nearest_name_hint("quite another", named(names)).empty());
}

TEST_CASE("no name is nearer than the nearest, and none is named that is further than a third") {
    std::mt19937 random{3};
    for (int round = 0; round < 400; ++round) {
        std::vector<std::string> names(1 + random() % 8);
        std::string wanted;
        for (std::string& each : names) {
            for (unsigned k = 0; k < 3 + random() % 8; ++k) { each += "abc"[random() % 3]; }
        }
        for (unsigned k = 0; k < 3 + random() % 8; ++k) { wanted += "abc"[random() % 3]; }
        std::size_t least = SIZE_MAX;
        for (const std::string& each : names) { least = std::min(least, distance(wanted, each)); }
        if (least == 0) { continue; }
        const std::string found = nearest(wanted, names);
        REQUIRE((found != "none") == (least <= wanted.size() / 3));
        if (found != "none") { REQUIRE(distance(wanted, found) == least); }
    }
}

}  // namespace name_index_test
