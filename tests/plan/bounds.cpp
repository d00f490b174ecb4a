// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/plan/bounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "residency/plan/timeline.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/sanitized.hpp"

#if RESIDENCY_TEST_GLPK
#include <glpk.h>
#endif

namespace bounds_test {

namespace plan = residency::plan;
using residency::testing::Dice;

namespace {

constexpr double never = -1e300;

/// Small whole numbers, P = 1 byte a second. `repeats`: storages that several steps read.
plan::Problem small_problem(Dice& dice, bool repeats, std::uint64_t& budget) {
    plan::Problem problem;
    problem.link.bytes_per_second = 1;
    const std::uint32_t steps = dice(1, 10), storages = repeats ? dice(1, 8) : steps;
    for (std::uint32_t s = 0; s < storages; ++s) { problem.storage_bytes.push_back(dice(0, 100)); }
    std::uint64_t largest = 0;
    std::vector<bool> read(storages, false);
    for (std::uint32_t i = 0; i < steps; ++i) {
        std::vector<std::uint32_t> step;
        if (!repeats) { step = {i}; }
        for (std::uint32_t k = dice(0, 3); repeats && k > 0; --k) { step.push_back(dice(0, storages - 1)); }
        std::sort(step.begin(), step.end());
        step.erase(std::unique(step.begin(), step.end()), step.end());
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : step) {
            bytes += problem.storage_bytes[s];
            read[s] = true;
        }
        largest = std::max(largest, bytes);
        problem.add_step(step);
        problem.compute_seconds.push_back(dice(0, 3) == 0 ? 0 : dice(0, 200) * std::pow(10, -2 + 2 * dice.real()));
        problem.compute_seconds.back() = std::floor(problem.compute_seconds.back());
    }
    std::uint64_t sum = 0;  // of what is read
    for (std::uint32_t s = 0; s < storages; ++s) { sum += read[s] ? problem.storage_bytes[s] : 0; }
    budget = dice(0, 3) == 0 ? largest : largest + (sum - largest) * dice(0, 100) / 100;
    return problem;
}

/// The least period when r bytes of each step stream through a ring, by bisection on the positive cycles of the windows.
double period_of(const plan::Problem& problem, const std::vector<double>& r, double ring) {
    const std::size_t n = problem.steps();
    double compute = 0, bytes = 0;
    for (std::size_t i = 0; i < n; ++i) {
        compute += problem.compute(static_cast<std::uint32_t>(i));
        bytes += r[i];
        if (r[i] > ring) { return 1e300; }
    }
    const auto feasible = [&](double period) {
        std::vector<double> start(n, 0.0);
        for (std::size_t round = 0; round <= n + 1; ++round) {
            bool changed = false;
            for (std::size_t a = 0; a < n; ++a) {
                const double c = problem.compute(static_cast<std::uint32_t>(a));
                double window = r[a];
                for (std::size_t b = a + 1; b <= a + 3 * n; ++b) {
                    window += r[b % n];
                    const double shift = static_cast<double>(b / n) * period;
                    double x = start[a] + c + std::max(0.0, window - ring);
                    if (window <= ring && b != a + 1) { x = never; }
                    if (x - shift > start[b % n] + 1e-9) {
                        start[b % n] = x - shift;
                        changed = true;
                    }
                }
            }
            if (!changed) { return true; }
        }
        return false;
    };
    double low = 0, high = compute + 4 * bytes + 1;
    for (int k = 0; k < 60; ++k) {
        const double middle = (low + high) / 2;
        (feasible(middle) ? high : low) = middle;
    }
    return high;
}

#if RESIDENCY_TEST_GLPK
/// The same relaxation as a linear program: bytes fetched anew for each reader, bytes fetched beside each step and each stall. What no step
/// reads has no access, and takes no room.
double linear_program(const plan::Problem& problem, double budget) {
    const int n = static_cast<int>(problem.steps());
    std::vector<std::vector<int>> uses(problem.storages());
    for (int i = 0; i < n; ++i) {
        for (const std::uint32_t s : problem.reads(static_cast<std::uint32_t>(i))) { uses[s].push_back(i); }
    }
    struct Access {
        std::size_t storage;
        int before, at;
        bool wraps;
    };
    std::vector<Access> accesses;
    for (std::size_t s = 0; s < uses.size(); ++s) {
        for (std::size_t k = 0; k < uses[s].size(); ++k) {
            if (k == 0 && !problem.cyclic) {
                accesses.push_back({s, -1, uses[s][0], true});
            } else {
                accesses.push_back({s, uses[s][k == 0 ? uses[s].size() - 1 : k - 1], uses[s][k], k == 0});
            }
        }
    }
    const int count = static_cast<int>(accesses.size()), columns = count + 2 * n + 1, lead = columns;
    const auto fetched = [&](int a) { return a + 1; };
    const auto beside = [&](int i) { return count + i + 1; };
    const auto stalled = [&](int i) { return count + n + i + 1; };
    glp_prob* lp = glp_create_prob();
    glp_set_obj_dir(lp, GLP_MIN);
    glp_add_cols(lp, columns);
    const auto range = [&](int column, double high) {
        glp_set_col_bnds(lp, column, high > 0 ? GLP_DB : GLP_FX, 0, high);
    };
    for (int a = 0; a < count; ++a) {
        range(fetched(a), static_cast<double>(problem.storage_bytes[accesses[static_cast<std::size_t>(a)].storage]));
    }
    for (int i = 0; i < n; ++i) {
        range(beside(i), problem.link.bytes_per_second * problem.compute(static_cast<std::uint32_t>(i)));
        glp_set_col_bnds(lp, stalled(i), GLP_LO, 0, 0);
        glp_set_obj_coef(lp, stalled(i), 1);
    }
    glp_set_col_bnds(lp, lead, problem.cyclic ? GLP_FR : GLP_FX, 0, 0);
    const auto row = [&](const std::vector<std::pair<int, double>>& terms, int type, double bound) {
        std::vector<double> dense(static_cast<std::size_t>(columns) + 1, 0.0);
        for (const auto& [column, factor] : terms) { dense[static_cast<std::size_t>(column)] += factor; }
        std::vector<int> index(1);
        std::vector<double> value(1);
        for (int c = 1; c <= columns; ++c) {
            if (dense[static_cast<std::size_t>(c)] != 0) {
                index.push_back(c);
                value.push_back(dense[static_cast<std::size_t>(c)]);
            }
        }
        const int r = glp_add_rows(lp, 1);
        glp_set_mat_row(lp, r, static_cast<int>(index.size()) - 1, index.data(), value.data());
        glp_set_row_bnds(lp, r, type, bound, bound);
    };
    std::vector<std::pair<int, double>> terms;
    if (problem.cyclic) {
        for (int i = 0; i < n; ++i) {
            terms.emplace_back(beside(i), 1);
            terms.emplace_back(stalled(i), 1);
        }
        for (int a = 0; a < count; ++a) { terms.emplace_back(fetched(a), -1); }
        row(terms, GLP_FX, 0);
    }
    for (int i = 0; i < n; ++i) {
        // Enough has come when step i starts.
        terms.assign(1, {lead, 1});
        for (int k = 0; k <= i; ++k) { terms.emplace_back(stalled(k), 1); }
        for (int k = 0; k < i; ++k) { terms.emplace_back(beside(k), 1); }
        for (int a = 0; a < count; ++a) {
            if (accesses[static_cast<std::size_t>(a)].at <= i) { terms.emplace_back(fetched(a), -1); }
        }
        row(terms, GLP_LO, 0);
        // And no more than fits until step i has ended.
        double room = budget;
        terms.emplace_back(beside(i), 1);
        for (int a = 0; a < count; ++a) {
            const Access& access = accesses[static_cast<std::size_t>(a)];
            if (access.wraps) { room -= static_cast<double>(problem.storage_bytes[access.storage]); }
            const double left = (access.wraps ? -1 : 0) + (access.at <= i ? 1 : 0) -
                                (access.before >= 0 && access.before <= i - 1 ? 1 : 0);
            terms.emplace_back(fetched(a), left);
        }
        if (!problem.cyclic) {  // dropped for good
            for (std::size_t s = 0; s < uses.size(); ++s) {
                if (!uses[s].empty() && uses[s].back() <= i - 1) {
                    room += static_cast<double>(problem.storage_bytes[s]);
                }
            }
        }
        row(terms, GLP_UP, room);
    }
    glp_smcp how;
    glp_init_smcp(&how);
    how.msg_lev = GLP_MSG_OFF;
    how.tol_bnd = how.tol_dj = 1e-9;
    const bool solved = glp_simplex(lp, &how) == 0 && glp_get_status(lp) == GLP_OPT;
    const double value = glp_get_obj_val(lp);
    glp_delete_prob(lp);
    return solved ? plan::total_compute(problem) + value / problem.link.bytes_per_second : -1;
}
#endif

}  // namespace

TEST_CASE("uniform steps have the bound of the formula") {
    for (const std::uint32_t n : {2u, 3u, 10u, 50u}) {
        for (const double c : {0.0, 1.0, 7.0, 40.0}) {
            for (const std::uint64_t deficit : {100ull, 300ull}) {
                plan::Problem problem;
                problem.link.bytes_per_second = 10;
                for (std::uint32_t i = 0; i < n; ++i) {
                    problem.storage_bytes.push_back(1000);
                    problem.add_step({&i, 1});
                    problem.compute_seconds.push_back(c);
                }
                CAPTURE(n);
                CAPTURE(c);
                const double compute = n * c;
                const double expected = std::max(compute, n / (n - 1.0) * (static_cast<double>(deficit) / 10 + c));
                CHECK(plan::single_use_bound(problem, n * 1000 - deficit) == doctest::Approx(expected).epsilon(1e-9));
                CHECK(plan::flow_bound(problem, n * 1000 - deficit) == doctest::Approx(expected).epsilon(1e-3));
            }
        }
    }
}

TEST_CASE("the bound is the best of all ways to keep bytes, found by trying them") {
    for (std::uint64_t seed = 1; seed <= support::random_cases(60); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem;
        problem.link.bytes_per_second = 1;
        const std::uint32_t n = dice(2, 3);
        std::uint64_t total = 0, largest = 0;
        for (std::uint32_t i = 0; i < n; ++i) {
            problem.storage_bytes.push_back(2 * dice(1, 4));
            total += problem.storage_bytes.back();
            largest = std::max(largest, problem.storage_bytes.back());
            problem.add_step({&i, 1});
            problem.compute_seconds.push_back(dice(0, 6));
        }
        const std::uint64_t budget = largest + dice(0, static_cast<std::uint32_t>(total - largest) - 1);
        // Every way to keep quarters of a byte of each storage.
        constexpr double grid = 0.5;
        double best = 1e300;
        std::vector<std::uint32_t> kept(n, 0);
        for (bool more = true; more;) {
            double ring = static_cast<double>(budget);
            std::vector<double> r(n);
            for (std::uint32_t i = 0; i < n; ++i) {
                ring -= kept[i] * grid;
                r[i] = static_cast<double>(problem.storage_bytes[i]) - kept[i] * grid;
            }
            if (ring >= 0) { best = std::min(best, period_of(problem, r, ring)); }
            more = false;
            for (std::uint32_t i = 0; i < n && !more; ++i) {
                if (++kept[i] * grid <= static_cast<double>(problem.storage_bytes[i])) {
                    more = true;
                } else {
                    kept[i] = 0;
                }
            }
        }
        const double bound = plan::exact_bound(problem, budget);
        CHECK(bound <= best * (1 + 1e-6));
        CHECK(bound >= best - 2 * grid * n);
        if (std::abs(best * 2 - std::round(best * 2)) < 1e-6 && n == 2) {
            CHECK(bound == doctest::Approx(best).epsilon(0.1));
        }
    }
}

TEST_CASE("two ways to the bound agree where each storage is read once") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        std::uint64_t budget = 0;
        const plan::Problem problem = small_problem(dice, false, budget);
        if (budget == 0) { continue; }
        CHECK(plan::single_use_bound(problem, budget) ==
              doctest::Approx(plan::flow_bound(problem, budget)).epsilon(1e-6));
        plan::Problem once = problem;
        once.cyclic = false;
        CHECK(plan::one_shot_bound(once, budget) ==
              doctest::Approx(plan::one_shot_flow_bound(once, budget)).epsilon(1e-6));
    }
}

TEST_CASE("the bound is the linear program's value") {
#if RESIDENCY_TEST_GLPK
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        std::uint64_t budget = 0;
        plan::Problem problem = small_problem(dice, seed % 4 != 0, budget);
        if (budget == 0) { continue; }
        problem.cyclic = seed % 3 != 0;
        const double value = linear_program(problem, static_cast<double>(budget));
        REQUIRE(value >= 0);
        CHECK(plan::exact_bound(problem, budget) == doctest::Approx(value).epsilon(1e-6));
    }
#else
    MESSAGE("skipped: built without glpk (libglpk-dev)");
#endif
}

TEST_CASE("the bounds are in order") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        std::uint64_t budget = 0;
        const plan::Problem problem = small_problem(dice, seed % 2 == 0, budget);
        if (budget == 0) { continue; }
        const double usual = plan::usual_bound(problem, budget), exact = plan::exact_bound(problem, budget);
        CHECK(exact >= usual * (1 - 1e-9));
        CHECK(plan::exact_bound(problem, budget, 0) <= exact * (1 + 1e-9));
        CHECK(plan::exact_bound(problem, budget + 10) <= exact * (1 + 1e-9));
        CHECK(plan::latency_floor(problem, budget, 0) == doctest::Approx(usual));
        CHECK(plan::latency_floor(problem, budget, 1) >= usual);
        plan::Problem chunked = problem;
        chunked.chunk_bytes = 1 + seed % 7;
        const std::uint64_t held = budget / chunked.chunk_bytes * chunked.chunk_bytes;
        if (held == 0) { continue; }
        const double least = plan::single_use_bound(problem, held) * (1 - 1e-9);
        CHECK(plan::ring_floor(chunked, held, 0) == plan::ring_floor(chunked, budget, 0));
        for (const double latency : {0.0, 1e-9, 1e-3, 1.0}) {
            const double now = plan::ring_floor(chunked, budget, latency);
            CHECK(now >= least);
            CHECK(now >= plan::latency_floor(problem, held, latency) * (1 - 1e-9));
            CHECK(plan::ring_floor(chunked, budget, latency, 0) <= now * (1 + 1e-9));
        }
    }
}

namespace {

/// Every ring of whole chunks of a small problem of one storage a step: which chunks share a slot, and which calls they share. The best
/// seconds per pass.
double best_ring_of_chunks(const plan::Problem& problem, std::uint32_t slots) {
    struct Chunk {
        std::uint32_t step = 0;
        double bytes = 0;
    };
    std::vector<Chunk> chunks;
    const auto g = static_cast<double>(problem.chunk_bytes);
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        for (auto left = static_cast<double>(problem.storage_bytes[i]); left > 0; left -= g) {
            chunks.push_back({i, std::min(left, g)});
        }
    }
    const std::size_t count = chunks.size();
    plan::TimelineSolver solver;
    plan::Timeline line;
    line.compute = problem.compute_seconds;
    double best = 1e300;
    const auto time = [&](const std::vector<std::uint32_t>& slot_of) {
        struct Streamed {
            double bytes = 0;
            std::uint32_t step = 0, wait = 0;
            bool previous = false;
        };
        std::vector<Streamed> streamed;
        for (std::size_t c = 0; c < count; ++c) {
            for (std::size_t distance = 1; distance < count; ++distance) {  // to the chunk before it on its slot
                const std::size_t before = (c + count - distance) % count;
                if (slot_of[before] != slot_of[c]) { continue; }
                if (chunks[before].step == chunks[c].step) { return; }
                streamed.push_back({chunks[c].bytes, chunks[c].step, chunks[before].step, before > c});
                break;
            }
        }
        std::sort(streamed.begin(), streamed.end(), [](const Streamed& a, const Streamed& b) {
            return std::tuple{a.step, !a.previous, a.wait, a.bytes} < std::tuple{b.step, !b.previous, b.wait, b.bytes};
        });
        for (std::uint32_t joins = 0; joins < 1U << streamed.size(); joins += 2) {
            line.calls.clear();
            bool possible = true;
            for (std::size_t k = 0; k < streamed.size(); ++k) {
                const Streamed& x = streamed[k];
                const double seconds = x.bytes / problem.link.bytes_per_second;
                if ((joins >> k & 1U) == 0) {
                    line.calls.push_back({problem.link.latency_seconds + seconds, x.step, x.wait, x.previous});
                    continue;
                }
                plan::Timeline::Call& call = line.calls.back();
                call.seconds += seconds;
                if (call.wait_previous != x.previous ? call.wait_previous : call.wait_step < x.wait) {
                    call.wait_step = x.wait;
                    call.wait_previous = x.previous;
                }
                possible = possible && (call.wait_previous || call.wait_step < call.needed_by);
            }
            if (possible) { best = std::min(best, solver.period(line, 1e-7)); }
        }
    };
    std::vector<std::uint32_t> slot_of(count, 0);
    const auto each = [&](const auto& self, std::size_t c, std::uint32_t used) -> void {
        if (c == count) {
            time(slot_of);
            return;
        }
        for (std::uint32_t slot = 0; slot < std::min(used + 1, slots); ++slot) {
            slot_of[c] = slot;
            self(self, c + 1, std::max(used, slot + 1));
        }
    };
    each(each, 0, 0);
    return best;
}

}  // namespace

TEST_CASE("no ring of whole chunks is faster than its floor, whichever chunks share slots and calls") {
    std::uint64_t rings = 0, reached = 0, above_others = 0;
    for (std::uint64_t seed = 1; seed <= support::random_cases(200); ++seed) {
        CAPTURE(seed);
        Dice dice{seed};
        plan::Problem problem;
        problem.chunk_bytes = 4;
        problem.link.bytes_per_second = 1;
        problem.link.latency_seconds = 0.5 * dice(0, 4);
        std::uint32_t chunks = 0, widest = 0;
        for (std::uint32_t i = 0; i < 5 && chunks < 6; ++i) {
            const std::uint32_t bytes = dice(0, 1) != 0 ? dice(1, 4) : dice(5, 12), held = (bytes + 3) / 4;
            chunks += held;
            widest = std::max(widest, held);
            problem.storage_bytes.push_back(bytes);
            problem.add_step({&i, 1});
            problem.compute_seconds.push_back(dice(0, 2) == 0 ? dice(0, 12) : 0.1 * dice(0, 10));
        }
        if (chunks <= widest) { continue; }
        const std::uint32_t slots = widest + dice(0, chunks - widest - 1);
        const double floor = plan::ring_floor(problem, slots * 4, problem.link.latency_seconds);
        const double best = best_ring_of_chunks(problem, slots);
        ++rings;
        CHECK(floor <= best * (1 + 1e-6));
        reached += floor >= best * (1 - 1e-6) ? 1 : 0;
        const double others = std::max(plan::single_use_bound(problem, slots * 4),
                                       plan::latency_floor(problem, slots * 4, problem.link.latency_seconds));
        above_others += floor > others * 1.01 ? 1 : 0;
    }
    MESSAGE(rings << " rings, floor reached by " << reached << ", above other bounds in " << above_others);
    CHECK((reached > 0 || support::is_sanitized));  // of the fewer problems with sanitizers, no ring reaches it
    CHECK(above_others > rings / 10);
}

TEST_CASE("kept storages take their room, and those that no step reads take none") {
    plan::Problem problem;
    problem.link.bytes_per_second = 1;
    problem.storage_bytes = {100, 100, 100, 50};
    for (const std::uint32_t s : {0u, 1u, 2u}) { problem.add_step({&s, 1}); }
    problem.compute_seconds = {1, 1, 1};
    plan::Problem smaller = problem;
    smaller.storage_bytes[3] = 0;
    for (const bool cyclic : {true, false}) {
        CAPTURE(cyclic);
        problem.cyclic = smaller.cyclic = cyclic;
        problem.kept = {};
        smaller.storage_bytes[0] = 100;
        CHECK(plan::exact_bound(problem, 200) == doctest::Approx(plan::exact_bound(smaller, 200)));
        CHECK(plan::usual_bound(problem, 200) == doctest::Approx(plan::usual_bound(smaller, 200)));
        smaller.storage_bytes[0] = 0;
        problem.kept = {0};
        CHECK(plan::exact_bound(problem, 250) == doctest::Approx(plan::exact_bound(smaller, 150)));
        CHECK(plan::exact_bound(problem, 300) == doctest::Approx(3));
        problem.kept = {0, 3};
        CHECK(plan::exact_bound(problem, 300) == doctest::Approx(plan::exact_bound(smaller, 150)));
        CHECK(plan::exact_bound(problem, 350) == doctest::Approx(3));
    }
}

}  // namespace bounds_test
