// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A schedule that nobody gave: guessed, learned from a pass, and what the statistics say of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace learned_order_test {

using namespace planned;
using residency::LearningReason;
using residency::LearningState;
using residency::OrderOrigin;

namespace {

/// Two weights a layer between an embedding and a head, in a catalog in alphabetical order, as a file has it: the natural order of the
/// names is by kind instead of by layer.
struct Layers {
    explicit Layers(Device& device, std::uint32_t layers) {
        std::vector<std::string> names{"z.embedding"};
        for (std::uint32_t i = 0; i < layers; ++i) {
            names.push_back("attention." + std::to_string(i));
            names.push_back("mlp." + std::to_string(i));
        }
        names.emplace_back("a.head");
        const std::uint64_t bytes = names.size() * 2 * chunk;
        auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
        const auto host = residency::HostBytes::adopt(
            at, bytes, residency::HostMemory::pinned,
            [&device](std::byte* first) { static_cast<void>(device.deallocate_host(first).has_value()); });
        auto sorted = names;
        std::ranges::sort(sorted);
        residency::CatalogBuilder builder;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            builder.add(sorted[i], residency::dtype::u8, {2 * chunk}, residency::HostSource{host, i * 2 * chunk});
        }
        catalog = must(builder.try_build());
        for (const std::string& name : names) {
            const auto place = std::ranges::lower_bound(sorted, name) - sorted.begin();
            order.push_back({WeightId{static_cast<std::uint32_t>(place)}});
        }
        budget = residency::Budget::bytes(bytes / 2);
    }
    [[nodiscard]] Weights make(Device& device, bool with_schedule, bool learn = true, bool strict = false) const {
        Schedule schedule;
        if (with_schedule) {
            residency::ScheduleBuilder builder{catalog};
            for (const auto& step : order) { builder.step(std::span<const WeightId>{step}); }
            schedule = must(builder.try_build());
        }
        auto chosen = options(0, std::move(schedule));
        chosen.budget = budget;
        chosen.learn = learn;
        chosen.strict = strict;
        return must(Weights::try_create(device, catalog, std::move(chosen)));
    }

    residency::Catalog catalog;
    std::vector<std::vector<WeightId>> order;
    std::optional<residency::Budget> budget;
};

/// A pass by weights, as a program reads that knows of no schedule. Returns its bytes.
std::uint64_t pass_of(Weights& weights, Device& device, std::span<const std::vector<WeightId>> order, Stream stream) {
    {
        auto pass = must(weights.try_begin(stream));
        for (const auto& step : order) {
            auto lease = must(pass.try_acquire(std::span<const WeightId>{step}));
            must(device.launch(
                stream,
                {.name = "k", .duration = std::chrono::microseconds{5}, .reads = {}, .writes = {}, .body = {}}));
        }
        must(pass.try_end());
    }
    must(device.synchronize(stream));
    return weights.statistics().last_pass.fetched_bytes;
}

}  // namespace

TEST_SUITE_BEGIN("planned learned order");

TEST_CASE(
    "C29: without a schedule the order of the first pass is learned, and the traffic is that of the true schedule") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    for (const std::uint32_t layers : {11U, 12U, 30U}) {
        const Layers model{device, layers};
        auto given = model.make(device, true);
        auto forgotten = model.make(device, false);
        auto unlearned = model.make(device, false, false);
        CHECK(given.statistics().learning.order == OrderOrigin::declared);
        CHECK(forgotten.statistics().learning.order == OrderOrigin::guessed);
        std::uint64_t wanted = 0, learned = 0, guessed = 0;
        for (int i = 0; i < 10; ++i) {
            wanted = pass_of(given, device, model.order, stream);
            learned = pass_of(forgotten, device, model.order, stream);
            guessed = pass_of(unlearned, device, model.order, stream);
            if (i > 0) { CHECK(forgotten.statistics().learning.order == OrderOrigin::learned); }
        }
        CAPTURE(layers);
        CHECK(wanted > 0);
        CHECK(learned == wanted);
        CHECK(guessed > wanted);
        CHECK(forgotten.statistics().last_pass.divergences == 0);
        CHECK(forgotten.statistics().last_pass.demand_misses == 0);
        CHECK(forgotten.statistics().learning.state == LearningState::done);
        CHECK(forgotten.statistics().learning.replans >= 1);
        CHECK(unlearned.statistics().learning.order == OrderOrigin::guessed);
        CHECK(unlearned.statistics().learning.reason == LearningReason::not_wanted);
        for (Weights* each : {&given, &forgotten, &unlearned}) { must(each->try_drain()); }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("an order that was right is no guess any more, and is not planned again") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto chosen = options(10 * chunk);
        chosen.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        std::vector<std::vector<WeightId>> order;
        for (std::uint32_t i = 0; i < 12; ++i) { order.push_back({weight(i)}); }
        for (int i = 0; i < 2; ++i) { pass_of(weights, device, order, stream); }
        CHECK(weights.statistics().learning.order == OrderOrigin::learned);
        CHECK(weights.statistics().learning.replans == 0);
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a first pass that left weights out is completed by a later one; shorter passes change nothing") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    {
        const Layers model{device, 12};
        auto given = model.make(device, true), forgotten = model.make(device, false);
        const std::span<const std::vector<WeightId>> all{model.order}, prompt = all.first(all.size() - 1);
        for (int i = 0; i < 3; ++i) { pass_of(forgotten, device, prompt, stream); }
        CHECK(forgotten.statistics().learning.order == OrderOrigin::learned);
        CHECK(forgotten.schedule().size() == prompt.size());
        for (int i = 0; i < 3; ++i) { pass_of(forgotten, device, all, stream); }
        CHECK(forgotten.schedule().size() == all.size());
        for (int i = 0; i < 8; ++i) {
            pass_of(forgotten, device, all, stream);
            pass_of(given, device, all, stream);
        }
        CHECK(pass_of(forgotten, device, all, stream) == pass_of(given, device, all, stream));
        const auto replans = forgotten.statistics().learning.replans;
        for (int i = 0; i < 6; ++i) { pass_of(forgotten, device, i % 2 == 0 ? prompt : all.subspan(4), stream); }
        CHECK(forgotten.schedule().size() == all.size());
        CHECK(forgotten.statistics().learning.replans == replans);
        for (Weights* each : {&given, &forgotten}) { must(each->try_drain()); }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("weights acquired again at once, and steps that share a weight, are learned as they run") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    {
        const Layers model{device, 12};
        auto order = model.order;
        order.insert(order.begin() + 3, order[2]);   // twice in a row
        order[6].push_back(model.order[2].front());  // read before, and now beside another
        order.insert(order.begin() + 7, {order[6].front(), model.order[9].front()});
        auto weights = model.make(device, false);
        for (int i = 0; i < 10; ++i) { pass_of(weights, device, order, stream); }
        CHECK(weights.statistics().learning.order == OrderOrigin::learned);
        CHECK(weights.schedule().size() == order.size() - 1);
        CHECK(weights.statistics().last_pass.divergences == 0);
        CHECK(weights.statistics().last_pass.demand_misses == 0);
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what a pass was refused is no part of its order") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    {
        const Layers model{device, 12};
        auto chosen = options(3 * 2 * chunk);
        chosen.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            std::vector<WeightId> many;
            for (std::uint32_t w = 0; w < 10; ++w) { many.push_back(weight(w)); }
            CHECK(pass.try_acquire(std::span<const WeightId>{many}).error().kind() == residency::ErrorKind::budget);
            for (const auto& step : model.order) {
                const auto lease = must(pass.try_acquire(std::span<const WeightId>{step}));
            }
            must(pass.try_end());
        }
        CHECK(weights.statistics().learning.order == OrderOrigin::learned);
        CHECK(weights.schedule().size() == model.order.size());
        CHECK_FALSE(weights.failure().has_value());
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("passes in a new order each time are planned again a few times only") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    {
        const Layers model{device, 12};
        auto weights = model.make(device, false);
        auto order = model.order;
        std::mt19937_64 random{5};
        for (int i = 0; i < 60; ++i) {
            std::shuffle(order.begin(), order.end(), random);
            pass_of(weights, device, order, stream);
        }
        CHECK(weights.statistics().learning.replans >= 8);
        CHECK(weights.statistics().learning.replans <= 12);
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C29: the statistics say whether steps are timed, and why not") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream()), side = must(device.create_stream());
    {
        const Model model = uniform_model(device, 12, 2 * chunk);
        const auto make = [&](std::uint64_t budget, bool learn = true) {
            auto chosen = options(budget, in_order(model));
            chosen.learn = learn;
            return must(Weights::try_create(device, model.catalog, std::move(chosen)));
        };
        const auto says = [](const Weights& weights, LearningState state, LearningReason reason) {
            const auto report = weights.statistics().learning;
            CAPTURE(describe(report));
            CHECK(report.state == state);
            CHECK(report.reason == reason);
            CHECK(report.steps == 12);
        };
        const auto pass_without = [&](Weights& weights, const auto& of_step) {
            {
                auto pass = must(weights.try_begin(stream));
                for (const auto& step : weights.schedule()) { of_step(pass, step); }
                must(pass.try_end());
            }
            must(weights.try_drain());
        };
        const auto leased_twice = [&](auto& pass, const Schedule::Step& step) {
            auto one = must(pass.try_acquire(step));
            auto other = must(pass.try_acquire(step, side));
        };

        auto off = make(10 * chunk, false);
        says(off, LearningState::off, LearningReason::not_wanted);

        auto resident = make(100 * chunk);
        for (int i = 0; i < 20; ++i) { run_pass(resident, model, stream); }
        says(resident, LearningState::off, LearningReason::nothing_streams);
        CHECK(resident.statistics().learning.timed_steps == 0);
        must(resident.try_set_budget(residency::Budget::bytes(10 * chunk)));
        says(resident, LearningState::measuring, LearningReason::none);
        for (int i = 0; i < 5; ++i) {
            run_pass(resident, model, stream);
            must(resident.try_drain());
        }
        says(resident, LearningState::done, LearningReason::none);
        CHECK(resident.statistics().learning.timed_steps == 12);
        CHECK(describe(resident.statistics().learning) ==
              "order declared; step times: done, 12 of 12 steps timed; planned again 1 time");

        auto given = [&] {
            auto chosen = options(10 * chunk, in_order(model));
            chosen.learn = true;
            chosen.policies.plan = off.plan();
            return must(Weights::try_create(device, model.catalog, std::move(chosen)));
        }();
        says(given, LearningState::off, LearningReason::makes_no_plan);

        auto twice = make(10 * chunk);
        for (int i = 0; i < 12; ++i) { pass_without(twice, leased_twice); }
        says(twice, LearningState::gave_up, LearningReason::untimed_steps);
        CHECK(twice.statistics().learning.timed_steps == 0);
        CHECK(twice.statistics().learning.replans == 0);

        // One step cannot be timed: the others are learned all the same.
        auto partly = make(10 * chunk);
        for (int i = 0; i < 16; ++i) {
            pass_without(partly, [&](auto& pass, const Schedule::Step& step) {
                if (step.position == 4) {
                    leased_twice(pass, step);
                } else {
                    auto lease = must(pass.try_acquire(step));
                    verify(device, model, lease, step.weights[0], stream);
                }
            });
        }
        says(partly, LearningState::gave_up, LearningReason::untimed_steps);
        CHECK(partly.statistics().learning.timed_steps == 11);
        CHECK(partly.statistics().learning.replans == 1);
        CHECK(partly.schedule()[3].compute.has_value());
        CHECK_FALSE(partly.schedule()[4].compute.has_value());

        // A captured pass ends it, with what is known: no graph goes stale by itself.
        for (const int passes : {0, 1, 2}) {
            auto captured = make(10 * chunk);
            for (int i = 0; i < passes; ++i) { run_pass(captured, model, stream); }
            auto graph = must(captured.try_capture(stream, [&](auto& pass) {
                for (const auto& step : captured.schedule()) { run_step(device, model, pass, step, stream); }
            }));
            says(captured, LearningState::gave_up, LearningReason::captured);
            CHECK(captured.statistics().learning.replans == (passes > 0 ? 1 : 0));
            for (int i = 0; i < 12; ++i) {
                run_pass(captured, model, stream);
                must(captured.try_drain());
                must(graph.try_launch(stream));
            }
            CHECK_FALSE(graph.is_stale());
            must(captured.try_set_schedule(in_order(model)));
            says(captured, LearningState::measuring, LearningReason::none);
            CHECK(captured.statistics().learning.timed_steps == (passes > 0 ? 12 : 0));
            // Another budget makes it stale, too.
            graph = must(captured.try_capture(stream, [&](auto& pass) {
                for (const auto& step : captured.schedule()) { run_step(device, model, pass, step, stream); }
            }));
            says(captured, LearningState::gave_up, LearningReason::captured);
            must(captured.try_set_budget(residency::Budget::bytes(12 * chunk)));
            says(captured, LearningState::measuring, LearningReason::none);
            for (int i = 0; i < 8; ++i) {
                run_pass(captured, model, stream);
                must(captured.try_drain());
            }
            says(captured, LearningState::done, LearningReason::none);
        }
        CHECK(*model.wrong == 0);
        for (Weights* each : {&off, &resident, &given, &twice, &partly}) { must(each->try_drain()); }
    }
    for (const Stream each : {stream, side}) { must(device.destroy_stream(each)); }
}

TEST_CASE("a composition without a plan learns nothing, and says so") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    auto weights = must(compositions::Ahead::try_create(device, model.catalog, {}));
    const auto report = weights.statistics().learning;
    CHECK(report.order == OrderOrigin::none);
    CHECK(report.state == LearningState::off);
    CHECK(report.reason == LearningReason::makes_no_plan);
    must(weights.try_drain());
}

TEST_CASE("strict: where no schedule was given, a divergence says whose order it is, and to give one") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    const Layers model{device, 11};
    const auto message = [&](bool with_schedule) {
        auto weights = model.make(device, with_schedule, true, true);
        auto pass = must(weights.try_begin(stream));
        auto refused = pass.try_acquire(std::span<const WeightId>{model.order[5]});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == residency::ErrorKind::divergence);
        CHECK(refused.error().detail<residency::Divergence>() != nullptr);
        must(pass.try_end());
        return refused.error().message();
    };
    CHECK(message(true).ends_with("acquire in the order of the schedule, or leave Options::strict out"));
    CHECK(
        message(false).ends_with("no schedule was given, and this order is guessed from the names of the weights: give "
                                 "Options::schedule"));
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace learned_order_test
