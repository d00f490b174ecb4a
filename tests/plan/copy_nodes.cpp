// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/copy_nodes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;

namespace {

/// Storages that lie in memory without gaps, in the order of an image, or in a random one.
std::vector<std::uint64_t> sources_of(const plan::Problem& problem, const std::vector<std::uint64_t>& offsets,
                                      Dice* dice = nullptr) {
    std::vector<std::uint32_t> order(problem.storages());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
        return offsets[a] != offsets[b] ? offsets[a] < offsets[b] : problem.storage_bytes[a] < problem.storage_bytes[b];
    });
    for (std::size_t k = order.size(); dice != nullptr && k > 1; --k) {
        std::swap(order[k - 1], order[(*dice)(0, static_cast<std::uint32_t>(k - 1))]);
    }
    std::vector<std::uint64_t> result(problem.storages());
    std::uint64_t at = 0;
    for (const std::uint32_t s : order) {
        result[s] = at;
        at += problem.storage_bytes[s];
    }
    return result;
}

/// Where copies read each byte of the image; none: padding.
constexpr std::uint64_t padding = ~std::uint64_t{0};
std::vector<std::uint64_t> by_byte(const plan::PlanData& made, const std::vector<std::uint64_t>& sources) {
    std::vector<std::uint64_t> result(made.image_bytes, padding);
    for (std::size_t s = 0; s < sources.size(); ++s) {
        for (std::uint64_t b = 0; b < made.storage_bytes[s]; ++b) {
            result[made.storage_offsets[s] + b] = sources[s] + b;
        }
    }
    return result;
}

}  // namespace

TEST_CASE("copy nodes: a node brings what is next to each other on both sides") {
    std::uint64_t joined = 0;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        problem.alignment_bytes = 1;
        plan::Options options;
        options.captured = true;
        const auto made = plan::make_plan(problem, options);
        if (!made) { continue; }
        const plan::PlanData& data = made->data();
        CHECK(plan::detail::copy_nodes(data, options) == 0);  // unknown
        CHECK(plan::detail::seconds_with_nodes(data, problem, options) == data.predicted_seconds);
        for (Dice* const random : {static_cast<Dice*>(nullptr), &dice}) {
            options.source_offsets = sources_of(problem, data.storage_offsets, random);
            const std::vector<std::uint64_t> from = by_byte(data, options.source_offsets);
            std::uint64_t nodes = 0, pieces = 0;
            for (const plan::Copy& copy : data.copies) {
                for (std::uint64_t b = copy.image_begin; b < copy.image_end; ++b) {
                    if (from[b] == padding) { continue; }
                    const bool continues =
                        b != copy.image_begin && from[b - 1] != padding && from[b - 1] + 1 == from[b];
                    nodes += continues ? 0U : 1U;
                }
                for (std::uint32_t s = 0; s < problem.storages(); ++s) {
                    pieces += data.storage_bytes[s] != 0 && data.storage_offsets[s] < copy.image_end &&
                              data.storage_offsets[s] + data.storage_bytes[s] > copy.image_begin;
                }
            }
            CHECK(plan::detail::copy_nodes(data, options) == nodes);
            joined += pieces - nodes;
            if (data.cyclic) {
                const double more =
                    static_cast<double>(std::max<std::uint64_t>(nodes, data.calls.size()) - data.calls.size());
                CHECK(plan::detail::seconds_with_nodes(data, problem, options) ==
                      doctest::Approx(data.predicted_seconds + more * problem.link.node_latency_seconds));
            }
        }
    }
    CHECK(joined > 100);
}

TEST_CASE(
    "copy nodes: of images that are about as good, a captured plan has the one whose neighbours are neighbours in host "
    "memory") {
    // Layers of three matrices, and of vectors that are read behind each of them.
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.alignment_bytes = 16;
    for (std::uint32_t s = 0; s < 48; ++s) {
        problem.storage_bytes.push_back(s % 2 == 0 ? 4096 * 3 / 4 : 128);
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(s % 2 == 0 ? 2e-6 : 1e-6);
    }
    problem.link = {1000e6, 2e-6, 2e-6};
    problem.budget_bytes = 10 * 4096;
    plan::Options options;
    options.captured = true;
    for (const plan::ImageOrder order : {plan::ImageOrder::grouped, plan::ImageOrder::sequence}) {
        const plan::Image image = plan::lay_out(problem, order);
        options.source_offsets = sources_of(problem, image.offsets);
        const auto made = plan::make_plan(problem, options);
        REQUIRE(made.has_value());
        plan::Options blind = options;
        blind.source_offsets.clear();
        const auto other = plan::make_plan(problem, blind);
        REQUIRE(other.has_value());
        const double seconds = plan::detail::seconds_with_nodes(made->data(), problem, options);
        CHECK(seconds <= plan::detail::seconds_with_nodes(other->data(), problem, options));
        CHECK(sources_of(problem, made->data().storage_offsets) == options.source_offsets);
        CHECK(plan::detail::copy_nodes(made->data(), options) <= 2 * made->calls().size());
        // Eager passes bring all pieces of a call at once.
        options.captured = false;
        const auto eager = plan::make_plan(problem, options);
        options.captured = true;
        REQUIRE(eager.has_value());
        CHECK(plan::detail::seconds_with_nodes(eager->data(), problem, options) == eager->predicted_seconds());
    }
}
