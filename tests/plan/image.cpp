// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/image.hpp"

#include <doctest/doctest.h>

#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;

TEST_CASE("cells say who reads each chunk first and last") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = random_problem(dice);
        for (const plan::ImageOrder order :
             {plan::ImageOrder::grouped, plan::ImageOrder::aligned, plan::ImageOrder::packed}) {
            const plan::Image image = plan::lay_out(problem, order);
            std::vector<std::uint32_t> first(image.chunks(), plan::none), last(image.chunks(), plan::none);
            std::vector<bool> keep(image.chunks(), false), filled(image.chunks(), false);
            std::vector<std::uint32_t> readers(problem.storages(), 0);
            for (const std::uint32_t s : problem.step_storages) { ++readers[s]; }
            for (std::uint32_t s = 0; s < problem.storages(); ++s) {
                CHECK(image.offsets[s] % problem.alignment_bytes == 0);
                for (std::uint32_t t = 0; t < s; ++t) {
                    const bool apart = image.offsets[s] + problem.storage_bytes[s] <= image.offsets[t] ||
                                       image.offsets[t] + problem.storage_bytes[t] <= image.offsets[s];
                    CHECK((apart || problem.storage_bytes[s] == 0 || problem.storage_bytes[t] == 0));
                }
            }
            const auto each_chunk = [&](std::uint32_t s, auto each) {
                if (problem.storage_bytes[s] == 0) { return; }
                for (std::uint64_t c = image.offsets[s] / image.chunk_bytes;
                     c * image.chunk_bytes < image.offsets[s] + problem.storage_bytes[s]; ++c) {
                    each(static_cast<std::size_t>(c));
                }
            };
            for (std::uint32_t i = 0; i < problem.steps(); ++i) {
                for (const std::uint32_t s : problem.reads(i)) {
                    each_chunk(s, [&](std::size_t c) {
                        if (first[c] == plan::none) { first[c] = i; }
                        last[c] = i;
                    });
                }
            }
            for (std::uint32_t s = 0; s < problem.storages(); ++s) {
                const bool stays = readers[s] == 0 || std::count(problem.pinned.begin(), problem.pinned.end(), s) != 0;
                each_chunk(s, [&](std::size_t c) {
                    filled[c] = true;
                    keep[c] = keep[c] || stays;
                });
            }
            std::uint32_t at = 0;
            for (const plan::Cell& cell : image.cells) {
                for (; at < cell.chunk_begin; ++at) { CHECK_FALSE(filled[at]); }
                for (; at < cell.chunk_end; ++at) {
                    CHECK(filled[at]);
                    CHECK(cell.first == first[at]);
                    CHECK(cell.last == last[at]);
                    CHECK(cell.keep == keep[at]);
                }
            }
            for (; at < image.chunks(); ++at) { CHECK_FALSE(filled[at]); }
        }
    }
}

TEST_CASE("the aligned layout has the smallest floor that steps of one storage can have") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem;
        problem.chunk_bytes = 4096;
        std::uint64_t largest = 0;
        for (std::uint32_t s = 0; s < 20; ++s) {
            problem.storage_bytes.push_back(dice(1, 60000));
            problem.add_step({&s, 1});
            largest = std::max(largest, problem.storage_bytes.back());
        }
        const auto floor = plan::floor_chunks(plan::lay_out(problem, plan::ImageOrder::aligned), problem.steps());
        CHECK(floor.chunks == (largest + 4095) / 4096);
    }
}

TEST_CASE("the packed layout has no gaps, so that what is read at steps apart fits in its own bytes") {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    for (std::uint32_t s = 0; s < 20; ++s) { problem.storage_bytes.push_back(5120); }
    for (int lap = 0; lap < 2; ++lap) {
        for (std::uint32_t s = 0; s < 20; ++s) { problem.add_step({&s, 1}); }
    }
    CHECK(plan::lay_out(problem, plan::ImageOrder::grouped).filled_chunks() == 40);
    CHECK(plan::lay_out(problem, plan::ImageOrder::packed).filled_chunks() == 25);
    CHECK(plan::candidate_images(problem).size() == 3);
    problem.budget_bytes = 25 * 4096;
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->copies().empty());
    const auto ends = plan::chunk_floor(problem);
    REQUIRE(ends.has_value());
    CHECK(ends->everything_bytes == 25 * 4096);
}
