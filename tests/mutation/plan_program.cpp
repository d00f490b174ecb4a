// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Plans random problems without a test framework: replays each plan under any timing, simulates it again, and compares it with the
// bounds and with plans of known speed. Exits with 1 at the first failure. run.py builds it on headers with mutants.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "residency/plan/bounds.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/interval_ring.hpp"
#include "residency/plan/plan_file.hpp"
#include "residency/plan/planner.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "tests/support/planning.hpp"

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::random_problem;
using residency::testing::Replay;
using residency::testing::total_bytes;

namespace {

std::uint64_t seed_now = 0;

void demand(bool holds, const std::string& what) {
    if (holds) { return; }
    std::printf("problem %llu: %s\n", static_cast<unsigned long long>(seed_now), what.c_str());
    std::exit(1);
}

// The steady period by many passes of the model: a call occupies the link for its latency and its bytes, in order.
double steady_seconds(const plan::Plan& made, const plan::Problem& problem) {
    const plan::PlanData& d = made.data();
    const int passes = d.cyclic ? 96 : 1;
    std::vector<double> before(d.steps, 0.0), now(d.steps, 0.0), ends;
    double link = 0, compute = 0;
    for (int p = 0; p < passes; ++p) {
        std::size_t k = 0;
        for (std::uint32_t i = 0; i < d.steps; ++i) {
            for (; k < d.step_calls[i]; ++k) {
                const plan::Call& call = d.calls[k];
                double start = link, bytes = 0;
                if (call.wait.exists() && p + call.wait.pass >= 0) {
                    start = std::max(start, (call.wait.pass == 0 ? now : before)[call.wait.step]);
                }
                for (const plan::Copy& copy : made.copies(call)) { bytes += static_cast<double>(copy.bytes()); }
                link = start + problem.link.latency_seconds + bytes / problem.link.bytes_per_second;
            }
            compute = (k > 0 ? std::max(compute, link) : compute) + problem.compute(i);
            now[i] = compute;
        }
        ends.push_back(compute);
        before = now;
    }
    return d.cyclic ? (ends[95] - ends[47]) / 48 : compute;
}

void inspect(const plan::Problem& problem, plan::Options options, Dice& dice, std::uint64_t floor) {
    const auto made = plan::make_plan(problem, options);
    demand(made.has_value(), "no plan");
    demand(made->floor_bytes() == floor || floor == 0, "another floor");
    demand(made->held_bytes() <= made->budget_bytes(), "holds too much");
    const residency::Status checked = plan::check(*made, problem);
    demand(checked.has_value(), checked.has_value() ? std::string{} : checked.error().message());
    for (const double factor : {1.0, 10.0}) {
        const std::string trouble = Replay{*made, problem}.run(dice, factor, 3);
        demand(trouble.empty(), trouble);
    }
    demand(made->bytes_per_pass() >= plan::deficit_bytes(problem, made->budget_bytes()), "moves less than the deficit");
    demand(made->predicted_seconds() >= made->bound_seconds() * (1 - 1e-9), "beats the bound");
    if (!options.captured) {
        const double seconds = steady_seconds(*made, problem);
        demand(std::abs(seconds - made->predicted_seconds()) <= 1e-6 * seconds + 1e-12, "predicts another time");
    }
    const auto again =
        plan::load(plan::save(*made), {made->catalog_hash(), made->budget_bytes(), made->chunk_bytes()}, "a plan");
    demand(again.has_value() && *again == *made, "does not read back");
}

// A ring of intervals takes the slots of the floor, and no fewer.
void rings(const plan::Problem& problem) {
    const plan::Image image = plan::lay_out(problem, plan::ImageOrder::grouped);
    std::vector<bool> hold;
    std::uint64_t kept = 0;
    for (const plan::Cell& cell : image.cells) {
        hold.push_back(cell.keep);
        kept += cell.keep ? cell.chunks() : 0;
    }
    const auto least = static_cast<std::uint32_t>(plan::floor_chunks(image, problem.steps()).chunks - kept);
    plan::RingAssignment assignment;
    demand(plan::interval_ring(image, hold, least, assignment), "no ring at the floor");
    demand(least == 0 || !plan::interval_ring(image, hold, least - 1, assignment), "a ring below the floor");
}

// Three steps of a chunk, the first alone on its slot, so that nothing is left of its call: the next one waits in its place.
void emptied_call() {
    plan::Problem problem;
    problem.chunk_bytes = 4096;
    for (std::uint32_t s = 0; s < 3; ++s) {
        problem.storage_bytes.push_back(4096);
        problem.add_step({&s, 1});
    }
    plan::RingAssignment assignment;
    assignment.slots_used = 2;
    assignment.slots = {1, 0, 0};
    assignment.moves = {{0, 1, 0, {1, -1}, 0, 0}, {1, 2, 1, {0, -1}, 1, 1}, {2, 3, 2, {1, 0}, 2, 2}};
    const plan::PlanData data =
        plan::assemble(problem, plan::lay_out(problem, plan::ImageOrder::grouped), assignment, false);
    demand(data.calls.size() == 2 && data.calls[0].wait == plan::Wait{1, -1}, "a wait is lost");
}

// A stack of even steps, where the best time is known.
double over_reference(std::uint32_t steps, double ratio, double share, plan::Options options, double& bytes) {
    plan::Problem problem;
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.storage_bytes.push_back((20 + i * 7 % 13) * problem.chunk_bytes);
        problem.add_step({&i, 1});
    }
    for (std::uint32_t i = 0; i < steps; ++i) {
        problem.compute_seconds.push_back(ratio * static_cast<double>(problem.storage_bytes[(i * 5 + 3) % steps]) /
                                          problem.link.bytes_per_second);
    }
    problem.budget_bytes = static_cast<std::uint64_t>(static_cast<double>(total_bytes(problem)) * share);
    const auto made = plan::make_plan(problem, options);
    demand(made.has_value(), "no plan of a stack");
    bytes = static_cast<double>(made->bytes_per_pass()) /
            static_cast<double>(plan::deficit_bytes(problem, problem.budget_bytes));
    return made->predicted_seconds() / std::max(made->bound_seconds(), made->latency_floor_seconds());
}

}  // namespace

int main() {
    for (seed_now = 1; seed_now <= 160; ++seed_now) {
        Dice dice{seed_now};
        plan::Problem problem = random_problem(dice);
        problem.cyclic = seed_now % 4 != 0;
        plan::Options options;
        options.effort = seed_now % 5 == 0 ? plan::Effort::full : plan::Effort::quick;
        options.captured = seed_now % 3 == 0;
        inspect(problem, options, dice, 0);
        if (problem.cyclic) { rings(problem); }
        const auto floor = plan::make_plan(problem, options);
        if (floor->floor_bytes() == 0) { continue; }
        const std::uint64_t all = std::max(floor->floor_bytes(), total_bytes(problem));
        for (int k = 0; k < 3; ++k) {
            problem.budget_bytes =
                floor->floor_bytes() +
                static_cast<std::uint64_t>(dice.real() * static_cast<double>(all - floor->floor_bytes()));
            inspect(problem, options, dice, floor->floor_bytes());
        }
        problem.budget_bytes = floor->floor_bytes() - 1;
        demand(!plan::make_plan(problem, options).has_value(), "a plan below the floor");
        problem.budget_bytes = 4 * all + 8 * problem.chunk_bytes * (problem.storages() + 1);
        const auto everything = plan::make_plan(problem, options);
        demand(everything.has_value() && everything->copies().empty(), "something streams where everything fits");
    }
    seed_now = 0;
    emptied_call();
    for (const double ratio : {0.02, 0.5, 1.0}) {
        for (const double share : {0.3, 0.6, 0.9}) {
            double bytes = 0;
            demand(over_reference(60, ratio, share, {}, bytes) <= 1.02, "a slow plan");
            demand(bytes <= 1.35, "a plan that moves too much");
            demand(over_reference(60, ratio, share, {.captured = true}, bytes) <= 1.05, "a slow captured plan");
            demand(over_reference(60, ratio, share, {.effort = plan::Effort::quick}, bytes) <= 1.03,
                   "a slow quick plan");
        }
    }
    return 0;
}
