// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Compute times that nobody declared: assumed from the bytes, learned from passes. In virtual time, without bytes.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>

#include "benchmarks/learned_times/simulated.hpp"
#include "tests/planned/support.hpp"

namespace learned_times_test {

using namespace planned;
using namespace std::chrono_literals;
using residency::LearningReason;
using residency::LearningState;
using residency::OrderOrigin;
namespace campaign = residency::campaign;

namespace {

/// 24 layers of 22.5 MB that take 29 us, and a classifier of 65.5 MB that takes 60 us.
campaign::Shape engine() {
    campaign::Shape shape{"engine", {}};
    for (int layer = 0; layer < 24; ++layer) { campaign::add_step(shape.problem, {22553600}, 29e-6); }
    campaign::add_step(shape.problem, {65536000}, 60e-6);
    return shape;
}
campaign::Simulated run(const residency::plan::Problem& problem, campaign::Times times,
                        std::initializer_list<campaign::Passes> warm_up = {{8}}) {
    return must(campaign::simulate(problem, times, warm_up));
}

}  // namespace

TEST_SUITE_BEGIN("planned learned times");

TEST_CASE("C29: learned times give the plan of the declared ones, within 2 %: schedules of the campaign") {
    std::uint32_t slower = 0;
    const auto compare = [&](const campaign::Shape& shape, double ratio, double share) {
        auto problem = campaign::with_budget(shape.problem, share);
        campaign::scale_compute(problem, ratio);
        const auto declared = run(problem, campaign::Times::declared);
        const auto learned = run(problem, campaign::Times::learned);
        const auto assumed = run(problem, campaign::Times::assumed);
        CAPTURE(shape.name);
        CAPTURE(ratio);
        CAPTURE(share);
        CHECK(learned.seconds_per_pass <= declared.seconds_per_pass * 1.02);
        CHECK(learned.learning.state == LearningState::done);
        CHECK(learned.learning.timed_steps == problem.steps());
        CHECK(learned.bound_seconds == doctest::Approx(declared.bound_seconds).epsilon(0.01));
        CHECK(learned.bound_seconds <= learned.seconds_per_pass * 1.001);
        slower += assumed.seconds_per_pass > declared.seconds_per_pass * 1.02 ? 1U : 0U;
    };
    compare(campaign::uniform(60, 100e6), 0.3, 0.75);
    compare(campaign::uniform(60, 100e6), 1.0, 0.9);
    compare(campaign::unet("unet-like", 320, 3), 0.6, 0.75);
    for (const std::uint64_t seed : {1U, 2U, 3U}) { compare(campaign::random_shape(seed), 0.6, 0.75); }
    CHECK(slower > 0);  // else there was nothing to learn
}

TEST_CASE("C29: passes of ranges, and the one pass before a capture, learn as passes of steps do") {
    using campaign::Launches;
    using campaign::Times;
    std::uint32_t slower = 0, joined = 0;
    for (const auto& [shape, ratio, share] :
         {std::tuple{campaign::llama("llama", 8, 4096, 1024, 14336, 32000), 0.3, 0.5},
          {campaign::unet("unet-like", 320, 3), 0.3, 0.75},
          {campaign::random_shape(2), 0.6, 0.5}}) {
        auto problem = campaign::with_budget(shape.problem, share);
        campaign::scale_compute(problem, ratio);
        CAPTURE(shape.name);
        for (const Launches launches : {Launches::ranges, Launches::graph}) {
            CAPTURE(static_cast<int>(launches));
            const std::initializer_list<campaign::Passes> warm_up = {{launches == Launches::graph ? 1 : 16}};
            const auto run = [&](Times times) { return must(campaign::simulate(problem, times, warm_up, launches)); };
            const auto declared = run(Times::declared), assumed = run(Times::assumed), learned = run(Times::learned);
            CHECK(learned.seconds_per_pass <= declared.seconds_per_pass * 1.02);
            CHECK(learned.bound_seconds == doctest::Approx(declared.bound_seconds).epsilon(0.01));
            CHECK(learned.learning.timed_steps == problem.steps());
            slower += assumed.seconds_per_pass > declared.seconds_per_pass * 1.02 ? 1U : 0U;
            if (launches == Launches::graph) {
                CHECK(learned.learning.reason == LearningReason::captured);
                CHECK(learned.learning.replans == 1);
                continue;
            }
            CHECK(learned.learning.state == LearningState::done);
            CHECK(learned.learning.replans <= 3);
            joined += learned.ranges < problem.steps() ? 1U : 0U;
        }
    }
    CHECK(slower == 6);  // else there was nothing to learn
    CHECK(joined == 3);
}

TEST_CASE("C29: kernels that read their weights once need no declared times: the plan is within 2 %") {
    for (const campaign::Shape& shape : {campaign::uniform(60, 100e6), campaign::random_shape(7)}) {
        auto problem = campaign::with_budget(shape.problem, 0.75);
        campaign::bind_to_memory(problem);
        const auto declared = run(problem, campaign::Times::declared);
        const auto assumed = run(problem, campaign::Times::assumed);
        CAPTURE(shape.name);
        CHECK(assumed.seconds_per_pass <= declared.seconds_per_pass * 1.02);
        CHECK(assumed.bound_seconds == doctest::Approx(declared.bound_seconds).epsilon(0.01));
        CHECK(assumed.learning.state == LearningState::off);
        CHECK(assumed.learning.reason == LearningReason::not_wanted);
    }
}

TEST_CASE("C29: passes that leave a step out do not end the learning") {
    for (const double share : {0.9, 0.75, 0.5, 0.25}) {
        const auto problem = campaign::with_budget(engine().problem, share);
        CAPTURE(share);
        const auto declared = run(problem, campaign::Times::declared);
        for (const int prompt : {1, 2, 5, 16, 40}) {
            CAPTURE(prompt);
            const auto learned = run(problem, campaign::Times::learned, {{1}, {prompt, 24}, {8}});
            CHECK(learned.seconds_per_pass <= declared.seconds_per_pass * 1.02);
            CHECK(learned.learning.state == LearningState::done);
            CHECK(learned.learning.timed_steps == 25);
        }
        // The classifier is never run: what is known is used, and it is waited for.
        const auto partly = run(problem, campaign::Times::learned, {{40, 24}});
        CHECK(partly.learning.state == LearningState::measuring);
        CHECK(partly.learning.timed_steps == 24);
        CHECK(partly.learning.replans == 1);
        CHECK(partly.seconds_per_pass <= declared.seconds_per_pass * 1.02);
    }
}

TEST_CASE("a schedule of more steps than a pass measures is learned in parts") {
    residency::plan::Problem problem;
    problem.chunk_bytes = chunk;
    problem.storage_bytes.assign(8, 64 << 20);
    for (std::uint32_t i = 0; i < 5000; ++i) {
        const std::uint32_t storage = i * 8 / 5000;
        problem.add_step({&storage, 1});
        problem.compute_seconds.push_back(1e-6 * (1 + i % 3));
    }
    const auto learned = run(campaign::with_budget(problem, 0.6), campaign::Times::learned, {{12}});
    CHECK(learned.learning.state == LearningState::done);
    CHECK(learned.learning.timed_steps == 5000);
    CHECK(learned.learning.replans == 1);
}

TEST_SUITE_END();

}  // namespace learned_times_test
