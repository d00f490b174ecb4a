// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/graphs.md quotes.
#include <doctest/doctest.h>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_graphs {

using namespace residency;
using docs::Model;

TEST_CASE("docs/graphs.md: a pass as one graph") {
    Model model;
    const auto stream = model.stream;
    Planned<SimulatedDevice> weights{
        model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    const auto one_pass = [&] {
        auto pass = weights.begin(stream);
        for (const auto& step : weights.schedule()) {
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    };
    constexpr int tokens = 4;

    for (int i = 0; i < 8; ++i) { one_pass(); }  // eager: the library times the steps, and plans with these times

    const auto body = [&](auto& pass) {
        for (const auto& step : weights.schedule()) {  // every step, in the order of the schedule
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    };
    auto graph = weights.capture(stream, body);
    for (int token = 0; token < tokens; ++token) { graph.launch(stream); }

    auto timed = weights.capture_timed(stream, body);
    while (timed.is_learning()) { timed.launch(stream); }
    graph = weights.capture(stream, body);  // planned with what the steps take in a graph
    CHECK(timed.is_stale());
    graph.launch(stream);

    weights.set_budget(Budget::parse("75%"));
    if (graph.is_stale()) {  // its addresses are those of the old plan: launch() is refused
        graph = weights.capture(stream, body);
    }
    graph.launch(stream);
    CHECK(model.is_right());
}

TEST_CASE("docs/graphs.md: one launch over many steps") {
    Model model;
    Planned<SimulatedDevice> weights{
        model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    std::uint64_t generation = UINT64_MAX;
    std::size_t launches = 0, tables = 0;

    auto pass = weights.begin(model.stream);
    for (const StepRange range : weights.ranges()) {
        const auto lease = pass.acquire(range);
        if (generation != weights.generation()) {  // addresses have changed: write the table of addresses anew
            generation = weights.generation();
            ++tables;
        }
        ++launches;  // one kernel that runs steps [range.first, range.last)
        for (std::uint32_t step = range.first; step < range.last; ++step) {
            for (const WeightId weight : weights.schedule()[step].weights) {
                model.launch(weight, weights.address(weight));
            }
        }
    }
    pass.end();
    CHECK(launches == weights.ranges().size());
    CHECK(tables >= 1);
    CHECK(model.is_right());
}

}  // namespace docs_graphs
