// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/release_ring.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/plan/check.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/tuning.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

namespace release_ring_test {

namespace plan = residency::plan;
using residency::testing::Dice;
using residency::testing::Replay;
using residency::testing::total_bytes;
using support::random_cases;

namespace {

constexpr std::uint64_t chunk = 4096;

/// Steps of one storage of so many chunks each, that take so many times what copying a chunk takes.
plan::Problem steps_of(const std::vector<std::uint64_t>& chunks, double chunk_times, std::uint64_t budget_chunks) {
    plan::Problem problem;
    problem.chunk_bytes = chunk;
    problem.link.latency_seconds = 0;
    for (std::uint32_t s = 0; s < chunks.size(); ++s) {
        problem.storage_bytes.push_back(chunks[s] * chunk);
        problem.add_step({&s, 1});
        problem.compute_seconds.push_back(chunk_times * chunk / problem.link.bytes_per_second);
    }
    problem.budget_bytes = budget_chunks * chunk;
    return problem;
}

/// A problem, what its ring may stream, and the rings of its candidates.
struct Setting {
    plan::Problem problem;
    plan::Image image;
    plan::RingProblem ring_problem;

    explicit Setting(const plan::Problem& from, bool captured = false,
                     plan::ImageOrder order = plan::ImageOrder::grouped)
        : problem{from},
          image{plan::lay_out(problem, order)},
          ring_problem{problem,
                       image,
                       std::vector<bool>(image.cells.size(), false),
                       problem.budget_bytes / problem.chunk_bytes,
                       captured,
                       nullptr} {}

    [[nodiscard]] plan::ReleaseCandidate candidate(std::vector<std::uint32_t> streamed) const {
        return {std::move(streamed), std::vector<std::uint8_t>(problem.steps(), 0), 0, false};
    }
    [[nodiscard]] plan::PlanData assembled(plan::ReleaseRing& ring, const plan::ReleaseCandidate& candidate) const {
        plan::PlanData data = plan::assemble(problem, image, ring.assignment(candidate), ring_problem.is_captured());
        data.budget_bytes = problem.budget_bytes;
        return data;
    }
};

double in_chunks(double seconds, const plan::Problem& problem) {
    return seconds * problem.link.bytes_per_second / static_cast<double>(chunk);
}

}  // namespace

TEST_CASE("whatever steps stream, what is possible holds under any timing and takes as long as it says") {
    std::uint64_t possible = 0, joined = 0, alike = 0, graphs_alike = 0, in_part = 0;
    for (std::uint64_t seed = 1; seed <= random_cases(400); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem;
        problem.chunk_bytes = chunk;
        problem.link.latency_seconds = dice(0, 1) != 0 ? 1e-8 : 0;
        problem.link.node_latency_seconds = problem.link.latency_seconds;
        const std::uint32_t steps = dice(2, 20);
        for (std::uint32_t s = 0; s < steps; ++s) {
            problem.storage_bytes.push_back(dice(0, 3) == 0 ? dice(1, 30 * chunk) : dice(1, 3 * chunk));
            problem.add_step({&s, 1});
            problem.compute_seconds.push_back(dice.real() * 1e-6);
        }
        const double share = 0.3 + 0.6 * dice.real();
        problem.budget_bytes = static_cast<std::uint64_t>(share * static_cast<double>(total_bytes(problem)));
        const bool captured = dice(0, 3) == 0;
        const Setting setting{problem, captured,
                              dice(0, 1) != 0 ? plan::ImageOrder::grouped : plan::ImageOrder::aligned};
        if (setting.ring_problem.deficit() == 0) { continue; }
        plan::ReleaseRing ring{setting.ring_problem};
        for (int k = 0; k < 8; ++k) {
            std::vector<std::uint32_t> streamed(steps);
            const std::uint32_t most = dice(1, 30);
            for (std::uint32_t i = 0; i < steps; ++i) {
                streamed[i] = std::min(most, static_cast<std::uint32_t>(setting.ring_problem.capacity()[i]));
                if (dice(0, 4) == 0) { streamed[i] = dice(0, streamed[i]); }
            }
            plan::ReleaseCandidate candidate = setting.candidate(streamed);
            candidate.wider = static_cast<std::uint8_t>(dice(0, 2));
            candidate.backward = dice(0, 1) != 0;
            for (std::uint8_t& joins : candidate.joins) {
                if (dice(0, 4) == 0) {
                    joins = static_cast<std::uint8_t>(dice(0, 255));
                    ++joined;
                }
            }
            const double seconds = ring.evaluate(candidate, plan::RingCalls::impossible);
            if (seconds == plan::RingCalls::impossible) { continue; }
            ++possible;
            CHECK(ring.evaluate(candidate, seconds / 2) >= seconds / 2);
            CHECK(ring.evaluate(candidate, seconds * (1 + 1e-4)) <= seconds * (1 + 5e-5));
            plan::PlanData data = setting.assembled(ring, candidate);
            if (captured) { plan::detail::finalize_times(data, problem); }  // which chooses the cut
            const plan::Plan made{data};
            const residency::Status checked = plan::check(made, problem);
            REQUIRE_MESSAGE(checked.has_value(), (checked.has_value() ? std::string{} : checked.error().message()));
            std::uint64_t chunks = 0;
            for (const std::uint32_t x : streamed) { chunks += x; }
            CHECK(made.slots_held() <= problem.budget_bytes / chunk);
            CHECK(made.bytes_per_pass() <= chunks * chunk);
            const double simulated = plan::simulate(data, problem.link, problem.compute_seconds);
            std::uint64_t copied = 0;  // chunks
            for (const plan::Copy& copy : data.copies) {
                const plan::Chunks on = plan::chunks_of(copy.image_begin, copy.image_end, chunk);
                copied += on.last - on.first;
            }
            // A chunk alone on its slot stays, so that a plan may be faster; in a graph the copy around it becomes two.
            if (!captured || copied == chunks) { CHECK(simulated <= seconds * (1 + 1e-4)); }
            if (copied == chunks && data.cut <= plan::tuning::search_cut_most) {
                ++(captured ? graphs_alike : alike);
                CHECK(simulated >= seconds * (1 - 1e-4));
                in_part += made.bytes_per_pass() + chunk < chunks * chunk ? 1 : 0;
            }
            Replay replay{made, problem};
            const std::string trouble = replay.run(dice, 10, 4);
            REQUIRE_MESSAGE(trouble.empty(), trouble);
        }
    }
    MESSAGE(possible << " possible");
    CHECK(possible > random_cases(800));
    CHECK(joined > 0);
    CHECK(alike > 0);
    CHECK(graphs_alike > 0);
    CHECK(in_part > 0);  // with chunks that storages fill in part
}

TEST_CASE("a ring of any size: one that a round does not divide takes as long as its bytes") {
    // 4 wide steps of 10 chunks fill a ring of 10, which streams 45: 35 do not fit.
    const Setting setting{steps_of({10, 3, 10, 10, 2, 10}, 1e-3, 10)};
    REQUIRE(setting.ring_problem.deficit() == 35);
    plan::ReleaseRing ring{setting.ring_problem};
    const double seconds = ring.evaluate(setting.candidate({10, 3, 10, 10, 2, 10}), plan::RingCalls::impossible);
    CHECK(in_chunks(seconds, setting.problem) == doctest::Approx(45).epsilon(1e-3));
}

TEST_CASE("slots come back to their places where steps release them together") {
    // A ring of 6 that streams 16 moves on by 4 in a pass; two chunks of the next step are copied beside a long step, if their slots
    // are back by then.
    const Setting setting{steps_of({4, 4, 4, 4}, 4, 6)};
    REQUIRE(setting.ring_problem.deficit() == 10);
    plan::ReleaseRing ring{setting.ring_problem};
    plan::ReleaseCandidate candidate = setting.candidate({4, 4, 4, 4});
    double best = plan::RingCalls::impossible;
    for (const bool backward : {false, true}) {
        candidate.backward = backward;
        best = std::min(best, ring.evaluate(candidate, plan::RingCalls::impossible));
    }
    // Each step takes 4; 2 of the next one's chunks come beside it, 2 after it.
    CHECK(in_chunks(best, setting.problem) == doctest::Approx(4 * (4 + 2)).epsilon(1e-3));
}

TEST_CASE("a call that is joined saves its latency") {
    plan::Problem problem = steps_of({8, 1, 8, 1}, 1e-3, 9);
    problem.link.latency_seconds = 10 * static_cast<double>(chunk) / problem.link.bytes_per_second;
    const Setting setting{problem};
    plan::ReleaseRing ring{setting.ring_problem};
    plan::ReleaseCandidate candidate = setting.candidate({8, 1, 8, 1});
    const double apart = ring.evaluate(candidate, plan::RingCalls::impossible);
    const std::size_t calls = setting.assembled(ring, candidate).calls.size();
    candidate.joins = {0, 1, 0, 1};
    const double together = ring.evaluate(candidate, plan::RingCalls::impossible);
    const plan::PlanData data = setting.assembled(ring, candidate);
    CHECK(data.calls.size() < calls);
    CHECK(together < apart);
    CHECK(plan::check(plan::Plan{data}, problem).has_value());
}

TEST_CASE("what cannot be is said to be impossible") {
    const Setting setting{steps_of({10, 3, 10, 10, 2, 10}, 1e-3, 10)};
    plan::ReleaseRing ring{setting.ring_problem};
    const auto is_possible = [&](std::vector<std::uint32_t> streamed) {
        return ring.evaluate(setting.candidate(std::move(streamed)), plan::RingCalls::impossible) !=
               plan::RingCalls::impossible;
    };
    CHECK(is_possible({10, 3, 10, 10, 2, 10}));
    CHECK(!is_possible({0, 0, 0, 0, 0, 0}));     // nothing streams
    CHECK(!is_possible({10, 3, 10, 10, 0, 0}));  // less than the deficit
    CHECK(!is_possible({10, 0, 10, 9, 0, 9}));   // a ring of 3 for a step of 10
}

}  // namespace release_ring_test
