// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/planner.hpp"
#include "residency/plan/bounds.hpp"
#include "residency/plan/tuning.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

#include "benchmarks/plan_campaign/schedules.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/plan_file.hpp"
#include "residency/plan/simulate.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace planner_test {

namespace campaign = residency::campaign;
namespace plan = residency::plan;
using residency::ErrorKind;
using residency::testing::Dice;
using residency::testing::presence_of;
using residency::testing::random_problem;
using residency::testing::Replay;
using residency::testing::total_bytes;
using support::random_cases;

namespace {

// At its floor, just above it, and anywhere.
void plans_at_every_budget(std::uint64_t seed, bool cyclic, plan::Options options, double factor) {
    CAPTURE(seed);
    Dice dice{seed};
    plan::Problem problem = random_problem(dice);
    problem.cyclic = cyclic;
    options.effort = dice(0, 3) == 0 ? plan::Effort::full : plan::Effort::quick;
    std::uint64_t floor = 0;
    for (int k = 0; k < 3; ++k) {
        if (k == 1) { problem.budget_bytes = floor + dice(0, 3) * problem.chunk_bytes; }
        if (k == 2) {
            const std::uint64_t all = std::max(floor, total_bytes(problem));
            problem.budget_bytes = floor + static_cast<std::uint64_t>(dice.real() * static_cast<double>(all - floor));
        }
        CAPTURE(problem.budget_bytes);
        const auto made = plan::make_plan(problem, options);
        REQUIRE_MESSAGE(made.has_value(), (made.has_value() ? std::string{} : made.error().message()));
        if (k == 0) {
            floor = made->floor_bytes();
            if (floor == 0) { return; }
        }
        CHECK(made->floor_bytes() == floor);
        CHECK(made->held_bytes() <= made->budget_bytes());
        const residency::Status checked = plan::check(*made, problem);
        REQUIRE_MESSAGE(checked.has_value(), (checked.has_value() ? std::string{} : checked.error().message()));

        // Bounds.
        CHECK(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9));
        CHECK(made->bound_seconds() >= made->usual_bound_seconds() * (1 - 1e-12));
        const std::uint64_t deficit = plan::deficit_bytes(problem, made->budget_bytes());
        CHECK(made->bytes_per_pass() >= deficit);

        // Any timing.
        for (const double f : {1.0, factor}) {
            Replay replay{*made, problem};
            const std::string trouble = replay.run(dice, f, 4);
            REQUIRE_MESSAGE(trouble.empty(), trouble);
        }
    }
}

// Chunks that the second plan needs as a pass begins and the first one does not leave there.
std::uint64_t fresh_chunks(const plan::Plan& first, const plan::Plan& second) {
    const auto before = presence_of(first), after = presence_of(second);
    std::uint64_t fresh = 0;
    for (std::size_t c = 0; c < after.size(); ++c) {
        fresh += before[c] == plan::Presence::absent && after[c] != plan::Presence::absent ? 1 : 0;
    }
    return fresh;
}

plan::Problem three_storages() {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    problem.storage_bytes = {10000, 20000, 5000};
    for (const std::uint32_t s : {0u, 1u, 2u}) { problem.add_step({&s, 1}); }
    problem.compute_seconds = {1e-6, 1e-6, 1e-6};
    return problem;
}

}  // namespace

TEST_CASE("random cyclic schedules have plans at every budget that hold under any timing") {
    for (std::uint64_t seed = 1; seed <= random_cases(450); ++seed) { plans_at_every_budget(seed, true, {}, 10); }
}

TEST_CASE("captured plans hold under any timing") {
    for (std::uint64_t seed = 1001; seed < 1001 + random_cases(240); ++seed) {
        plans_at_every_budget(seed, true, {.captured = true}, 10);
    }
}

TEST_CASE("one-shot plans hold under any timing") {
    for (std::uint64_t seed = 2001; seed < 2001 + random_cases(270); ++seed) {
        plans_at_every_budget(seed, false, {}, 10);
    }
}

TEST_CASE("the same input gives the same plan, bit for bit") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        const plan::Problem problem = random_problem(dice);
        const auto one = plan::make_plan(problem), other = plan::make_plan(problem);
        REQUIRE(one.has_value());
        REQUIRE(other.has_value());
        CHECK(*one == *other);
        CHECK(plan::save(*one) == plan::save(*other));
    }
}

TEST_CASE("a budget below the floor is refused with the numbers") {
    plan::Problem problem = three_storages();
    const auto floor = plan::make_plan(problem);
    REQUIRE(floor.has_value());
    CHECK(floor->floor_bytes() == 5 * 4096);
    CHECK(floor->budget_bytes() == floor->floor_bytes());
    problem.budget_bytes = floor->floor_bytes() - 1;
    const auto refused = plan::make_plan(problem);
    REQUIRE(!refused.has_value());
    CHECK(refused.error().kind() == ErrorKind::budget);
    const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
    REQUIRE(numbers != nullptr);
    CHECK(numbers->floor_bytes == floor->floor_bytes());
    CHECK(numbers->budget_bytes == problem.budget_bytes);
    CHECK(numbers->step == 1);
    problem.budget_bytes = numbers->floor_bytes;
    CHECK(plan::make_plan(problem).has_value());
}

TEST_CASE("with room for everything nothing streams") {
    plan::Problem problem = three_storages();
    problem.budget_bytes = UINT64_MAX;
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->copies().empty());
    CHECK(made->bytes_per_pass() == 0);
    CHECK(made->predicted_seconds() == doctest::Approx(3e-6));
    CHECK(made->bound_seconds() == doctest::Approx(3e-6));
    CHECK(plan::check(*made, problem).has_value());
}

TEST_CASE("without times the plan is made from the bytes") {
    plan::Problem problem = three_storages();
    problem.compute_seconds.clear();
    problem.budget_bytes = 6 * 4096;
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->compute_seconds() == 0);
    CHECK(plan::check(*made, problem).has_value());
}

TEST_CASE("a given image is kept") {
    plan::Problem problem = three_storages();
    problem.image_offsets = {40960, 0, 20480};
    problem.budget_bytes = 6 * 4096;
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(made->data().storage_offsets == problem.image_offsets);
    CHECK(plan::check(*made, problem).has_value());
}

TEST_CASE("malformed problems are refused and say what is wrong") {
    const auto message = [](plan::Problem problem) {
        const auto made = plan::make_plan(problem);
        REQUIRE(!made.has_value());
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
        return made.error().message();
    };
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    plan::Problem p = three_storages();
    p.step_storages[1] = 7;
    CHECK(has(message(p), "step 1 reads storage 7 of 3"));
    p = three_storages();
    p.compute_seconds.pop_back();
    CHECK(has(message(p), "2 step times for 3 steps"));
    p = three_storages();
    p.compute_seconds[2] = -1;
    CHECK(has(message(p), "step 2"));
    p = three_storages();
    p.compute_seconds[0] = std::nan("");
    CHECK(has(message(p), "step 0"));
    p = three_storages();
    p.chunk_bytes = 5000;
    CHECK(has(message(p), "power of two"));
    p = three_storages();
    p.link.bytes_per_second = 0;
    CHECK(has(message(p), "bytes_per_second"));
    p = three_storages();
    p.link.latency_seconds = -1e-6;
    CHECK(has(message(p), "latency"));
    p = three_storages();
    p.storage_bytes[1] = UINT64_MAX;
    CHECK(has(message(p), "storage 1"));
    p = three_storages();
    p.kept = {3};
    CHECK(has(message(p), "kept storage 3"));
    p = three_storages();
    p.image_offsets = {0, 5000, 40000};
    CHECK(has(message(p), "storages 0 and 1 overlap"));
    p = three_storages();
    p.step_offsets = {0, 2, 1, 3};
    CHECK(has(message(p), "step 1"));
    CHECK(has(message({}), "no steps"));
}

namespace {

// 16 layers of nine storages, read one after another, `pace` bytes a second and 2 us a step; half of the bytes as budget.
plan::Problem half_a_llama(double pace) {
    plan::Problem problem;
    for (int layer = 0; layer < 16; ++layer) {
        for (const std::uint64_t bytes : {8192ull, 33554432ull, 8388608ull, 8388608ull, 33554432ull, 8192ull,
                                          117440512ull, 117440512ull, 117440512ull}) {
            const std::uint32_t s = problem.storages();
            problem.storage_bytes.push_back(bytes);
            problem.add_step({&s, 1});
            problem.compute_seconds.push_back(2e-6 + static_cast<double>(bytes) / pace);
        }
    }
    problem.budget_bytes = total_bytes(problem) / 2;
    return problem;
}

}  // namespace

TEST_CASE("times that add up to no number are refused") {
    for (int which = 0; which < 3; ++which) {
        CAPTURE(which);
        plan::Problem problem = three_storages();
        if (which == 0) { problem.compute_seconds = {1e308, 1e308, 1e308}; }
        if (which == 1) { problem.link.bytes_per_second = 5e-324; }
        if (which == 2) { problem.link.latency_seconds = 1e308; }
        const auto made = plan::make_plan(problem);
        REQUIRE(!made.has_value());
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
        CHECK(made.error().message().find("longer than a number") != std::string::npos);
    }
}

TEST_CASE("where few storages are wide, their layout by whole chunks is looked at too") {
    plan::Problem problem;
    for (std::uint32_t s = 0; s < 6; ++s) {
        problem.storage_bytes.push_back(64000000);
        problem.add_step({&s, 1});
    }
    const auto copied = static_cast<double>(total_bytes(problem) - 124 * problem.chunk_bytes);
    problem.compute_seconds.assign(6, 1.6 * copied / problem.link.bytes_per_second / 6);
    for (const std::uint64_t chunks : {123U, 124U, 125U}) {
        CAPTURE(chunks);
        problem.budget_bytes = chunks * problem.chunk_bytes;
        const auto made = plan::make_plan(problem);
        REQUIRE(made.has_value());
        CHECK(plan::check(*made, problem).has_value());
        CHECK(made->predicted_seconds() <= 1.02 * made->bound_seconds());
    }
}

TEST_CASE("an image that was given with half-filled chunks: a ring of fewer copies is not taken for a longer one") {
    for (const std::uint32_t steps : {24U, 60U}) {
        CAPTURE(steps);
        plan::Problem problem;
        problem.chunk_bytes = 1U << 20U;
        const std::uint64_t bytes = problem.chunk_bytes * 13 / 10;  // a whole chunk and a third of one
        const double transfer = static_cast<double>(problem.chunk_bytes) / problem.link.bytes_per_second;
        problem.link.latency_seconds = 0.1 * transfer;
        for (std::uint32_t s = 0; s < steps; ++s) {
            problem.storage_bytes.push_back(bytes);
            problem.image_offsets.push_back(2 * problem.chunk_bytes * s);
            problem.add_step({&s, 1});
        }
        problem.compute_seconds.assign(steps, 0.05 * transfer);
        problem.budget_bytes = steps * problem.chunk_bytes;  // of twice as many chunks
        const auto made = plan::make_plan(problem);
        REQUIRE(made.has_value());
        CHECK(plan::check(*made, problem).has_value());
        CHECK(made->predicted_seconds() <= steps * 0.55 * transfer);
        MESSAGE(steps, " steps: ", made->predicted_seconds() / transfer / steps, " chunks a step");
    }
}

TEST_CASE("where few storages are wide, more budget is not slower") {
    double worst = 0;
    for (const std::uint32_t storages : {3u, 4u, 6u}) {
        if (storages == 6 && support::is_sanitized) { continue; }  // which takes as long as all the rest
        for (const double ratio : {0.1, 0.5, 0.9}) {
            plan::Problem problem;
            const std::uint64_t chunks = 16;
            for (std::uint32_t s = 0; s < storages; ++s) {
                problem.storage_bytes.push_back(chunks * problem.chunk_bytes);
                problem.add_step({&s, 1});
            }
            const double transfer = static_cast<double>(problem.storage_bytes[0]) / problem.link.bytes_per_second;
            problem.compute_seconds.assign(storages, ratio * transfer);
            double least = 1e300;
            for (std::uint64_t budget = chunks; budget < storages * chunks; budget += 1 + budget % 2) {
                problem.budget_bytes = budget * problem.chunk_bytes;
                const auto made = plan::make_plan(problem);
                REQUIRE(made.has_value());
                CHECK(plan::check(*made, problem).has_value());
                least = std::min(least, made->predicted_seconds());
                worst = std::max(worst, made->predicted_seconds() / least);
            }
        }
    }
    MESSAGE("at worst ", worst, " of the time at a smaller budget");
    CHECK(worst <= 1.01);
}

TEST_CASE("a llama at half its weights is near its bound") {
    const plan::Problem problem = half_a_llama(4e12);
    const auto made = plan::make_plan(problem);
    REQUIRE(made.has_value());
    CHECK(plan::check(*made, problem).has_value());
    CHECK(made->predicted_seconds() <= 1.01 * std::max(made->bound_seconds(), made->latency_floor_seconds()));
    const auto captured = plan::make_plan(problem, {.captured = true});
    REQUIRE(captured.has_value());
    CHECK(plan::check(*captured, problem).has_value());
    CHECK(captured->predicted_seconds() <= 1.03 * captured->bound_seconds());
}

TEST_CASE("where steps cover the copies, the link may be slower than it was measured") {
    for (const double share : {0.8, 0.6}) {  // of the link that copies and nothing else would need
        for (const plan::Effort effort : {plan::Effort::full, plan::Effort::quick}) {
            plan::Problem problem = half_a_llama(2 * plan::Link{}.bytes_per_second * share);
            const auto made = plan::make_plan(problem, {.effort = effort});
            REQUIRE(made.has_value());
            CHECK(plan::check(*made, problem).has_value());
            CHECK(made->predicted_seconds() <= (1 + 4e-4) * made->bound_seconds());
            problem.link.bytes_per_second *= std::max(0.8, 1.15 * share);
            CHECK(plan::simulate(made->data(), problem.link, problem.compute_seconds) <=
                  (1 + 4e-4) * made->predicted_seconds());
        }
    }
}

// The blocks of a diffusion transformer, each matrix as long as its tokens take at 690 Tflop/s.
plan::Problem half_a_diffusion_model(double images) {
    plan::Problem problem;
    constexpr double h = 3072;
    const auto step = [&](double tokens, std::initializer_list<double> matrices) {
        std::vector<std::uint32_t> reads;
        double seconds = 5e-6 * static_cast<double>(matrices.size());
        for (const double each : matrices) {
            reads.push_back(problem.storages());
            problem.storage_bytes.push_back(static_cast<std::uint64_t>(2 * each * h * h));
            seconds += 2 * each * h * h * std::max(tokens * images, 40.0) / 690e12;
        }
        problem.add_step(reads);
        problem.compute_seconds.push_back(seconds);
    };
    for (int i = 0; i < 19; ++i) {
        step(1, {6, 6});
        for (const double tokens : {4096.0, 512.0}) { step(tokens, {3}); }
        for (const double tokens : {4096.0, 512.0}) { step(tokens, {1, 4, 4}); }
    }
    for (int i = 0; i < 38; ++i) {
        step(1, {3});
        for (int k = 0; k < 2; ++k) { step(4608, {k == 0 ? 7.0 : 5.0}); }
    }
    problem.budget_bytes = total_bytes(problem) / 2 / problem.chunk_bytes * problem.chunk_bytes;
    return problem;
}

TEST_CASE("where copies cover the steps, these may be slower than they were measured") {
    for (const bool diffusion : {false, true}) {
        for (const double share : {0.5, 0.65, 0.8}) {  // of the copies that the steps take
            for (const bool captured : {false, true}) {
                CAPTURE(diffusion);
                CAPTURE(share);
                CAPTURE(captured);
                plan::Problem problem = diffusion ? half_a_diffusion_model(share / 0.42)
                                                  : half_a_llama(2 * plan::Link{}.bytes_per_second / share);
                const auto made = plan::make_plan(problem, {.captured = captured});
                REQUIRE(made.has_value());
                CHECK(plan::check(*made, problem).has_value());
                const double close = captured ? 1.02 : 1.011;
                CHECK(made->predicted_seconds() <= close * made->bound_seconds());
                for (double& seconds : problem.compute_seconds) { seconds *= 1.08; }
                const auto later = plan::make_plan(problem, {.effort = plan::Effort::quick});
                CHECK(plan::simulate(made->data(), problem.link, problem.compute_seconds) <=
                      close * later->bound_seconds());
            }
        }
    }
}

TEST_CASE("a quick plan for few wide storages is no slower for the sake of slower steps") {
    plan::Problem problem;
    problem.storage_bytes = {12836424, 13860289, 12028376, 12249697, 12089705};
    problem.compute_seconds = {106.469e-6, 110.274e-6, 104.470e-6, 107.209e-6, 108.610e-6};
    for (std::uint32_t s = 0; s < problem.storages(); ++s) { problem.add_step({&s, 1}); }
    problem.budget_bytes = 32311139;
    const auto made = plan::make_plan(problem, {.effort = plan::Effort::quick});
    REQUIRE(made.has_value());
    CHECK(made->predicted_seconds() <= 1.09 * std::max(made->bound_seconds(), made->latency_floor_seconds()));
}

TEST_CASE("a compiled transformer: rings of few slots, and a storage that three steps read") {
    plan::Problem problem = campaign::with_budget(campaign::compiled_transformer().problem, 0.75);
    // Kernels write the cache, so that the image stays as it is laid out for the smallest budget.
    problem.image_offsets = plan::lay_out(problem, plan::ImageOrder::aligned).offsets;
    for (const bool captured : {false, true}) {
        CAPTURE(captured);
        plan::Options options{.captured = captured};
        const auto made = plan::make_plan(problem, options);
        REQUIRE(made.has_value());
        CHECK(plan::check(*made, problem).has_value());
        Dice dice{1};
        Replay replay{*made, problem};
        const std::string trouble = replay.run(dice, 10, 4);
        CHECK_MESSAGE(trouble.empty(), trouble);
        CHECK(made->predicted_seconds() <= 1.02 * std::max(made->bound_seconds(), made->latency_floor_seconds()));
        // The same steps again need nothing that is not there.
        options.present = presence_of(*made);
        options.present_offsets = made->data().storage_offsets;
        const auto again = plan::make_plan(problem, options);
        REQUIRE(again.has_value());
        CHECK(again->predicted_seconds() <= made->predicted_seconds() * 1.0011);
        CHECK(fresh_chunks(*made, *again) == 0);
    }
}

TEST_CASE("a storage that is read again soon streams where that is faster") {
    // Of each layer a storage that three steps read, with other steps between them, and three more that one step reads.
    plan::Problem problem;
    for (int layer = 0; layer < 4; ++layer) {
        for (const std::uint64_t bytes : {28000000U, 18000000U, 100000000U, 50000000U}) {
            problem.storage_bytes.push_back(bytes);
            const std::uint32_t s = problem.storages() - 1;
            for (int k = 0; k < (bytes == 28000000 ? 3 : 1); ++k) {
                problem.add_step({&s, 1});
                problem.compute_seconds.push_back(static_cast<double>(bytes) / 3e11);
                if (bytes != 28000000) { continue; }
                problem.add_step({});
                problem.compute_seconds.push_back(20e-6);
            }
        }
    }
    problem.budget_bytes = 600000000;
    for (const plan::Effort effort : {plan::Effort::quick, plan::Effort::full}) {
        const auto made = plan::make_plan(problem, {.effort = effort});
        REQUIRE(made.has_value());
        CHECK(plan::check(*made, problem).has_value());
        CHECK(made->predicted_seconds() <= 1.025 * std::max(made->bound_seconds(), made->latency_floor_seconds()));
    }
}

TEST_CASE("a plan that follows another one holds under any timing, is as fast, and needs less that is not there") {
    std::uint64_t fresh_alone = 0, fresh_near = 0, least = 0, streams = 0;
    for (std::uint64_t seed = 1; seed <= random_cases(120); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        plan::Options options;
        options.captured = dice(0, 3) == 0;
        options.effort = dice(0, 3) == 0 ? plan::Effort::full : plan::Effort::quick;
        const auto floor = plan::make_plan(problem, options);
        REQUIRE(floor.has_value());
        const auto any_budget = [&] {
            const std::uint64_t all = std::max(floor->floor_bytes(), total_bytes(problem));
            return floor->floor_bytes() +
                   static_cast<std::uint64_t>(dice.real() * static_cast<double>(all - floor->floor_bytes()));
        };
        problem.budget_bytes = any_budget();
        const auto first = plan::make_plan(problem, options);
        REQUIRE(first.has_value());
        problem.image_offsets = first->data().storage_offsets;
        problem.budget_bytes = any_budget();
        const auto alone = plan::make_plan(problem, options);
        if (!alone) { continue; }  // below the floor of this image
        options.present = presence_of(*first);
        options.present_offsets = first->data().storage_offsets;
        const auto near_first = plan::make_plan(problem, options);
        REQUIRE(near_first.has_value());
        CHECK(*near_first == *plan::make_plan(problem, options));
        REQUIRE(plan::check(*near_first, problem).has_value());
        CHECK(near_first->predicted_seconds() <= alone->predicted_seconds() * 1.0011);
        CHECK(near_first->held_bytes() <= near_first->budget_bytes());
        for (const double factor : {1.0, 10.0}) {
            Replay replay{*near_first, problem};
            const std::string trouble = replay.run(dice, factor, 4);
            REQUIRE_MESSAGE(trouble.empty(), trouble);
        }
        // What lies in another image is not looked at.
        options.present_offsets.front() += problem.chunk_bytes;
        CHECK(*plan::make_plan(problem, options) == *alone);
        fresh_alone += fresh_chunks(*first, *alone);
        fresh_near += fresh_chunks(*first, *near_first);
        const auto held = [](const plan::Plan& made) { return made.held_bytes() / made.chunk_bytes(); };
        least += held(*alone) > held(*first) ? held(*alone) - held(*first) : 0;
        streams += alone->calls().empty() ? 0 : 1;
    }
    MESSAGE(streams << " that stream; chunks needed and not there: " << fresh_near << ", alone " << fresh_alone
                    << ", least " << least);
    CHECK(streams > random_cases(60));
    CHECK(fresh_near - least <= (fresh_alone - least) / 2);
}

TEST_CASE("a plan that follows another one keeps its image, unless another one takes or brings 2 % less") {
    constexpr double gain = 1 + plan::tuning::other_image_gain, slack = 1.002;  // searches of two calls differ
    std::uint64_t kept = 0, left = 0;
    for (std::uint64_t seed = 3001; seed < 3001 + random_cases(160); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem = random_problem(dice);
        plan::Options options{.effort = plan::Effort::quick};
        const auto floor = plan::make_plan(problem, options);
        REQUIRE(floor.has_value());
        const std::uint64_t all = std::max(floor->floor_bytes(), total_bytes(problem));
        problem.budget_bytes = floor->floor_bytes() + (all - floor->floor_bytes()) * dice(30, 100) / 100;
        const auto first = plan::make_plan(problem, options);
        REQUIRE(first.has_value());
        problem.budget_bytes = floor->floor_bytes() + (all - floor->floor_bytes()) * dice(0, 100) / 100;
        const auto free = plan::make_plan(problem, options);
        REQUIRE(free.has_value());
        options.present_offsets = first->data().storage_offsets;
        const auto next = plan::make_plan(problem, options);
        REQUIRE(next.has_value());
        CHECK(next->predicted_seconds() <= free->predicted_seconds() * gain * slack);
        if (next->data().storage_offsets == options.present_offsets) {
            ++kept;
            continue;
        }
        ++left;
        plan::Problem same_image = problem;
        same_image.image_offsets = options.present_offsets;
        const auto same = plan::make_plan(same_image, options);
        CHECK(
            (!same || same->predicted_seconds() * slack > next->predicted_seconds() * gain ||
             static_cast<double>(same->bytes_per_pass()) * slack > static_cast<double>(next->bytes_per_pass()) * gain));
    }
    MESSAGE(kept << " keep their image, " << left << " do not");
    CHECK(kept > random_cases(80));
    CHECK(left > 0);
}

}  // namespace planner_test
