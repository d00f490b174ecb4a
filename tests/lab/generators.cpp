// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Generated workloads have the sizes of the models that they are named after, and routers the published reuse and skew.

#include "benchmarks/lab/generators.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace generators_test {

namespace {

lab::Workload make(const std::string& name) {
    for (const lab::Generator& each : lab::generators()) {
        if (each.name == name) { return each.make(name); }
    }
    FAIL("no workload " << name);
    return {};
}
/// Billions of elements.
double parameters(const lab::Workload& work, double element_bytes) {
    return static_cast<double>(work.total_bytes()) / element_bytes / 1e9;
}

}  // namespace

TEST_CASE("models have their published numbers of parameters") {
    // Without the embedding: 0.53 and 1.05 billion.
    CHECK(parameters(make("llama3-8b-decode"), 2) == doctest::Approx(8.03 - 0.525).epsilon(0.002));
    CHECK(parameters(make("llama3-70b-decode"), 2) == doctest::Approx(70.55 - 1.05).epsilon(0.002));
    CHECK(parameters(make("mixtral-decode"), 2) == doctest::Approx(46.7 - 0.13).epsilon(0.002));
    CHECK(parameters(make("qwen3-moe-decode"), 2) == doctest::Approx(30.53 - 0.31).epsilon(0.002));
    CHECK(parameters(make("deepseek-v3-decode"), 1) == doctest::Approx(671.0 - 0.93).epsilon(0.005));
    CHECK(parameters(make("flux-like"), 2) == doctest::Approx(11.9).epsilon(0.02));
    CHECK(parameters(make("unet-like"), 2) == doctest::Approx(2.57).epsilon(0.04));
}

TEST_CASE("workloads are consistent and the same each time") {
    for (const lab::Generator& each : lab::generators()) {
        if (each.name.starts_with("deepseek")) { continue; }
        CAPTURE(each.name);
        const lab::Workload work = each.make(each.name);
        CHECK(work.name == each.name);
        CHECK(work.names.size() == work.bytes.size());
        CHECK(work.layers.size() == work.bytes.size());
        REQUIRE_FALSE(work.pass_ends.empty());
        CHECK(work.pass_ends.back() == work.steps.size());
        CHECK((work.is_known ? work.pass_ends.size() == 1 : work.pass_ends.size() > 1));
        std::set<std::uint32_t> used;
        bool are_ids_valid = true;
        for (const auto& step : work.steps) {
            for (const auto id : step.storages) {
                are_ids_valid = are_ids_valid && index(id) < work.bytes.size();
                used.insert(index(id));
            }
        }
        CHECK(are_ids_valid);
        if (work.is_known) { CHECK(used.size() == work.bytes.size()); }
        CHECK(std::set<std::string>(work.names.begin(), work.names.end()).size() == work.names.size());
        const lab::Workload again = each.make(each.name);
        CHECK(again.trace(lab::cards()[0]) == work.trace(lab::cards()[0]));
    }
}

TEST_CASE("routers repeat what is published") {
    struct Case {
        lab::generate::Mixture model;
        double least, most;
    };
    for (const Case& each :
         {Case{lab::generate::mixtral_8x7b(), 0.34, 0.40}, Case{lab::generate::qwen3_30b(), 0.36, 0.40},
          Case{lab::generate::deepseek_v3(), 0.20, 0.28}}) {
        lab::generate::Router router{4, each.model.experts, each.model.used, each.model.reuse, each.model.skew, 7};
        std::vector<std::vector<std::uint32_t>> before(4);
        std::map<std::uint32_t, std::uint64_t> uses;  // in layer 0
        std::uint64_t repeated = 0;
        std::uint64_t total = 0;
        for (int token = 0; token < 2000; ++token) {
            for (std::uint32_t layer = 0; layer < 4; ++layer) {
                const auto chosen = router.choose(layer);
                REQUIRE(chosen.size() == each.model.used);
                for (const std::uint32_t expert : chosen) {
                    REQUIRE(expert < each.model.experts);
                    repeated += std::count(before[layer].begin(), before[layer].end(), expert) > 0 ? 1U : 0U;
                    if (layer == 0) { ++uses[expert]; }
                    ++total;
                }
                before[layer] = chosen;
            }
        }
        const double reuse = static_cast<double>(repeated) / static_cast<double>(total);
        CHECK(reuse > each.least);
        CHECK(reuse < each.most);
        std::vector<std::uint64_t> sorted;
        for (const auto& [expert, count] : uses) { sorted.push_back(count); }
        std::sort(sorted.rbegin(), sorted.rend());
        const std::size_t tenth = std::max<std::size_t>(1, each.model.experts / 10);
        const std::uint64_t hot = std::accumulate(
            sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(std::min(tenth, sorted.size())),
            std::uint64_t{0});
        const double share = static_cast<double>(hot) / (2000.0 * each.model.used);
        MESSAGE("reuse " << reuse << ", the hottest tenth has " << share);
        if (each.model.experts > 8) {
            CHECK(share > 0.25);
            CHECK(share < 0.45);
        } else {
            CHECK(share < 0.20);
        }
    }
}

}  // namespace generators_test
