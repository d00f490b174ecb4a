// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Passes as graphs. Every kernel, eager or replayed, compares every byte under the checker.
#include "residency/core/engine/captured_pass.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/child.hpp"

namespace capture_test {

using namespace planned;
using residency::Budget;
using residency::CapturedPass;
using residency::Cycle;
using residency::Error;
using residency::ErrorKind;
using residency::Status;

namespace {

std::uint64_t pass_bytes(const Model& model, const Weights& weights) {
    std::uint64_t bytes = 0;
    for (const auto& step : weights.schedule()) {
        for (const auto id : step.weights) { bytes += model.catalog.weight(id).bytes; }
    }
    return bytes;
}

/// Counts the copies that graphs record.
class CountingDevice : public CheckedDevice {
public:
    Status copy(std::span<const residency::Copy> copies, Stream stream) {
        if (must(is_capturing(stream))) { pieces += copies.size(); }
        return CheckedDevice::copy(copies, stream);
    }
    std::size_t pieces = 0;
};
using Counted = residency::Planned<CountingDevice>;

struct Captured {
    std::size_t nodes = 0;
    residency::plan::Plan plan;
};

/// The weights of a model, each where it is, as memory of its own.
Model model_of_parts(const Model& model) {
    residency::CatalogBuilder builder;
    for (std::uint32_t i = 0; i < model.catalog.storages().size(); ++i) {
        const residency::StorageId id{i};
        const std::uint64_t bytes = model.catalog.storage(id).bytes;
        builder.add(model.catalog.weight(WeightId{i}).name, residency::dtype::u8, {bytes},
                    std::span{model.catalog.host_bytes(id), bytes}, residency::HostMemory::pinned);
    }
    Model result;
    result.catalog = must(builder.try_build());
    return result;
}

}  // namespace

TEST_SUITE_BEGIN("planned capture");

TEST_CASE("where nothing was captured there is nothing to launch") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    decltype(must(std::declval<Weights&>().try_capture(stream, [](auto&) {}))) none;
    CHECK(none.is_stale());
    const auto launched = none.try_launch(stream);
    REQUIRE_FALSE(launched);
    CHECK(launched.error().kind() == ErrorKind::wrong_state);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "C23: a graph is a pass: replayed back to back, between eager passes, on other streams, beside another graph") {
    for (const std::uint64_t chunks : {4U, 7U, 12U, 24U, 40U, 100U}) {
        for (const double jitter : {1.0, 10.0}) {
            CAPTURE(chunks);
            auto config = small_config();
            config.jitter = jitter;
            CheckedDevice device{config};
            const Model model = uniform_model(device, 16, 3 * chunk + 700);
            const Stream stream = must(device.create_stream()), other = must(device.create_stream());
            {
                auto weights = make(device, model, std::max<std::uint64_t>(chunks, 5) * chunk, in_order(model));
                const auto used = used_bytes(device);
                const auto body = plain(device, model, weights, stream);
                const auto verified_before = *model.verified;
                auto graph = must(weights.try_capture(stream, body));
                must(device.synchronize());
                // Nothing of it has run.
                CHECK(*model.verified == verified_before);
                CHECK(weights.statistics().total.passes == 0);
                auto second = must(weights.try_capture(other, plain(device, model, weights, other)));
                std::uint64_t passes = 0;
                const auto launch = [&](auto& which, Stream on, int times) {
                    for (int i = 0; i < times; ++i) { must(which.try_launch(on)); }
                    passes += static_cast<std::uint64_t>(times);
                };
                const auto eager = [&](Stream on) {
                    run_pass(weights, model, on);
                    ++passes;
                };
                launch(graph, stream, 3);
                eager(stream);
                launch(graph, stream, 1);
                launch(second, other, 2);
                launch(graph, other, 1);
                launch(second, stream, 1);
                eager(other);
                eager(stream);
                launch(graph, stream, 4);
                // An empty pass, and one that goes astray.
                must(must(weights.try_begin(stream)).try_end());
                launch(second, other, 1);
                std::uint64_t astray = 0;
                {
                    auto pass = must(weights.try_begin(stream));
                    for (const std::uint32_t s : {7U, 3U, 3U, 12U, 0U}) {
                        run_step(device, model, pass, weights.schedule()[s], stream);
                        astray += model.catalog.weight(weight(s)).bytes;
                    }
                }
                launch(graph, stream, 2);
                eager(stream);
                must(weights.try_drain());
                CHECK(*model.verified - verified_before == passes * pass_bytes(model, weights) + astray);
                CHECK(*model.wrong == 0);
                CHECK(weights.statistics().total.passes == passes + 2);
                CHECK(used_bytes(device) == used);
                expect_back_on_plan(weights, model, stream);
                must(graph.try_launch(stream));
                CHECK(weights.statistics().last_pass.fetched_bytes == bytes_of(weights.plan()));
                CHECK(weights.statistics().last_pass.acquires == 16);
                CHECK_FALSE(weights.failure());
            }
            must(device.destroy_stream(stream));
            must(device.destroy_stream(other));
        }
    }
}

TEST_CASE("a graph has few copy nodes: its plan has an image whose neighbours are neighbours in host memory") {
    // Matrices, and vectors that are read behind them, where a first plan has them apart.
    CountingDevice device;
    Steps steps;
    for (std::uint32_t i = 0; i < 48; ++i) { steps.push_back({i}); }
    const auto stream = must(device.create_stream());
    const auto capture = [&](const Model& model) {
        // Steps that take less than their copies: otherwise nodes cost nothing.
        auto settings = options<Counted>(
            10 * chunk, schedule_of(model, steps, residency::Cycle::cyclic, std::chrono::nanoseconds{100}));
        auto weights = must(Counted::try_create(device, model.catalog, std::move(settings)));
        const auto body = [&](auto& pass) {
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        };
        device.pieces = 0;
        auto graph = must(weights.try_capture(stream, body));
        const std::size_t nodes = std::exchange(device.pieces, 0);
        must(graph.try_launch(stream));
        must(device.synchronize(stream));
        CHECK(*model.wrong == 0);
        return Captured{nodes, weights.plan()};
    };
    std::vector<Spec> specs;
    for (int i = 0; i < 24; ++i) {
        specs.push_back({3 * chunk / 4});
        specs.push_back({256});
    }
    {
        const Model model = make_model(device, specs);  // in one allocation, in the order in which they are read
        const auto [nodes, plan] = capture(model);
        CHECK(nodes <= plan.calls().size() + plan.calls().size() / 4);
        CHECK(plan.storage_offset(0) + plan.storage_bytes(0) == plan.storage_offset(1));
        // Each in an allocation of its own, though they lie as before: nothing is joined, and no image is better for it.
        const auto apart = model_of_parts(model);
        const auto [pieces, plan_of_parts] = capture(apart);
        CHECK(pieces >= nodes);
        CHECK(plan_of_parts.predicted_seconds() >= plan.predicted_seconds());
        // The plan knows: an image in which vectors lie among the matrices has a node for each.
        CHECK(plan_of_parts.storage_offset(0) + plan_of_parts.storage_bytes(0) != plan_of_parts.storage_offset(1));
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("as many storages as were declared fit together after a capture too, whatever image its plan has") {
    // On the host each two are swapped, behind one that no step reads.
    constexpr std::uint32_t count = 200;
    CheckedDevice device;
    std::vector<Spec> specs{{256}};
    specs.resize(1 + count, Spec{1024});
    const Model model = make_model(device, specs);
    const auto stream = must(device.create_stream());
    {
        Steps steps;
        for (std::uint32_t i = 0; i < count; ++i) { steps.push_back({1 + (i ^ 1U)}); }
        auto settings = options(0, schedule_of(model, steps, residency::Cycle::cyclic, std::chrono::nanoseconds{10}));
        settings.policies.storages_at_once = 8;
        settings.budget = Budget::bytes(must(Weights::try_resolve_budget(device, model.catalog, settings)).floor_bytes);
        auto weights = must(Weights::try_create(device, model.catalog, std::move(settings)));
        auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
        must(graph.try_launch(stream));
        must(device.synchronize(stream));
        // The eight that lie on the most chunks.
        std::vector<WeightId> widest, others;
        for (std::uint32_t i = 1; i <= count; ++i) {
            const auto chunks = weights.plan().chunks_of_storage(i);
            (chunks.last - chunks.first > 1 ? widest : others).push_back(WeightId{i});
        }
        for (std::size_t i = 0; widest.size() < 8; i += 4) { widest.push_back(others[i]); }
        widest.resize(8);
        auto pass = must(weights.try_begin(stream));
        {
            auto lease = must(pass.try_acquire(std::span<const WeightId>{widest}));
            for (const auto id : widest) { verify(device, model, lease, id, stream); }
        }
        must(pass.try_end());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("each launch counts what its own graph does, not what another one did that was captured later") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        auto whole = must(weights.try_capture(stream, plain(device, model, weights, stream)));
        auto half = must(weights.try_capture(stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                if (step.position % 2 == 0) { run_step(device, model, pass, step, stream); }
            }
        }));
        for (auto* graph : {&whole, &half, &whole, &whole, &half}) {
            const std::uint64_t steps = graph == &whole ? 8 : 4;
            const auto before = weights.statistics().total;
            must(graph->try_launch(stream));
            const auto counted = weights.statistics().total - before;
            CHECK(counted.passes == 1);
            CHECK(counted.acquires == steps);
            CHECK(counted.hits + counted.prefetch_hits + counted.demand_misses == steps);
            CHECK(weights.statistics().last_pass == counted);
        }
        CapturedPass moved = std::move(whole);
        must(moved.try_launch(stream));
        CHECK(weights.statistics().last_pass.acquires == 8);
        must(device.synchronize());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a launch whose end could not be recorded: the host waits for it before the next one, and counts that") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
        must(graph.try_launch(stream));
        const auto waits = weights.statistics().total.host_waits;
        device.fail(Device::CallKind::record, 3);  // after the pass's start and end
        const auto failed = graph.try_launch(stream);
        REQUIRE_FALSE(failed);
        CHECK(failed.error().kind() == ErrorKind::device);
        CHECK(weights.statistics().total.host_waits == waits);
        must(graph.try_launch(stream));
        CHECK(weights.statistics().total.host_waits == waits + 1);
        run_pass(weights, model, stream);
        CHECK(weights.statistics().total.host_waits == waits + 1);
        must(device.synchronize());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("streams named by use_on, and leases on them, become part of the graph") {
    for (const std::uint64_t chunks : {9U, 20U, 100U}) {
        CAPTURE(chunks);
        CheckedDevice device;
        const Model model = uniform_model(device, 12, 3 * chunk);
        const Stream stream = must(device.create_stream()), side = must(device.create_stream());
        {
            auto weights = make(device, model, chunks * chunk, in_order(model));
            auto graph = must(weights.try_capture(stream, [&](auto& pass) {
                for (std::uint32_t s = 0; s < 12; ++s) {
                    auto lease = must(pass.try_acquire(weights.schedule()[s], s % 5 == 4 ? side : stream));
                    verify(device, model, lease, weight(s), s % 5 == 4 ? side : stream);
                    if (s % 3 != 0) { continue; }
                    must(lease.try_use_on(side));
                    verify(device, model, lease, weight(s), side, std::chrono::microseconds{50});
                    if (s % 2 == 0) {
                        must(lease.try_use_on(stream));
                        verify(device, model, lease, weight(s), stream);
                    }
                }
            }));
            for (int i = 0; i < 3; ++i) { must(graph.try_launch(i == 1 ? side : stream)); }
            run_pass(weights, model, side);
            must(graph.try_launch(stream));
            must(weights.try_drain());
            CHECK(*model.verified == std::uint64_t{4 * (12 + 4 + 2) + 12} * 3 * chunk);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
        must(device.destroy_stream(side));
    }
}

TEST_CASE("C23: stale after another budget, another schedule or a remapping; refused at once, captured anew it runs") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 4 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 12 * chunk, in_order(model));
        const auto body = plain(device, model, weights, stream);
        auto graph = must(weights.try_capture(stream, body));
        const auto expect_stale = [&] {
            CHECK(graph.is_stale());
            const auto calls = device.statistics().of(Device::CallKind::launch_graph);
            const auto refused = graph.try_launch(stream);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::stale);
            CHECK(device.statistics().of(Device::CallKind::launch_graph) == calls);
            run_pass(weights, model, stream);
            graph = must(weights.try_capture(stream, body));
            CHECK_FALSE(graph.is_stale());
            must(graph.try_launch(stream));
            must(graph.try_launch(stream));
        };
        must(graph.try_launch(stream));
        for (const std::uint64_t chunks : {8U, 20U, 200U, 10U}) {
            must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
            expect_stale();
        }
        must(weights.try_set_schedule(
            schedule_of(model, {{5}, {4}, {3}, {2}, {1}, {0}, {6}, {7}, {8}, {9}, {10}, {11}})));
        expect_stale();
        must(weights.try_set_budget(Budget::bytes(8 * chunk)));
        expect_stale();
        {
            // All pairs: some share a place.
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w + 1 < 12; ++w) {
                auto a = must(pass.try_acquire(weight(w)));
                auto b = must(pass.try_acquire(weight(w + 1)));
                verify(device, model, a, weight(w), stream);
                verify(device, model, b, weight(w + 1), stream);
            }
        }
        CHECK(weights.statistics().total.host_waits > 0);
        expect_stale();
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C19: a body that throws, fails, strays, stays or holds on leaves no graph and everything as before") {
    for (const std::uint64_t chunks : {8U, 20U, 100U}) {
        CAPTURE(chunks);
        CheckedDevice device;
        const Model model = uniform_model(device, 12, 4 * chunk);
        const Stream stream = must(device.create_stream()), side = must(device.create_stream());
        {
            auto weights = make(device, model, chunks * chunk, in_order(model));
            const auto body = plain(device, model, weights, stream);
            auto graph = must(weights.try_capture(stream, body));
            const auto before = device.statistics().of(Device::CallKind::destroy_graph);
            Weights::Lease kept;
            Weights::Pass stolen;
            Weights::Ticket ticket;
            const auto step = [&](std::uint32_t s) { return weights.schedule()[s]; };
            const auto expect_usable = [&] {
                must(graph.try_launch(stream));
                run_pass(weights, model, stream);
                must(graph.try_launch(stream));
                expect_back_on_plan(weights, model, stream);
                auto another = must(weights.try_capture(stream, body));
                must(another.try_launch(stream));
                must(graph.try_launch(side));
                CHECK(*model.wrong == 0);
            };
            const auto expect_refused = [&](ErrorKind kind, auto&& wrong) {
                const auto statistics = weights.statistics().total;
                const auto refused = weights.try_capture(stream, wrong);
                REQUIRE_FALSE(refused);
                CHECK(refused.error().kind() == kind);
                CHECK(weights.statistics().total.passes == statistics.passes);
                CHECK(weights.statistics().total.fetched_bytes - statistics.fetched_bytes <
                      weights.statistics().held_bytes + 1);
                CHECK_FALSE(must(device.is_capturing(stream)));
                expect_usable();
            };
            CHECK_THROWS_AS(static_cast<void>(weights.try_capture(stream,
                                                                  [&](auto& pass) {
                                                                      run_step(device, model, pass, step(0), stream);
                                                                      auto open = must(pass.try_acquire(step(1)));
                                                                      throw std::runtime_error{"no"};
                                                                  })),
                            std::runtime_error);
            expect_usable();
            expect_refused(ErrorKind::io, [&](auto& pass) -> Status {
                run_step(device, model, pass, step(0), stream);
                run_step(device, model, pass, step(1), stream);
                return Error{ErrorKind::io, "the body's own"};
            });
            expect_refused(ErrorKind::divergence, [&](auto& pass) -> Status {
                run_step(device, model, pass, step(4), stream);
                auto back = pass.try_acquire(step(2));
                REQUIRE_FALSE(back);
                CHECK(back.error().message().find("of its steps no step is left that reads") != std::string::npos);
                CHECK(back.error().message().find("acquire its steps in their order") != std::string::npos);
                return back.error();
            });
            expect_refused(ErrorKind::divergence, [&](auto& pass) -> Status {
                auto undeclared = pass.try_acquire({weight(2), weight(7)});
                return undeclared ? Status{} : Status{undeclared.error()};
            });
            expect_refused(ErrorKind::wrong_state, [&](auto& pass) {
                for (std::uint32_t s = 0; s < 4; ++s) { run_step(device, model, pass, step(s), stream); }
                kept = must(pass.try_acquire(step(4)));
            });
            // What was captured with it is over: its end, late, does nothing.
            CHECK(kept.try_use_on(side).error().kind() == ErrorKind::wrong_state);
            kept.end();
            expect_usable();
            expect_refused(ErrorKind::wrong_state, [&](auto& pass) { ticket = must(pass.try_request(step(0))); });
            ticket.drop();
            expect_refused(ErrorKind::wrong_state, [&](auto& pass) {
                run_step(device, model, pass, step(0), stream);
                stolen = std::move(pass);
            });
            CHECK(stolen.try_end().error().kind() == ErrorKind::wrong_state);
            expect_usable();
            // Two steps at once, where the plan has room for one.
            if (chunks == 8) {
                const auto refused = weights.try_capture(stream, [&](auto& pass) -> Status {
                    Weights::Lease last;
                    for (std::uint32_t s = 0; s < 12; ++s) {
                        auto lease = pass.try_acquire(step(s));
                        if (!lease) { return lease.error(); }
                        verify(device, model, *lease, weight(s), stream);
                        last = std::move(*lease);
                    }
                    return {};
                });
                if (!refused) {
                    CHECK(refused.error().kind() == ErrorKind::unsupported);
                    expect_usable();
                }
            }
            CHECK(device.statistics().of(Device::CallKind::destroy_graph) > before);
            must(weights.try_set_budget(Budget::bytes(9 * chunk)));
            run_pass(weights, model, stream);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
        must(device.destroy_stream(side));
    }
}

TEST_CASE("a body may skip steps, take a step weight by weight, and has nothing to wait for") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 3 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights =
            make(device, model, 14 * chunk, schedule_of(model, {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (std::uint32_t s = 0; s < 6; s += 2) {
                for (const auto id : weights.schedule()[s].weights) {
                    auto lease = must(pass.try_acquire(id));
                    verify(device, model, lease, id, stream);
                }
            }
            CHECK(pass.try_wait().error().kind() == ErrorKind::unsupported);
        }));
        for (int i = 0; i < 3; ++i) {
            must(graph.try_launch(stream));
            run_pass(weights, model, stream);
        }
        must(weights.try_drain());
        CHECK(*model.verified == std::uint64_t{3} * 18 * 3 * chunk);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a graph and an open pass or lease exclude each other") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 3 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
        auto pass = must(weights.try_begin(stream));
        CHECK(graph.try_launch(stream).error().kind() == ErrorKind::wrong_state);
        auto lease = must(pass.try_acquire(weights.schedule()[3]));
        must(pass.try_end());
        CHECK(graph.try_launch(stream).error().kind() == ErrorKind::wrong_state);
        CHECK(weights.try_capture(stream, [](auto&) {}).error().kind() == ErrorKind::wrong_state);
        verify(device, model, lease, weight(3), stream);
        lease.end();
        must(graph.try_launch(stream));
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a graph is not launched while memory is given back, not even where that failed") {
    std::uint64_t failed = 0;
    for (std::uint64_t nth = 1; nth <= 4; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 6, 2 * chunk);
        const Stream stream = must(device.create_stream());
        {
            Weights weights = make(device, model, 6 * chunk, in_order(model));
            auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
            device.fail(Device::CallKind::synchronize_stream, nth);
            const bool is_whole = weights.try_suspend().has_value();
            device.clear_failures();
            if (weights.is_suspended()) {
                const auto passes = weights.statistics().total.passes;
                const Status launched = graph.try_launch(stream);
                REQUIRE_FALSE(launched);
                CHECK(launched.error().kind() == (graph.is_stale() ? ErrorKind::stale : ErrorKind::wrong_state));
                CHECK(weights.statistics().total.passes == passes);
                failed += !is_whole && !graph.is_stale() ? 1U : 0U;
                must(weights.try_resume());
            }
            run_pass(weights, model, stream);
            must(device.synchronize());
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
    CHECK(failed > 0);
}

TEST_CASE(
    "C23: a foreign capture is refused where weights stream, at once and unharmed; with everything resident it works") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 3 * chunk);
    const Stream stream = must(device.create_stream()), eager = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        run_pass(weights, model, stream);
        must(device.synchronize());
        must(device.begin_capture(stream));
        const auto refused = weights.try_begin(stream);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        {
            auto pass = must(weights.try_begin(eager));
            CHECK(pass.try_acquire(weights.schedule()[0], stream).error().kind() == ErrorKind::unsupported);
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, eager); }
        }
        must(device.destroy_graph(must(device.end_capture(stream))));
        CHECK(*model.wrong == 0);

        must(weights.try_set_budget(Budget::bytes(1000 * chunk)));
        run_pass(weights, model, stream);
        must(weights.try_drain());
        const auto verified = *model.verified;
        must(device.begin_capture(stream));
        run_pass(weights, model, stream);
        const auto graph = must(device.end_capture(stream));
        CHECK(*model.verified == verified);
        must(device.launch(graph, stream));
        must(device.launch(graph, stream));
        must(device.synchronize());
        CHECK(*model.verified == verified + std::uint64_t{2} * 8 * 3 * chunk);
        CHECK(*model.wrong == 0);
        must(device.destroy_graph(graph));
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(eager));
}

TEST_CASE("C23: with everything resident, the caller may capture as soon as drain() has returned, after every change") {
    for (const Cycle cycle : {Cycle::cyclic, Cycle::one_shot}) {
        CAPTURE(cycle);
        CheckedDevice device;
        const Model model = uniform_model(device, 9, 3 * chunk);
        const Stream stream = must(device.create_stream());
        {
            // No step reads the last weight.
            auto weights =
                make(device, model, 24 * chunk, schedule_of(model, {{0, 1}, {2}, {3, 4}, {5}, {6, 7}}, cycle));
            const auto capture_and_replay = [&] {
                must(weights.try_drain());
                const auto before = weights.statistics().total;
                const auto verified = *model.verified;
                must(device.begin_capture(stream));
                run_pass(weights, model, stream);
                const auto graph = must(device.end_capture(stream));
                must(device.launch(graph, stream));
                must(device.launch(graph, stream));
                must(device.synchronize());
                CHECK(*model.verified == verified + std::uint64_t{2} * 8 * 3 * chunk);
                CHECK(weights.statistics().total.fetched_bytes == before.fetched_bytes);
                must(device.destroy_graph(graph));
            };
            capture_and_replay();
            capture_and_replay();
            must(weights.try_set_budget(Budget::bytes(8 * chunk)));
            run_pass(weights, model, stream);
            must(weights.try_set_budget(Budget::bytes(1000 * chunk)));
            capture_and_replay();
            must(weights.try_suspend());
            must(weights.try_drain());
            must(weights.try_resume());
            capture_and_replay();
            must(weights.try_set_budget(Budget::bytes(8 * chunk)));
            {
                // What is leased lies elsewhere than planned until its lease has ended.
                auto pass = must(weights.try_begin(stream));
                auto lease = must(pass.try_acquire(WeightId{5}));
                must(pass.try_end());
                must(weights.try_set_budget(Budget::bytes(24 * chunk)));
                must(weights.try_drain());
                verify(device, model, lease, WeightId{5}, stream);
            }
            capture_and_replay();
            if (cycle == Cycle::cyclic) {  // residents of others never make room
                // A graph of the caller's keeps residents in place until the budget changes.
                must(weights.try_set_budget(Budget::bytes(8 * chunk)));
                must(weights.try_set_budget(Budget::bytes(24 * chunk)));
                {
                    // There is no room for what no step reads but in the place of a resident.
                    auto pass = must(weights.try_begin(stream));
                    verify(device, model, must(pass.try_acquire(WeightId{8})), WeightId{8}, stream);
                    must(pass.try_end());
                }
                capture_and_replay();
            }
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("C23: a capture before anything has arrived is refused with what to do") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 100 * chunk, in_order(model));
        must(device.begin_capture(stream));
        {
            auto pass = must(weights.try_begin(stream));
            const auto refused = pass.try_acquire(WeightId{0});
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::unsupported);
            CHECK(refused.error().message().find("bring it before the capture, by drain()") != std::string::npos);
            must(pass.try_end());
        }
        must(device.destroy_graph(must(device.end_capture(stream))));
        run_pass(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("a graph that outlives its Residency is told so") {
    const auto outcome = child::run([] {
        CheckedDevice device;
        const Model model = uniform_model(device, 4, chunk);
        const Stream stream = must(device.create_stream());
        CapturedPass<Device> graph;
        auto weights = make(device, model, 100 * chunk, in_order(model));
        graph = must(weights.try_capture(stream, [&](auto& pass) -> Status {
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.try_acquire(step);
                if (!lease) { return lease.error(); }
            }
            return {};
        }));
        CapturedPass<Device> moved{std::move(graph)};
        graph = std::move(moved);  // the Residency ends first
    });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("end every CapturedPass before the Residency") != std::string::npos);
}
#endif

TEST_CASE("C23: a graph launched on a stream that somebody captures is refused, and that capture is unharmed") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 3 * chunk);
    const Stream stream = must(device.create_stream()), captured = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
        must(graph.try_launch(stream));
        must(device.begin_capture(captured));
        const auto refused = graph.try_launch(captured);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        must(device.destroy_graph(must(device.end_capture(captured))));
        must(graph.try_launch(captured));
        run_pass(weights, model, captured);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(captured));
}

TEST_CASE("whichever call fails while a pass is captured: a whole graph or none, and everything as before") {
    const Steps steps{{0}, {1, 2}, {3}, {4}, {5, 0}, {6}, {7}};
    std::uint64_t failures = 0;
    for (const std::uint64_t chunks : {7U, 12U}) {
        bool done = false;
        for (std::uint64_t nth = 1; !done; ++nth) {
            CAPTURE(nth);
            CheckedDevice device;
            const Model model = uniform_model(device, 8, 2 * chunk + 300);
            const Stream stream = must(device.create_stream());
            {
                auto weights = make(device, model, chunks * chunk, schedule_of(model, steps));
                const auto body = plain(device, model, weights, stream);
                auto first = must(weights.try_capture(stream, body));
                if (nth % 2 == 0) { run_pass(weights, model, stream); }
                const auto calls = total_calls(device);
                device.fail(Device::CallKind::any, nth);
                auto graph = weights.try_capture(stream, [&](auto& pass) -> Status {
                    for (const auto& step : weights.schedule()) {
                        auto lease = pass.try_acquire(step);
                        if (!lease) { return lease.error(); }
                        for (const auto id : step.weights) {
                            const auto bytes = lease->bytes(id);
                            const auto* host = model.catalog.host_bytes(model.catalog.storage_of(id));
                            auto launched = device.launch(
                                stream,
                                {.name = "read",
                                 .reads = {{bytes.data(), bytes.size()}},
                                 .writes = {},
                                 .body = [at = bytes.data(), count = bytes.size(), host, wrong = model.wrong.get()] {
                                     *wrong += std::memcmp(at, host, count) == 0 ? 0U : 1U;
                                 }});
                            if (!launched) { return launched; }
                        }
                    }
                    return {};
                });
                done = total_calls(device) - calls < nth;
                device.clear_failures();
                failures += graph ? 0U : 1U;
                REQUIRE(graph.has_value() >= done);
                // The only call that fails without failing the capture gives an event back: it stays with the device.
                device.leaks_expected = graph.has_value() && !done;
                const auto launch = [&](auto& which) {
                    if (!which.is_stale()) { must(which.try_launch(stream)); }
                };
                if (graph) { launch(*graph); }
                launch(first);
                run_pass(weights, model, stream);
                if (graph) { launch(*graph); }
                launch(first);
                expect_back_on_plan(weights, model, stream);
                must(device.synchronize());
                REQUIRE(*model.wrong == 0);
                REQUIRE(device.reports().empty());
            }
            must(device.destroy_stream(stream));
        }
    }
    CHECK(failures > 60);
}

TEST_CASE("C19: a capture that could not be ended is ended by the next call, whichever it is") {
    const auto next = [](auto& weights, auto& graph, Stream stream, int call) -> Status {
        switch (call) {
            case 0: return weights.try_drain();
            case 1: return graph.try_launch(stream);
            case 2: {
                auto pass = weights.try_begin(stream);
                return pass ? pass->try_end() : Status{pass.error()};
            }
            case 3: {
                auto changed = weights.try_set_budget(Budget::bytes(8 * chunk));
                return changed ? Status{} : Status{changed.error()};
            }
            case 4: return weights.try_suspend();
            default: return {};  // it ends
        }
    };
    for (int call = 0; call <= 5; ++call) {
        for (std::uint64_t ends = 1; ends <= 2; ++ends) {
            CAPTURE(call);
            CAPTURE(ends);
            CheckedDevice device;
            const Model model = uniform_model(device, 8, chunk);
            const Stream stream = must(device.create_stream());
            {
                auto weights = make(device, model, 4 * chunk, in_order(model));
                const auto body = plain(device, model, weights, stream);
                auto first = must(weights.try_capture(stream, body));
                must(first.try_launch(stream));
                const auto refused = weights.try_capture(stream, [&](auto& pass) -> Status {
                    body(pass);
                    for (std::uint64_t i = 1; i <= ends; ++i) { device.fail(Device::CallKind::end_capture, i); }
                    // Whether it is still open: asked behind one end that fails, and not behind two.
                    for (std::uint64_t i = 1; ends == 1 && i <= 6; ++i) {
                        device.fail(Device::CallKind::is_capturing, i);
                    }
                    return {};
                });
                REQUIRE_FALSE(refused);
                device.clear_failures();
                must(next(weights, first, stream, call));
                if (call < 5) {
                    must(weights.try_resume());
                    run_pass(weights, model, stream);
                    if (!first.is_stale()) { must(first.try_launch(stream)); }
                    must(must(weights.try_capture(stream, body)).try_launch(stream));
                    must(weights.try_drain());
                }
            }
            CHECK(*model.wrong == 0);
            must(device.destroy_stream(stream));
        }
    }
}

TEST_SUITE_END();

}  // namespace capture_test
