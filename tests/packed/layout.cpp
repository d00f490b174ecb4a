// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What stays unpacked, and where the rest is unpacked: packed::lay_out and packed::choose_unpacked on random problems.
#include "residency/packed/layout.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"

namespace layout_test {

using residency::ErrorKind;
using namespace residency::packed;
namespace plan = residency::plan;

namespace {

/// Steps that read packed weights, raw ones, and now and then those of another step.
UnpackProblem random_problem(std::mt19937_64& random, std::uint32_t steps, std::uint64_t most_bytes) {
    UnpackProblem problem;
    problem.travels.chunk_bytes = 4096;
    problem.granule_bytes = 4096;
    problem.travels.cyclic = random() % 8 != 0;
    problem.travels.link.bytes_per_second = 5e10;
    problem.leases_at_once = 1 + static_cast<std::uint32_t>(random() % 3);
    problem.unpacked_bytes_per_second = random() % 2 == 0 ? 1.3e12 : 2e11;
    problem.step_offsets.push_back(0);
    const auto add_storage = [&] {
        const std::uint64_t raw = 512 + random() % most_bytes;
        const bool is_packed = random() % 6 != 0;
        problem.travels.storage_bytes.push_back(is_packed ? raw * 68 / 100 : raw);
        problem.unpacked_bytes.push_back(is_packed ? raw : 0);
        problem.must_stay.push_back(random() % 20 == 0);
        if (is_packed) { problem.table_bytes += 16; }
    };
    for (std::uint32_t i = 0; i < steps; ++i) {
        std::vector<std::uint32_t> step;
        for (std::uint64_t k = 1 + random() % 3; k > 0; --k) {
            step.push_back(static_cast<std::uint32_t>(problem.unpacked_bytes.size()));
            add_storage();
        }
        if (i > 0 && random() % 6 == 0) {
            const auto other = static_cast<std::uint32_t>(random() % step.front());
            step.push_back(other);
        }
        problem.travels.add_step(step);
        problem.travels.compute_seconds.push_back(static_cast<double>(random() % 1000) * 1e-9);
        problem.step_storages.insert(problem.step_storages.end(), step.begin(), step.end());
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
    }
    add_storage();  // which no step reads
    return problem;
}

/// Whether two storages that may be there together have places that overlap.
bool clashes(const UnpackProblem& problem, const UnpackLayout& layout) {
    const auto end = [&](std::uint32_t s) { return layout.offset[s] + problem.unpacked_bytes[s]; };
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::vector<std::uint32_t> there;
        for (std::uint32_t k = i; k < problem.steps() && k < i + problem.leases_at_once; ++k) {
            for (const std::uint32_t s : problem.reads(k)) {
                if (problem.unpacked_bytes[s] == 0) { continue; }
                if (layout.offset[s] == UnpackLayout::none || end(s) > layout.table_at) { return true; }
                there.push_back(s);
            }
        }
        for (std::uint32_t s = 0; s < layout.stays.size(); ++s) {
            if (layout.stays[s]) { there.push_back(s); }
        }
        std::sort(there.begin(), there.end());
        there.erase(std::unique(there.begin(), there.end()), there.end());
        std::sort(there.begin(), there.end(), [&](auto a, auto b) { return layout.offset[a] < layout.offset[b]; });
        for (std::size_t k = 1; k < there.size(); ++k) {
            if (layout.offset[there[k]] < end(there[k - 1])) { return true; }
        }
    }
    return false;
}

/// The predicted time of the plan where these storages stay; none: it does not fit.
double seconds_of(const UnpackProblem& problem, std::vector<bool> stays, std::uint64_t budget) {
    const auto kept = keep_unpacked(problem, std::move(stays), budget);
    if (!kept) { return 1e30; }
    plan::Options quick;
    quick.effort = plan::Effort::quick;
    const auto made = plan::make_plan(kept->rest, quick);
    return made ? made->predicted_seconds() : 1e30;
}

}  // namespace

TEST_CASE("places of what is there together do not overlap, whatever stays") {
    std::mt19937_64 random{1};
    for (int turn = 0; turn < 300; ++turn) {
        CAPTURE(turn);
        const UnpackProblem problem = random_problem(random, 1 + static_cast<std::uint32_t>(random() % 20), 50'000);
        std::vector<bool> stays;
        for (const std::uint64_t bytes : problem.unpacked_bytes) { stays.push_back(bytes > 0 && random() % 3 == 0); }
        const UnpackLayout layout = lay_out(problem, stays);
        CHECK(!clashes(problem, layout));
        CHECK(layout.shared_at <= layout.table_at);
        if (layout.bytes > 0) { CHECK(layout.table_at + problem.table_bytes <= layout.bytes); }
        const std::uint32_t unread = static_cast<std::uint32_t>(problem.unpacked_bytes.size()) - 1;
        if (problem.unpacked_bytes[unread] > 0 && !layout.stays[unread]) {
            const std::uint64_t shared = layout.table_at - layout.shared_at;
            CHECK((layout.offset[unread] != UnpackLayout::none) ==
                  (problem.unpacked_bytes[unread] + 511 < shared + 512 &&
                   (problem.unpacked_bytes[unread] + 511) / 512 * 512 <= shared));
        }
    }
}

TEST_CASE(
    "from the floor to everything there is a choice with a plan, the same each time, no worse than the simple ones") {
    std::mt19937_64 random{2};
    for (int turn = 0; turn < 20; ++turn) {
        CAPTURE(turn);
        const UnpackProblem problem = random_problem(random, 1 + static_cast<std::uint32_t>(random() % 16), 60'000);
        const auto floor = unpack_floor(problem);
        const auto everything = unpack_everything(problem);
        REQUIRE(floor);
        REQUIRE(everything);
        const auto below = choose_unpacked(problem, *floor / 8, {});
        REQUIRE(!below);
        CHECK(below.error().kind() == ErrorKind::budget);
        double last = 1e30;
        for (int k = 0; k <= 4; ++k) {
            const std::uint64_t budget =
                *everything > *floor ? *floor + (*everything - *floor) * static_cast<std::uint64_t>(k) / 4 : *floor;
            CAPTURE(budget);
            const auto choice = choose_unpacked(problem, budget, {});
            if (!choice) { FAIL(choice.error().message()); }
            CHECK(choice->layout.bytes + choice->floor_bytes <= budget);
            CHECK(choice->rest.budget_bytes == budget - choice->layout.bytes);
            CHECK(!clashes(problem, choice->layout));
            const auto plan = plan::make_plan(choice->rest, {});
            if (!plan) { FAIL(plan.error().message()); }
            CHECK(choose_unpacked(problem, budget, {})->layout == choice->layout);
            std::vector<bool> nothing = problem.must_stay, all;
            for (std::size_t s = 0; s < nothing.size(); ++s) {
                nothing[s] = nothing[s] && problem.unpacked_bytes[s] > 0;
                all.push_back(problem.unpacked_bytes[s] > 0 && (nothing[s] || s + 1 < nothing.size()));
            }
            CHECK(choice->seconds <= seconds_of(problem, nothing, budget) * (1 + 1e-9));
            CHECK(choice->seconds <= seconds_of(problem, all, budget) * (1 + 1e-9));
            // As much as fits, from the first step on.
            std::vector<bool> most = nothing;
            for (const std::uint32_t s : problem.step_storages) {
                if (problem.unpacked_bytes[s] == 0 || most[s]) { continue; }
                most[s] = true;
                if (!keep_unpacked(problem, most, budget)) { most[s] = false; }
            }
            CHECK(choice->seconds <= seconds_of(problem, most, budget) * (1 + 1e-9));
            last = std::min(last, choice->seconds);
        }
        const auto top = choose_unpacked(problem, *everything, {});
        REQUIRE(top);
        CHECK(top->seconds <= last * (1 + 1e-9));
    }
}

TEST_CASE("many steps, and one step of many storages") {
    std::mt19937_64 random{3};
    UnpackProblem many = random_problem(random, 2100, 60'000);
    const auto floor = unpack_floor(many);
    const auto everything = unpack_everything(many);
    REQUIRE(floor);
    REQUIRE(everything);
    const auto choice = choose_unpacked(many, (*floor + *everything) / 2, {});
    REQUIRE(choice);
    CHECK(choice->layout.bytes + choice->floor_bytes <= (*floor + *everything) / 2);

    UnpackProblem wide;
    wide.travels.chunk_bytes = wide.granule_bytes = 4096;
    std::vector<std::uint32_t> step;
    for (std::uint32_t s = 0; s < 10'000; ++s) {
        wide.travels.storage_bytes.push_back(1000);
        wide.unpacked_bytes.push_back(1500);
        step.push_back(s);
    }
    wide.must_stay.resize(step.size());
    wide.travels.add_step(step);
    wide.travels.compute_seconds = {1e-3};
    wide.step_offsets = {0, 10'000};
    wide.step_storages = step;
    const auto one = choose_unpacked(wide, unpack_floor(wide).value(), {});
    REQUIRE(one);
}

}  // namespace layout_test
