// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random programs for a Residency: made from a seed, run by run.hpp, shrunk when one fails.

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/sanitized.hpp"

namespace model_based {

enum class Do : std::uint8_t {
    begin,            // a: stream
    end_pass,         //
    next_step,        // a: stream, or the pass's own
    any_step,         // a: stream; b: step
    weights,          // a: stream; b, c: which
    request_step,     // the next one
    request_weights,  // b, c: which
    lease_ticket,     // a: stream; b: ticket
    drop_ticket,      // b: ticket
    verify,           // a: one of its streams; b: lease; c: duration
    use_on,           // a: stream; b: lease
    end_lease,        // b: lease
    move_lease,       // b, c: leases
    synchronize,      // a: stream
    drain,            //
    set_schedule,     // a: which
    set_budget,       // a: per mille of what lies between floor and total
    spend,            // c: µs
    hint,             // b, c: which
    wait,             // for the pass's stream
    count,
};

struct Op {
    Do what = Do::begin;
    std::uint32_t a = 0, b = 0, c = 0;
};

struct StorageSpec {
    std::uint64_t bytes = 0;
    std::uint8_t placement = 0;  // as residency::Placement
    bool is_mutable = false;
    bool tied = false;
};

struct Scenario {
    std::uint64_t seed = 0;
    std::vector<StorageSpec> storages;
    std::array<std::vector<std::vector<std::uint32_t>>, 2> schedules;  // weights of steps; empty: no schedule
    bool one_shot = false;
    std::uint32_t budget_per_mille = 0;  // of what lies between floor and total
    std::uint32_t streams = 1;
    double jitter = 1;
    bool poison = false;
    std::vector<Op> ops;
};

/// What happened in all scenarios together: a test that saw none of something proves nothing about it.
struct Tally {
    std::uint64_t cases = 0, operations = 0, evictions = 0, prefetch_hits = 0, refused = 0, divergences = 0,
                  host_waits = 0, verified = 0, leases = 0;
};

inline Scenario make_scenario(std::uint64_t seed) {
    std::mt19937_64 random{seed * 0x9E3779B97F4A7C15U + 1};
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    Scenario scenario;
    scenario.seed = seed;
    const bool equal = below(3) == 0;
    const std::uint64_t usual = 1 + below(2048);
    const std::uint32_t storages = 1 + below(9);
    std::uint32_t weights = storages;
    for (std::uint32_t i = 0; i < storages; ++i) {
        StorageSpec spec;
        spec.bytes = equal ? usual : below(8) == 0 ? 0 : 1 + below(below(4) == 0 ? 6000 : 1500);
        spec.placement = below(8) == 0 ? 1 : below(10) == 0 ? 2 : 0;
        spec.is_mutable = spec.placement == 1 && below(3) == 0;
        spec.tied = below(5) == 0;
        weights += spec.tied ? 1U : 0U;
        scenario.storages.push_back(spec);
    }
    for (auto& schedule : scenario.schedules) {
        if (below(5) == 0) { continue; }
        const std::uint32_t steps = 1 + below(8);
        for (std::uint32_t s = 0; s < steps; ++s) {
            std::vector<std::uint32_t> step;
            const std::uint32_t count = below(4) == 0 ? 2 + below(2) : below(15) == 0 ? 0 : 1;
            for (std::uint32_t k = 0; k < count; ++k) {
                step.push_back(below(3) == 0 ? below(weights) : (s + k) % weights);
            }
            schedule.push_back(step);
        }
    }
    scenario.one_shot = below(4) == 0;
    scenario.budget_per_mille = below(3) == 0 ? 0 : below(5) == 0 ? 1200 : below(1000);
    scenario.streams = 1 + below(3);
    scenario.jitter = below(2) == 0 ? 1 : 10;
    scenario.poison = below(3) == 0;
    // Mostly passes as a program runs them, with everything else in between.
    const auto op = [&](Do what) { scenario.ops.push_back({what, below(64), below(64), below(64)}); };
    const std::uint32_t passes = 1 + below(4);
    const bool wild = below(3) == 0;
    for (std::uint32_t p = 0; p < passes; ++p) {
        op(Do::begin);
        const std::uint32_t steps = 2 + below(10);
        for (std::uint32_t s = 0; s < steps; ++s) {
            op(below(wild ? 2 : 12) == 0 ? static_cast<Do>(2 + below(3)) : Do::next_step);
            op(Do::verify);
            if (below(4) == 0) { op(Do::use_on); }
            if (below(3) == 0) { op(Do::verify); }
            if (below(8) == 0) {
                op(below(2) == 0 ? Do::request_step : Do::request_weights);
                if (below(2) == 0) { op(Do::next_step); }
                op(below(4) == 0 ? Do::drop_ticket : Do::lease_ticket);
            }
            if (below(10) == 0) {
                op(Do::hint);
                if (below(2) == 0) { op(Do::wait); }
            }
            if (below(12) == 0) { op(Do::move_lease); }
            if (below(wild ? 3 : 6) != 0) { op(Do::end_lease); }
            if (below(16) == 0) { op(static_cast<Do>(13 + below(static_cast<std::uint32_t>(Do::count) - 13))); }
        }
        for (std::uint32_t e = below(4); e > 0; --e) { op(Do::end_lease); }
        op(Do::end_pass);
        if (below(3) == 0) { op(Do::synchronize); }
        if (below(4) == 0) { op(Do::set_budget); }
        if (below(5) == 0) {
            for (std::uint32_t e = 0; e < 4; ++e) { op(Do::end_lease); }
            op(Do::drop_ticket);
            op(below(2) == 0 ? Do::set_schedule : Do::set_budget);
        }
    }
    return scenario;
}

inline std::string text_of(const Scenario& scenario) {
    static constexpr std::array names{"begin",        "end_pass",        "next_step",    "any_step",    "weights",
                                      "request_step", "request_weights", "lease_ticket", "drop_ticket", "verify",
                                      "use_on",       "end_lease",       "move_lease",   "synchronize", "drain",
                                      "set_schedule", "set_budget",      "spend",        "hint",        "wait"};
    static_assert(names.size() == static_cast<std::size_t>(Do::count));
    std::string text = "seed " + std::to_string(scenario.seed) + ", budget at " +
                       std::to_string(scenario.budget_per_mille) + " per mille, streams " +
                       std::to_string(scenario.streams) + ", jitter " + std::to_string(scenario.jitter) +
                       (scenario.poison ? ", poison" : "") + (scenario.one_shot ? ", one shot" : "") + "\n  storages:";
    for (const StorageSpec& spec : scenario.storages) {
        text += " " + std::to_string(spec.bytes) +
                (spec.placement == 1   ? "R"
                 : spec.placement == 2 ? "H"
                                       : "") +
                (spec.tied ? "t" : "");
    }
    for (const auto& schedule : scenario.schedules) {
        text += "\n  schedule:";
        for (const auto& step : schedule) {
            text += " {";
            for (const auto weight : step) { text += " " + std::to_string(weight); }
            text += " }";
        }
    }
    text += "\n  operations:";
    for (const Op& op : scenario.ops) {
        text += "\n    " + std::string{names[static_cast<std::size_t>(op.what)]} + " " + std::to_string(op.a) + " " +
                std::to_string(op.b) + " " + std::to_string(op.c);
    }
    return text;
}

/// Empty, or what went wrong.
using Run = std::function<std::string(const Scenario&, Tally&)>;

/// Drops operations, then storages' ties and steps, as long as it still fails.
inline Scenario shrunk(Scenario scenario, const Run& run) {
    Tally ignored;
    const auto fails = [&](const Scenario& candidate) { return !run(candidate, ignored).empty(); };
    for (std::size_t size = std::max<std::size_t>(scenario.ops.size() / 2, 1); size > 0; size /= 2) {
        for (std::size_t at = 0; at < scenario.ops.size();) {
            Scenario smaller = scenario;
            const auto begin = smaller.ops.begin() + static_cast<std::ptrdiff_t>(at);
            smaller.ops.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(size, scenario.ops.size() - at)));
            if (fails(smaller)) {
                scenario = std::move(smaller);
            } else {
                at += size;
            }
        }
    }
    const auto simplify = [&](auto&& change) {
        Scenario simpler = scenario;
        change(simpler);
        if (fails(simpler)) { scenario = std::move(simpler); }
    };
    simplify([](Scenario& s) { s.poison = false; });
    simplify([](Scenario& s) { s.jitter = 1; });
    simplify([](Scenario& s) { s.streams = 1; });
    for (auto member : {0U, 1U}) {
        simplify([&](Scenario& s) { s.schedules[member].clear(); });
    }
    return scenario;
}

namespace detail {
inline volatile std::sig_atomic_t running_high = 0, running_low = 0;
}

/// Scenarios first, first + 1, … of one composition. Returns the first failure, shrunk, or nothing. An assertion that aborts
/// says in which scenario.
inline std::string run_scenarios(const char* name, std::uint64_t first, std::uint64_t count, const Run& run,
                                 Tally& tally) {
    static const char* running_name = "";
    running_name = name;
    const auto before = std::signal(SIGABRT, [](int) {
        std::fprintf(stderr, "aborted in %s, scenario %d%06d\n", running_name, static_cast<int>(detail::running_high),
                     static_cast<int>(detail::running_low));
    });
    std::string failure;
    for (std::uint64_t seed = first; seed < first + count && failure.empty(); ++seed) {
        detail::running_high = static_cast<std::sig_atomic_t>(seed / 1000000);
        detail::running_low = static_cast<std::sig_atomic_t>(seed % 1000000);
        const Scenario scenario = make_scenario(seed);
        failure = run(scenario, tally);
        if (failure.empty()) { continue; }
        const Scenario small = shrunk(scenario, run);
        Tally ignored;
        failure = std::string{name} + ": " + run(small, ignored) + "\n" + text_of(small);
    }
    std::signal(SIGABRT, before);
    return failure;
}

}  // namespace model_based
