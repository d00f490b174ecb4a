// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/simulate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "residency/plan/image.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/tuning.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace copy_nodes_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;
using support::random_cases;

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

/// What a plan takes with its copy nodes, from these sources.
double seconds_of(plan::PlanData made, const plan::Problem& problem, const plan::Options& options) {
    plan::detail::count_nodes(made, problem, options);
    return made.predicted_seconds;
}

}  // namespace

TEST_CASE("copy nodes: a node brings what is next to each other on both sides") {
    std::uint64_t joined = 0;
    for (std::uint64_t seed = 1; seed <= random_cases(150); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        problem.alignment_bytes = 1;
        plan::Options options;
        options.effort = plan::Effort::quick;
        options.captured = true;
        const auto made = plan::make_plan(problem, options);
        if (!made) { continue; }
        const plan::PlanData& data = made->data();
        CHECK(plan::detail::copy_nodes(data, options).empty());  // unknown
        CHECK(seconds_of(data, problem, options) == data.predicted_seconds);
        for (Dice* const random : {static_cast<Dice*>(nullptr), &dice}) {
            options.source_offsets = sources_of(problem, data.storage_offsets, random);
            const std::vector<std::uint64_t> from = by_byte(data, options.source_offsets);
            std::vector<std::uint32_t> nodes;
            std::uint64_t pieces = 0;
            for (const plan::Call& call : data.calls) {
                nodes.push_back(0);
                for (const plan::Copy& copy : made->copies(call)) {
                    for (std::uint64_t b = copy.image_begin; b < copy.image_end; ++b) {
                        if (from[b] == padding) { continue; }
                        const bool continues =
                            b != copy.image_begin && from[b - 1] != padding && from[b - 1] + 1 == from[b];
                        nodes.back() += continues ? 0U : 1U;
                    }
                    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
                        pieces += data.storage_bytes[s] != 0 && data.storage_offsets[s] < copy.image_end &&
                                  data.storage_offsets[s] + data.storage_bytes[s] > copy.image_begin;
                    }
                }
            }
            CHECK(plan::detail::copy_nodes(data, options) == nodes);
            const std::uint64_t sum = std::accumulate(nodes.begin(), nodes.end(), std::uint64_t{0});
            joined += pieces - sum;
            // The same as a plan with a call for each node, if the cut is not between two of them.
            plan::PlanData counted = data;
            plan::detail::count_nodes(counted, problem, options);
            plan::PlanData split = counted;
            split.calls.clear();
            for (std::size_t k = 0; k < data.calls.size(); ++k) {
                for (std::uint32_t n = 0; n < std::max(nodes[k], 1U); ++n) {
                    plan::Call call = data.calls[k];
                    if (n > 0) { call.copies_begin = call.copies_end; }
                    split.calls.push_back(call);
                }
                if (k + 1 == counted.cut) { split.cut = static_cast<std::uint32_t>(split.calls.size()); }
            }
            CHECK(counted.predicted_seconds ==
                  doctest::Approx(plan::simulate(split, problem.link, problem.compute_seconds)).epsilon(1e-9));
            CHECK(counted.predicted_seconds >= data.predicted_seconds * (1 - 1e-9));
        }
    }
    CHECK(joined > 50);
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
        const double seconds = seconds_of(made->data(), problem, options);
        CHECK(seconds <= seconds_of(other->data(), problem, options));
        CHECK(sources_of(problem, made->data().storage_offsets) == options.source_offsets);
        const auto nodes = plan::detail::copy_nodes(made->data(), options);
        CHECK(std::accumulate(nodes.begin(), nodes.end(), 0U) <= 2 * made->calls().size());
        CHECK(made->predicted_seconds() == seconds);
        // Eager passes bring all pieces of a call at once.
        options.captured = false;
        const auto eager = plan::make_plan(problem, options);
        options.captured = true;
        REQUIRE(eager.has_value());
        CHECK(seconds_of(eager->data(), problem, options) == eager->predicted_seconds());
    }
}

TEST_CASE("copy nodes: where nodes cost most, a captured plan has the order of host memory, whatever that is") {
    // Too many chunks for layouts in the order of use alone.
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.alignment_bytes = 16;
    for (std::uint32_t s = 0; s < 600; ++s) {
        problem.storage_bytes.push_back(s % 3 == 0 ? 3072 : 144);
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(1e-8);
    }
    problem.link = {4096e6, 2e-6, 2e-6};
    problem.budget_bytes = 20 * 4096;
    REQUIRE(plan::lay_out(problem, plan::ImageOrder::grouped).filled_chunks() > plan::tuning::slots_most_chunks);
    plan::Options options;
    options.captured = true;
    for (std::uint64_t s = 0, at = 0; s < problem.storages(); ++s) {
        options.source_offsets.push_back(at);
        at += problem.storage_bytes[s];
    }
    const auto made = plan::make_plan(problem, options);
    REQUIRE(made.has_value());
    const auto nodes = plan::detail::copy_nodes(made->data(), options);
    CHECK(std::accumulate(nodes.begin(), nodes.end(), 0U) <= made->calls().size());
    plan::Options blind = options;
    blind.source_offsets.clear();
    const auto other = plan::make_plan(problem, blind);
    REQUIRE(other.has_value());
    CHECK(made->predicted_seconds() < 0.9 * seconds_of(other->data(), problem, options));
}

}  // namespace copy_nodes_test
