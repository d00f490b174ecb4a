// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Leases that overlap: planned for they cost nothing, otherwise what is not needed gives way to what is leased together.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace overlapping_test {

using namespace planned;
using residency::Budget;
using residency::Cycle;
using residency::ErrorKind;
using residency::Placement;
using residency::StorageId;

namespace {

/// A pass in which a step is acquired before the lease of the last one ends.
void run_chained_pass(Weights& weights, const Model& model, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    {
        Weights::Lease lease;
        for (const auto& step : weights.schedule()) {
            lease = must(pass.try_acquire(step));
            for (const auto id : step.weights) { verify(weights.device(), model, lease, id, stream); }
        }
    }
    must(pass.try_end());
}

Weights make_overlapping(Device& device, const Model& model, std::uint64_t budget, const Schedule& schedule,
                         std::uint32_t leases_at_once) {
    auto chosen = options(budget, schedule);
    chosen.policies.leases_at_once = leases_at_once;
    return must(Weights::try_create(device, model.catalog, std::move(chosen)));
}

/// Chunks that have to be in memory at once: of these storages, and of all that may not leave.
std::uint64_t chunks_of(const Weights& weights, const Model& model, const std::set<std::uint32_t>& storages) {
    std::set<std::uint32_t> chunks;
    for (std::uint32_t s = 0; s < model.catalog.storages().size(); ++s) {
        if (!storages.contains(s) && model.catalog.storages()[s].placement != Placement::resident) { continue; }
        for (const std::uint32_t chunk : weights.plan().chunks_of_storage(s)) { chunks.insert(chunk); }
    }
    return chunks.size();
}

}  // namespace

TEST_SUITE_BEGIN("planned overlapping leases");

TEST_CASE("C17: a lease that is acquired before the last one ends is there at every budget that holds both") {
    for (const auto compute : {std::chrono::microseconds{0}, std::chrono::microseconds{20}}) {
        for (const std::uint64_t chunks : {8U, 9U, 12U, 16U, 24U, 32U, 40U, 56U, 63U, 64U}) {
            CAPTURE(compute.count());
            CAPTURE(chunks);
            CheckedDevice device;
            const Model model = uniform_model(device, 16, 4 * chunk);
            const Stream stream = must(device.create_stream());
            {
                const auto schedule =
                    compute.count() == 0
                        ? in_order(model)
                        : schedule_of(
                              model,
                              {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}},
                              Cycle::cyclic, compute);
                auto weights = make(device, model, chunks * chunk, schedule);
                for (int pass = 0; pass < 4; ++pass) { run_chained_pass(weights, model, stream); }
                run_pass(weights, model, stream);
                expect_back_on_plan(weights, model, stream);
                CHECK(weights.statistics().held_bytes <= chunks * chunk);
            }
            CHECK(*model.wrong == 0);
            must(device.destroy_stream(stream));
        }
    }
}

TEST_CASE("a lease of what stays may be held: the plan's copies go on, eagerly and in a graph") {
    CheckedDevice device;
    Model model = uniform_model(device, 16, 4 * chunk);
    const std::vector<residency::WeightId> table{weight(0)};
    model.catalog = must(model.catalog.try_with_placement(table, Placement::resident));
    Steps steps;
    for (std::uint32_t i = 0; i < 16; ++i) { steps.push_back({i}); }
    steps.push_back({0});  // as a tied head
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, schedule_of(model, steps));
        const auto run_holding = [&](auto& pass) {
            auto held = must(pass.try_acquire(weights.schedule()[0]));
            verify(device, model, held, weight(0), stream);
            for (std::uint32_t s = 1; s < 16; ++s) { run_step(device, model, pass, weights.schedule()[s], stream); }
            verify(device, model, held, weight(0), stream);
        };
        const auto run_held_pass = [&] {
            auto pass = must(weights.try_begin(stream));
            run_holding(pass);
            must(pass.try_end());
        };
        run_held_pass();
        must(weights.try_drain());
        for (int pass = 0; pass < 3; ++pass) {
            run_held_pass();
            const auto counters = weights.statistics().last_pass;
            CHECK(counters.demand_misses == 0);
            CHECK(counters.divergences == 0);
            CHECK(counters.host_waits == 0);
            CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
        }
        auto graph = must(weights.try_capture(stream, run_holding));
        must(graph.try_launch(stream));
        must(graph.try_launch(stream));
        expect_back_on_plan(weights, model, stream);

        // Under another plan, in which it may not stay, no step accounts for it.
        auto pass = must(weights.try_begin(stream));
        auto kept = must(pass.try_acquire(weights.schedule()[0]));
        run_step(device, model, pass, weights.schedule()[1], stream);
        must(pass.try_end());
        for (const std::uint64_t chunks : {40U, 12U}) {
            must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
            for (int p = 0; p < 3; ++p) {
                run_pass(weights, model, stream);
                verify(device, model, kept, weight(0), stream);
            }
        }
        kept.end();
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what overlaps as it was planned for is never missed and never waited for") {
    for (const std::uint32_t at_once : {2U, 3U}) {
        for (const std::uint64_t chunks : {12U, 16U, 24U, 40U, 64U}) {
            CAPTURE(at_once);
            CAPTURE(chunks);
            CheckedDevice device;
            const Model model = uniform_model(device, 16, 4 * chunk);
            const Stream stream = must(device.create_stream());
            {
                auto weights = make_overlapping(device, model, chunks * chunk, in_order(model), at_once);
                CHECK(weights.statistics().floor_bytes == at_once * 4 * chunk);
                run_chained_pass(weights, model, stream);
                must(weights.try_drain());
                const auto before = weights.statistics().total;
                for (int pass = 0; pass < 3; ++pass) {
                    auto running = must(weights.try_begin(stream));
                    std::vector<Weights::Lease> held(at_once);
                    for (const auto& step : weights.schedule()) {
                        auto& lease = held[step.position % at_once];
                        lease.end();
                        lease = must(running.try_acquire(step));
                        verify(device, model, lease, step.weights[0], stream);
                    }
                    held.clear();
                    must(running.try_end());
                    CHECK(weights.statistics().last_pass.fetched_bytes == bytes_of(weights.plan()));
                }
                const auto after = weights.statistics().total;
                CHECK(after.demand_misses == before.demand_misses);
                CHECK(after.host_waits == before.host_waits);
            }
            CHECK(*model.wrong == 0);
            must(device.destroy_stream(stream));
        }
    }
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4 * chunk);
    auto few = options(4 * chunk, in_order(model));
    few.policies.leases_at_once = 2;
    const auto refused = Weights::try_create(device, model.catalog, std::move(few));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
}

TEST_CASE(
    "C15 C17: random leases, held as long as they like, are right or refused for want of bytes; the plan goes on") {
    std::size_t refused = 0, held_many = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        CheckedDevice device;
        std::vector<Spec> specs;
        for (int i = 0; i < 14; ++i) {
            Spec spec{1 + random() % (5 * chunk)};
            if (random() % 8 == 0) { spec.placement = Placement::resident; }
            spec.is_mutable = random() % 12 == 0;
            if (spec.is_mutable) { spec.placement = Placement::resident; }
            specs.push_back(spec);
        }
        const Model model = make_model(device, specs);
        const auto count = static_cast<std::uint32_t>(specs.size());
        const Stream stream = must(device.create_stream());
        {
            const Schedule schedule = in_order(model);
            auto smallest = make(device, model, 0, schedule);
            const std::uint64_t floor = smallest.statistics().floor_bytes, total = smallest.budget().total_bytes;
            must(smallest.try_set_budget(residency::Budget::bytes(floor)));
            auto weights = make(device, model, floor + random() % (total - floor + chunk), schedule);
            for (int p = 0; p < 6; ++p) {
                auto pass = must(weights.try_begin(stream));
                std::vector<std::pair<std::uint32_t, Weights::Lease>> held;
                for (std::uint32_t i = 0; i < count; ++i) {
                    const std::uint32_t wanted = random() % 5 == 0 ? static_cast<std::uint32_t>(random() % count) : i;
                    auto lease = pass.try_acquire({weight(wanted)});
                    std::set<std::uint32_t> storages{wanted};
                    for (const auto& each : held) { storages.insert(each.first); }
                    if (lease) {
                        verify(device, model, *lease, weight(wanted), stream);
                        held.emplace_back(wanted, std::move(*lease));
                    } else {
                        CHECK(lease.error().kind() == ErrorKind::budget);
                        CHECK(chunks_of(weights, model, storages) * chunk > weights.statistics().held_bytes);
                        ++refused;
                    }
                    held_many += held.size() > 2 ? 1 : 0;
                    for (const auto& each : held) { verify(device, model, each.second, weight(each.first), stream); }
                    while (!held.empty() && (!lease || random() % 3 == 0)) {
                        const auto at = static_cast<std::ptrdiff_t>(random() % held.size());
                        held.erase(held.begin() + at);
                        lease = Weights::Lease{};
                    }
                }
                held.clear();
                must(pass.try_end());
                if (p % 2 == 1) { run_pass(weights, model, stream); }
            }
            expect_back_on_plan(weights, model, stream);
            CHECK(weights.statistics().held_bytes <= weights.statistics().budget_bytes);
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
    CHECK(refused > 20);
    CHECK(held_many > 500);
}

TEST_CASE("C17: a second lease for which the plan has no room: the error names the option that plans for it") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 0, in_order(model));
        REQUIRE(weights.statistics().held_bytes == 2 * chunk);
        auto pass = must(weights.try_begin(stream));
        auto first = must(pass.try_acquire(weights.schedule()[0]));
        const auto second = pass.try_acquire(weights.schedule()[1]);
        REQUIRE_FALSE(second);
        CHECK(second.error().kind() == ErrorKind::budget);
        CHECK(second.error().message().find("policies.leases_at_once") != std::string::npos);
        first.end();
        must(pass.try_end());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C9: below the floor: the error says what the step needs, and what the pool makes of it") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, chunk + 300);
    for (const std::uint32_t at_once : {1U, 2U}) {
        auto chosen = options(1, in_order(model));
        chosen.policies.leases_at_once = at_once;
        const auto refused = Weights::try_create(device, model.catalog, std::move(chosen));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        const std::string& message = refused.error().message();
        const std::uint64_t floor = refused.error().detail<residency::BudgetNumbers>()->floor_bytes;
        CHECK_MESSAGE(message.find("needs " + residency::detail::in_bytes(at_once * (chunk + 300)) + " at once, " +
                                   residency::detail::in_bytes(floor) + " as the pool rounds") != std::string::npos,
                      message);
    }
}

TEST_CASE("C6: what is pinned or written to does not give way") {
    CheckedDevice device;
    std::vector<Spec> specs(8, Spec{2 * chunk});
    specs[0].placement = Placement::resident;
    specs[1].placement = Placement::resident;
    specs[1].is_mutable = true;
    const Model model = make_model(device, specs);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        run_pass(weights, model, stream);
        auto pass = must(weights.try_begin(stream));
        {
            auto a = must(pass.try_acquire({weight(4)}));
            auto b = must(pass.try_acquire({weight(6)}));
            verify(device, model, a, weight(4), stream);
            verify(device, model, b, weight(6), stream);
            const auto third = pass.try_acquire({weight(7)});
            REQUIRE_FALSE(third);
            CHECK(third.error().kind() == ErrorKind::budget);
            auto pinned = must(pass.try_acquire({weight(0), weight(1)}));
            verify(device, model, pinned, weight(0), stream);
            verify(device, model, pinned, weight(1), stream);
            CHECK(weights.statistics().total.evicted_bytes <= weights.statistics().total.fetched_bytes);
        }
        must(pass.try_end());
        expect_back_on_plan(weights, model, stream);
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("no leases at once are refused; leases and storages at once that raise the floor are named as they count") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 2 * chunk);
    const auto refused = [&](std::uint32_t leases, std::uint32_t storages, const Schedule& schedule, ErrorKind kind) {
        auto chosen = options(8 * chunk, schedule);
        chosen.policies.leases_at_once = leases;
        chosen.policies.storages_at_once = storages;
        const auto made = Weights::try_create(device, model.catalog, std::move(chosen));
        REQUIRE_FALSE(made);
        CHECK(made.error().kind() == kind);
        return made.error().message();
    };
    CHECK(refused(0, 0, in_order(model), ErrorKind::invalid_argument).starts_with("policies.leases_at_once is 0"));
    constexpr const char* leases = "with room for 100 leases together (policies.leases_at_once)";
    CHECK(refused(100, 0, in_order(model), ErrorKind::budget).find(leases) != std::string::npos);
    CHECK(refused(100, 0, {}, ErrorKind::budget).find(leases) != std::string::npos);
    const std::string storages = refused(1, 100, in_order(model), ErrorKind::budget);
    CHECK(storages.find("the 8 largest storages (policies.storages_at_once)") != std::string::npos);
    CHECK(storages.find("leases_at_once") == std::string::npos);
    // The same where another schedule raises the floor.
    auto weights = make_overlapping(device, model, 8 * chunk, in_order(model), 2);
    const auto changed = weights.try_set_schedule(schedule_of(model, {{0, 1, 2}, {3, 4, 5}}));
    REQUIRE_FALSE(changed);
    CHECK(changed.error().message().find("with room for 2 leases together (policies.leases_at_once)") !=
          std::string::npos);
}

TEST_SUITE_END();

}  // namespace overlapping_test
