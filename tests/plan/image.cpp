// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/image.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/plan/check.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/planning.hpp"

namespace image_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;

TEST_CASE("cells say who reads each chunk first and last") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = random_problem(dice);
        for (const plan::ImageOrder order :
             {plan::ImageOrder::grouped, plan::ImageOrder::aligned, plan::ImageOrder::packed,
              plan::ImageOrder::sequence, plan::ImageOrder::fitted}) {
            const plan::Image image = plan::lay_out(problem, order);
            std::vector<std::uint32_t> first(image.chunks(), plan::none), last(image.chunks(), plan::none);
            std::vector<bool> keep(image.chunks(), false), filled(image.chunks(), false), with_bytes = filled;
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
                const bool stays = std::count(problem.kept.begin(), problem.kept.end(), s) != 0;
                each_chunk(s, [&](std::size_t c) {
                    with_bytes[c] = true;
                    filled[c] = filled[c] || stays || readers[s] != 0;
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
            CHECK(image.unread_chunks + image.filled_chunks() ==
                  static_cast<std::uint64_t>(std::count(with_bytes.begin(), with_bytes.end(), true)));
        }
    }
}

namespace {

/// Eight steps, each with a storage of two chunks of its own, and a storage of 20 chunks that none reads.
plan::Problem vision_tower() {
    plan::Problem problem;
    problem.storage_bytes.assign(8, 2 * problem.chunk_bytes);
    problem.storage_bytes.push_back(20 * problem.chunk_bytes);
    for (std::uint32_t s = 0; s < 8; ++s) { problem.add_step({&s, 1}); }
    return problem;
}

}  // namespace

TEST_CASE("what no step reads raises no floor, takes no room and is in no copy") {
    for (const bool cyclic : {true, false}) {
        CAPTURE(cyclic);
        plan::Problem problem = vision_tower();
        problem.cyclic = cyclic;
        const std::uint64_t chunk = problem.chunk_bytes;
        plan::Problem without = problem;
        without.storage_bytes.back() = 0;
        const auto ends = plan::chunk_floor(problem);
        REQUIRE(ends.has_value());
        CHECK(ends->floor_bytes == 2 * chunk);
        CHECK(ends->step == 0);
        CHECK(ends->everything_bytes == 16 * chunk);
        CHECK(ends->unread_bytes == 20 * chunk);
        for (const std::uint64_t chunks : {2U, 3U, 5U, 8U, 15U, 16U, 20U, 36U, 50U}) {
            CAPTURE(chunks);
            problem.budget_bytes = without.budget_bytes = chunks * chunk;
            const auto made = plan::make_plan(problem), least = plan::make_plan(without);
            REQUIRE(made.has_value());
            REQUIRE(least.has_value());
            CHECK(plan::check(*made, problem).has_value());
            CHECK(made->held_bytes() <= 16 * chunk);
            CHECK(made->bytes_per_pass() == least->bytes_per_pass());
            CHECK(made->predicted_seconds() == doctest::Approx(least->predicted_seconds()));
            CHECK(made->bound_seconds() == doctest::Approx(least->bound_seconds()));
            for (const std::uint32_t c : made->chunks_of_storage(8)) { CHECK(made->slot_of_chunk(c) == plan::none); }
        }
        problem.budget_bytes = chunk;
        const auto refused = plan::make_plan(problem);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().message() ==
              "budget of 2,097,152 bytes (2 MiB) is below the floor of 4,194,304 bytes (4 MiB), which step 0 sets");
        problem.kept = {8};
        const auto pinned = plan::make_plan(problem);
        REQUIRE_FALSE(pinned.has_value());
        CHECK(pinned.error().message() ==
              "budget of 2,097,152 bytes (2 MiB) is below the floor of 46,137,344 bytes (44 MiB), which step 0 sets, "
              "beside 41,943,040 bytes (40 MiB) that are "
              "kept");
    }
}

TEST_CASE("the floor holds as many storages as may be asked for at once, of whatever size") {
    plan::Problem problem = vision_tower();
    const std::uint64_t chunk = problem.chunk_bytes;
    for (const auto& [at_once, chunks] : {std::pair{0U, 2U}, {1U, 20U}, {2U, 22U}, {9U, 36U}, {20U, 36U}}) {
        CAPTURE(at_once);
        const auto ends = plan::chunk_floor(problem, at_once);
        REQUIRE(ends.has_value());
        CHECK(ends->floor_bytes == chunks * chunk);
        CHECK(ends->is_at_once == (at_once > 0));
        CHECK(ends->step == (at_once > 0 ? plan::none : 0));
    }
    problem.kept = {8};
    CHECK(plan::chunk_floor(problem, 3)->floor_bytes == 26 * chunk);
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

TEST_CASE("the fitted layout starts a chunk only where a step would need more than any step must") {
    // Matrices of 1/7 chunk, then of 9/16 and of 2 1/4, and a small vector behind each; the first take most of the time.
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.alignment_bytes = 1;
    for (std::uint32_t s = 0; s < 54; ++s) {
        problem.storage_bytes.push_back(s % 2 != 0 ? 16 : s < 18 ? 576 : s < 36 ? 2304 : 9216);
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(s % 2 != 0 ? 0.1e-6 : s < 18 ? 0.6e-6 : 0.3e-6);
    }
    const plan::Image aligned = plan::lay_out(problem, plan::ImageOrder::aligned),
                      fitted = plan::lay_out(problem, plan::ImageOrder::fitted),
                      sequence = plan::lay_out(problem, plan::ImageOrder::sequence);
    CHECK(plan::floor_chunks(aligned, 54).chunks == 3);
    CHECK(plan::floor_chunks(fitted, 54).chunks == 3);
    CHECK(plan::floor_chunks(sequence, 54).chunks == 4);
    CHECK(fitted.offsets[36] == 9 * (592 + 2320));  // no gap before the widest
    CHECK(fitted.filled_chunks() < aligned.filled_chunks());
    problem.budget_bytes = 3 * 4096;
    problem.link = {4096e6, 0.06e-6, 0.06e-6};
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->data().storage_offsets == fitted.offsets);
    CHECK(plan::check(*made, problem).has_value());
    problem.image_offsets = aligned.offsets;
    const auto over_aligned = plan::make_plan(problem);
    REQUIRE(over_aligned.has_value());
    CHECK(made->predicted_seconds() < over_aligned->predicted_seconds());
}

TEST_CASE("the fitted layout does not count what stays: kept storages lie apart, however wide") {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.alignment_bytes = 1;
    for (std::uint32_t s = 0; s < 20; ++s) {
        problem.storage_bytes.push_back(9216);
        problem.add_step({&s, 1});
    }
    const plan::Image without = plan::lay_out(problem, plan::ImageOrder::fitted);
    CHECK(plan::floor_chunks(without, 20).chunks == 3);
    problem.storage_bytes.push_back(40960);  // no step reads it, or the first one does
    problem.kept = {20};
    CHECK(plan::floor_chunks(plan::lay_out(problem, plan::ImageOrder::fitted), 20).chunks == 13);
    problem.step_storages.insert(problem.step_storages.begin() + 1, 20);
    for (std::size_t i = 1; i < problem.step_offsets.size(); ++i) { ++problem.step_offsets[i]; }
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::fitted);
    CHECK(plan::floor_chunks(image, 20).chunks == 13);
    CHECK(image.offsets[20] == 0);
}

TEST_CASE("a layout in the order of use counts as that where the aligned one is the same") {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    for (std::uint32_t s = 0; s < 40; ++s) {
        problem.storage_bytes.push_back(s == 7 ? 256 : s == 8 ? 4096 - 256 : 4096);  // a small one, which others group
        problem.add_step({&s, 1});
    }
    const std::vector<plan::Image> images = plan::candidate_images(problem);
    const auto sequence = plan::lay_out(problem, plan::ImageOrder::sequence).offsets;
    CHECK(plan::lay_out(problem, plan::ImageOrder::aligned).offsets == sequence);
    CHECK(std::any_of(images.begin(), images.end(), [&](const plan::Image& image) {
        return image.order == plan::ImageOrder::sequence && image.offsets == sequence;
    }));
    for (std::size_t i = 0; i < images.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) { CHECK(images[i].offsets != images[k].offsets); }
    }
}

TEST_CASE("where the layout in the order of use is the packed one, it is planned for what that saves") {
    // The first storage is read again, so that the grouped layout has it on chunks of its own; the steps cover their copies.
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.storage_bytes.assign(21, 1280);
    problem.storage_bytes[0] = 2 * 4096 + 1024;
    for (std::uint32_t s = 0; s <= 20; ++s) {
        problem.add_step({&s, 1});
        const std::uint32_t shared = 0;
        if (s % 7 == 6) { problem.add_step({&shared, 1}); }
    }
    problem.compute_seconds.assign(problem.steps(), 20e-6);
    const plan::Image packed = plan::lay_out(problem, plan::ImageOrder::packed);
    CHECK(plan::lay_out(problem, plan::ImageOrder::sequence).offsets == packed.offsets);
    CHECK(packed.filled_chunks() < plan::lay_out(problem, plan::ImageOrder::grouped).filled_chunks());
    problem.budget_bytes = packed.filled_chunks() * 4096;
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->bytes_per_pass() == 0);
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

}  // namespace image_test
