// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/budgets.md quotes.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "residency/broker/broker.hpp"
#include "residency/interop/memory_resource.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_budgets {

using namespace residency;
using docs::Model;
using Weights = Planned<SimulatedDevice>;

namespace {

/// One token.
void run_pass(Model& model, Weights& weights) {
    auto pass = weights.begin(model.stream);
    for (const auto& step : weights.schedule()) {
        const auto lease = pass.acquire(step);
        model.launch(step.weights.front(), lease.data(step.weights.front()));
    }
}

}  // namespace

TEST_CASE("docs/budgets.md: what a text becomes, before anything is allocated") {
    Model model;
    auto& gpu = model.gpu;
    const Catalog& catalog = model.catalog;
    const Schedule& schedule = model.schedule;
    const std::string text = "40%";

    const Result<Budget> budget = Budget::try_parse(text);
    if (!budget) { FAIL(budget.error().message()); }
    const ResolvedBudget sizes = Weights::resolve_budget(gpu, catalog, {.budget = *budget, .schedule = schedule});
    const std::uint64_t smallest = sizes.floor_bytes;    // that works
    const std::uint64_t in_force = sizes.bytes;          // the cap: whole chunks of it are held
    const std::uint64_t everything = sizes.total_bytes;  // with so much, nothing streams
    std::puts(sizes.text.c_str());                       // for a log: who asked for what, and the result

    CHECK(smallest <= in_force);
    CHECK(in_force < everything);
    CHECK(!Budget::try_parse("8 gigs"));
    CHECK(sizes.is_streaming());
}

TEST_CASE("docs/budgets.md: below the floor") {
    Model model;
    const auto made =
        Weights::try_create(model.gpu, model.catalog, {.budget = Budget::parse("1MiB"), .schedule = model.schedule});
    REQUIRE(!made);
    CHECK(made.error().kind() == ErrorKind::budget);
    CHECK(made.error().message().find("below the smallest that works") != std::string::npos);
}

TEST_CASE("docs/budgets.md: another budget while the program runs") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("75%"), .schedule = model.schedule}};
    run_pass(model, weights);

    const BudgetChange change = weights.set_budget(Budget::parse("50%"));  // between passes; waits for what runs
    const std::uint64_t free_bytes = change.given_back_bytes();            // for others, now
    CHECK(free_bytes > 0);

    run_pass(model, weights);
    CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
    CHECK(model.is_right());
}

TEST_CASE("docs/budgets.md: no memory at all for a time") {
    Model model;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("75%"), .schedule = model.schedule}};
    run_pass(model, weights);
    const std::uint64_t before = unwrap(model.gpu.memory()).free_bytes + weights.statistics().held_bytes;

    weights.suspend();  // between passes, with no lease open: every device byte is free for others
    CHECK(weights.statistics().held_bytes == 0);
    weights.set_budget(Budget::parse("40%"));  // what resume() takes; without it, as much as before
    weights.resume();

    run_pass(model, weights);
    CHECK(model.is_right());
    CHECK(unwrap(model.gpu.memory()).free_bytes + weights.statistics().held_bytes == before);
    CHECK(weights.statistics().held_bytes < model.catalog.total_bytes() / 2);
}

TEST_CASE("docs/budgets.md: a KV cache and the weights share one total") {
    Model model;
    auto& gpu = model.gpu;
    const Catalog& catalog = model.catalog;
    const Schedule& schedule = model.schedule;
    constexpr std::uint64_t mib = Model::mib, block_bytes = 32 * mib;

    // One total. The cache has the higher priority: as it grows, the weights give way.
    auto broker = BudgetBroker::create(gpu, "48MiB");
    const auto sizes = Weights::resolve_budget(gpu, catalog, {.budget = Budget::bytes(0), .schedule = schedule});
    auto client = broker.add_model(
        {.name = "weights", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
    MemoryResource<SimulatedDevice> cache{gpu, broker.add_memory({.name = "KV cache", .priority = 1})};
    Weights weights{gpu, catalog, {.budget = client.budget(), .schedule = schedule}};

    void* block = nullptr;
    int refused = 0;
    std::uint64_t before = weights.budget().bytes;
    while (block == nullptr) {
        auto room = cache.try_allocate(block_bytes, cache.largest_alignment, model.stream);
        if (room) {
            block = *room;
        } else {
            ++refused;  // it is wanted now: the weights give it back at the end of a pass
            run_pass(model, weights);
        }
        client.at_pass_end(weights);  // between passes: the budget follows
    }

    CHECK(broker.statistics().used_bytes <= 48 * mib);
    CHECK(weights.budget().bytes <= before);
    CHECK(refused < 8);
    run_pass(model, weights);
    CHECK(model.is_right());
    cache.deallocate(block, block_bytes);
}

}  // namespace docs_budgets
