// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/planned_decider.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "residency/plan/plan_file.hpp"
#include "tests/planned/support.hpp"

namespace planned_test {

using namespace planned;
using residency::Budget;
using residency::Cycle;
using residency::ErrorKind;
using residency::Placement;

namespace {

/// Twelve storages of one to three chunks and a bit, one a step.
Model twelve(Device& device) {
    std::vector<Spec> specs;
    for (std::uint64_t i = 0; i < 12; ++i) { specs.push_back({chunk * (1 + i % 3) + i * 100}); }
    return make_model(device, specs);
}

}  // namespace

TEST_SUITE_BEGIN("planned");

TEST_CASE("C9 C10: from the floor to everything, and nothing below the floor") {
    CheckedDevice device;
    const Model model = twelve(device);
    const Stream stream = must(device.create_stream());
    const auto before = used_bytes(device);
    {
        const auto lowest = make(device, model, 0, in_order(model));
        const auto floor = lowest.statistics().floor_bytes;
        CHECK(lowest.statistics().budget_bytes == floor);
        CHECK(lowest.statistics().held_bytes == floor);
        // The largest storage, wherever it begins in a chunk.
        CHECK(floor >= 4 * chunk);
        CHECK(floor <= 5 * chunk);

        const auto refused = Weights::try_create(device, model.catalog, options(floor - chunk, in_order(model)));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->floor_bytes == floor);
        CHECK(numbers->budget_bytes == floor - chunk);
        CHECK(numbers->budget_bytes < numbers->floor_bytes);
        CHECK(refused.error().message().find(std::to_string(floor)) != std::string::npos);
    }
    CHECK(used_bytes(device) == before);
    std::uint64_t last_bytes = UINT64_MAX;
    bool streaming = true;
    for (std::uint64_t budget = 0; streaming; budget = budget == 0 ? 5 * chunk : budget + chunk + 7) {
        CAPTURE(budget);
        auto weights = make(device, model, budget, in_order(model));
        streaming = weights.statistics().streaming;
        CHECK(streaming == (weights.plan().bytes_per_pass() > 0));
        for (int p = 0; p < 3; ++p) {
            run_pass(weights, model, stream);
            expect_inside_budget(device, weights, before);
        }
        const auto counters = counted_pass(weights, model, stream);
        CHECK(counters.demand_misses == 0);
        CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
        CHECK(counters.fetched_bytes <= last_bytes);
        last_bytes = counters.fetched_bytes + 6 * chunk;
        CHECK(*model.wrong == 0);
    }
    // More than everything is as much as everything.
    auto all = make(device, model, std::uint64_t{1} << 40U, in_order(model));
    CHECK_FALSE(all.statistics().streaming);
    CHECK(all.statistics().budget_bytes == all.statistics().held_bytes);
    must(device.destroy_stream(stream));
}

TEST_CASE("everything resident: brought once, never again, and nothing is recorded for it") {
    CheckedDevice device;
    const Model model = twelve(device);
    const Stream stream = must(device.create_stream());
    std::uint64_t total = 0;
    for (const auto& storage : model.catalog.storages()) { total += storage.bytes; }
    {
        auto weights = make(device, model, std::uint64_t{1} << 30U, in_order(model));
        run_pass(weights, model, stream);
        const auto calls = device.statistics();
        const auto counters = counted_pass(weights, model, stream);
        CHECK(counters.fetched_bytes == 0);
        CHECK(counters.calls == 0);
        CHECK(counters.hits == 12);
        CHECK(counters.hit_bytes == total);
        // The two of the pass's timer.
        CHECK(device.statistics().of(Device::CallKind::record) - calls.of(Device::CallKind::record) == 2);
        CHECK(weights.statistics().total.fetched_bytes == total);
        CHECK(weights.statistics().total.prefetch_hits == 12);
        must(weights.try_drain());
        CHECK(*model.verified == 2 * total);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what the schedule does not read, beside what it reads: all of it resident, and all but one chunk") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, chunk);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t budget : {5U, 6U}) {
        CAPTURE(budget);
        auto weights = make(device, model, budget * chunk, schedule_of(model, {{0}, {1}}));
        for (int p = 0; p < 3; ++p) {
            auto pass = must(weights.try_begin(stream));
            for (const std::uint32_t id : {0U, 2U, 5U, 1U, 3U, 4U, 0U}) {
                auto lease = must(pass.try_acquire(WeightId{id}));
                verify(device, model, lease, WeightId{id}, stream);
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("everything resident, and the first copies fail: the next pass brings them") {
    for (std::uint64_t nth = 1; nth <= 3; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 6, chunk);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, 32 * chunk, in_order(model));
            device.fail(Device::CallKind::copy, nth);
            {
                auto pass = must(weights.try_begin(stream));
                for (std::uint32_t id = 0; id < 6; ++id) {
                    auto lease = pass.try_acquire(WeightId{id});
                    if (lease) { verify(device, model, *lease, WeightId{id}, stream); }
                }
            }
            run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE(
    "C24: in the steady state every access is a hit or a prefetch hit, and the plan's bytes are what is fetched") {
    CheckedDevice device;
    const Model model = uniform_model(device, 16, 4 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(
            device, model, 32 * chunk,
            schedule_of(model, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}}));
        CHECK(weights.plan().bytes_per_pass() >= 32 * chunk);
        CHECK_FALSE(weights.statistics().regret());
        const auto first = counted_pass(weights, model, stream);
        CHECK(first.demand_misses == 0);
        CHECK(first.prefetch_hits == 16);
        for (int p = 0; p < 4; ++p) {
            const auto counters = counted_pass(weights, model, stream);
            CHECK(counters.passes == 1);
            CHECK(counters.acquires == 16);
            CHECK(counters.demand_misses == 0);
            CHECK(counters.missed_bytes == 0);
            CHECK(counters.hits + counters.prefetch_hits == 16);
            CHECK(counters.hit_bytes + counters.prefetch_hit_bytes == std::uint64_t{16} * 4 * chunk);
            CHECK(counters.prefetch_hits >= counters.fetched_bytes / (4 * chunk));
            CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
            CHECK(counters.evicted_bytes == weights.plan().bytes_per_pass());
            CHECK(counters.calls == weights.plan().calls().size());
            CHECK(counters.host_waits == 0);
            CHECK(counters.divergences == 0);
        }
        must(weights.try_drain());
        const auto statistics = weights.statistics();
        REQUIRE(statistics.bound);
        CHECK(std::chrono::duration<double>(*statistics.bound).count() ==
              doctest::Approx(weights.plan().bound_seconds()).epsilon(1e-4));
        REQUIRE(statistics.regret());
        CHECK(*statistics.regret() >= -0.01);
        CHECK(statistics.requested_bytes == statistics.held_bytes);
        CHECK(statistics.peak_requested_bytes == statistics.held_bytes);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("residents, mutable, host-placed, empty and tied storages, many of them in one chunk") {
    CheckedDevice device;
    std::vector<Spec> specs{{700, Placement::resident},
                            {900, Placement::streamed, true},
                            {0},
                            {5000, Placement::host},
                            {3 * chunk},
                            {200},
                            {300},
                            {2 * chunk + 77},
                            {chunk, Placement::host},
                            {5 * chunk},
                            {1},
                            {4 * chunk},
                            {chunk - 1}};
    const Model model = make_model(device, specs, true);
    const Stream stream = must(device.create_stream());
    const auto before = used_bytes(device);
    const Steps steps{{0, 4}, {1, 5, 2}, {3, 7}, {6, 10}, {9}, {13 + 4, 8}, {13 + 11, 12}, {11, 13 + 1}};
    for (const std::uint64_t budget : {std::uint64_t{0}, 9 * chunk, 12 * chunk, 40 * chunk}) {
        CAPTURE(budget);
        auto weights = make(device, model, budget, schedule_of(model, steps));
        CHECK(weights.statistics().resident_bytes == 1600);
        CHECK(weights.statistics().host_read_bytes == 5000 + chunk);
        const std::byte* mutable_at = nullptr;
        for (int p = 0; p < 4; ++p) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) {
                    if (model.catalog.storage(model.catalog.storage_of(id)).is_mutable) {
                        if (mutable_at == nullptr) { mutable_at = lease.data(weight(1)); }
                        CHECK(lease.data(weight(1)) == mutable_at);
                    }
                    verify(device, model, lease, id, stream);
                }
            }
            must(pass.try_end());
            expect_inside_budget(device, weights, before);
        }
        CHECK(weights.statistics().last_pass.demand_misses == 0);
        CHECK(weights.statistics().last_pass.fetched_bytes == bytes_of(weights.plan()));
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("C6: what kernels wrote to a mutable storage outlives streaming, budgets and schedules") {
    CheckedDevice device;
    std::vector<Spec> specs(10, Spec{2 * chunk});
    specs[4] = {600, Placement::streamed, true};
    const Model model = make_model(device, specs);
    const Stream stream = must(device.create_stream());
    {
        const Steps steps{{0}, {1}, {2}, {3, 4}, {5}, {6}, {7}, {8}, {9}};
        auto weights = make(device, model, 0, schedule_of(model, steps));
        {
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(4)));
            auto* const at = lease.writable<unsigned char>(weight(4));
            must(device.launch(stream, {.name = "write", .reads = {}, .writes = {{at, 600}}, .body = [at] {
                                            std::memset(at, 7, 600);
                                        }}));
        }
        const auto check = [&] {
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(4)));
            const auto* const at = lease.get<unsigned char>(weight(4));
            int sevens = 0;
            must(device.launch(stream, {.name = "read", .reads = {{at, 600}}, .writes = {}, .body = [at, &sevens] {
                                            for (int i = 0; i < 600; ++i) { sevens += at[i] == 7 ? 1 : 0; }
                                        }}));
            must(device.synchronize(stream));
            CHECK(sevens == 600);
        };
        const auto pass_without_it = [&] {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) {
                    if (index(id) != 4) { verify(device, model, lease, id, stream); }
                }
            }
        };
        check();
        for (const std::uint64_t chunks : {8U, 100U, 12U, 0U, 15U}) {
            pass_without_it();
            check();
            must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
        }
        must(weights.try_set_schedule(schedule_of(model, {{9}, {8}, {7, 4}, {6}, {5}, {3}, {2}, {1}, {0}})));
        pass_without_it();
        check();
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "no schedule: names in alphabetical order are read in natural order, and the statistics say that this was "
    "guessed") {
    CheckedDevice device;
    auto* const bytes = static_cast<std::byte*>(must(device.allocate_host(12 * chunk)));
    const auto host = residency::HostBytes::adopt(
        bytes, 12 * chunk, residency::HostMemory::pinned,
        [&device](std::byte* at) { static_cast<void>(device.deallocate_host(at).has_value()); });
    residency::CatalogBuilder builder;
    std::uint64_t offset = 0;
    for (const char* layer : {"0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"}) {
        residency::StorageOptions options;
        options.source = residency::HostSource{host, offset};
        const auto storage = builder.add_storage(chunk, options);
        builder.add_weight("layers." + std::string{layer}, residency::dtype::u8, {chunk}, storage);
        offset += chunk;
    }
    Model model;
    model.catalog = must(builder.try_build());
    Weights weights = make(device, model, 4 * chunk);
    REQUIRE(weights.schedule().size() == 12);
    for (std::uint32_t i = 0; i < 12; ++i) {
        CHECK(model.catalog.weight(weights.schedule()[i].weights[0]).name == "layers." + std::to_string(i));
    }
    CHECK(weights.statistics().learning.order == residency::OrderOrigin::guessed);
    must(weights.try_set_schedule(in_order(model)));
    CHECK(weights.statistics().learning.order == residency::OrderOrigin::declared);
}

TEST_CASE("no schedule: the storages in the order of the catalog are one") {
    CheckedDevice device;
    const Model model = twelve(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk);
        CHECK(weights.schedule().size() == 12);
        for (int p = 0; p < 3; ++p) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w < 12; ++w) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream);
            }
        }
        CHECK(weights.statistics().last_pass.demand_misses == 0);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a catalog without bytes, and one without storages, work") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    for (const bool has_storages : {false, true}) {
        const Model model = make_model(device, std::vector<Spec>(has_storages ? 2 : 0));
        auto weights = make(device, model, 0);
        CHECK_FALSE(weights.statistics().streaming);
        CHECK(weights.statistics().held_bytes == 0);
        for (int p = 0; p < 2; ++p) {
            auto pass = must(weights.try_begin(stream));
            if (has_storages) {
                const auto lease = must(pass.try_acquire(weight(1)));
                CHECK(lease.bytes(weight(1)).empty());
            }
            static_cast<void>(must(pass.try_acquire(std::vector<WeightId>{})));
            must(pass.try_end());
        }
        auto graph = must(weights.try_capture(stream, [](auto&) {}));
        must(graph.try_launch(stream));
    }
    must(device.synchronize());
    must(device.destroy_stream(stream));
}

TEST_CASE("C2: a plan that was saved is replayed; one for something else is refused, and says for what") {
    CheckedDevice device;
    const Model model = twelve(device);
    const Model other = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        const auto budget = 12 * chunk;
        const auto made = make(device, model, budget, in_order(model)).plan();
        const auto bytes = residency::plan::save(made);
        const auto loaded = must(residency::plan::load(bytes, {model.catalog.hash(), budget, chunk}, "plan"));
        CHECK(loaded == made);
        const auto with = [&](const residency::plan::Plan& plan, std::uint64_t bytes_held) {
            auto result = options(bytes_held, in_order(model));
            result.policies.plan = plan;
            return result;
        };
        {
            auto weights = must(Weights::try_create(device, model.catalog, with(loaded, budget)));
            CHECK(weights.plan() == made);
            run_pass(weights, model, stream);
            const auto counters = counted_pass(weights, model, stream);
            CHECK(counters.demand_misses == 0);
            CHECK(counters.fetched_bytes == bytes_of(made));
            // It is one for eager passes.
            const auto captured = weights.try_capture(stream, [](auto&) {});
            REQUIRE_FALSE(captured);
            CHECK(captured.error().kind() == ErrorKind::unsupported);
            CHECK(captured.error().message().find("captured") != std::string::npos);
            // And for one budget and one schedule.
            const auto smaller = weights.try_set_budget(Budget::bytes(8 * chunk));
            REQUIRE_FALSE(smaller);
            CHECK(smaller.error().kind() == ErrorKind::mismatch);
            CHECK_FALSE(weights.try_set_schedule(schedule_of(model, {{3}, {2}, {1}})));
            CHECK(weights.schedule().size() == 12);
            CHECK(counted_pass(weights, model, stream).fetched_bytes == bytes_of(made));
            expect_back_on_plan(weights, model, stream);
        }
        const auto refuse = [&](const residency::plan::Plan& plan, std::uint64_t bytes_held,
                                std::uint64_t chunk_bytes = chunk) {
            auto chosen = with(plan, bytes_held);
            chosen.policies.pool.chunk_bytes = chunk_bytes;
            const auto refused = Weights::try_create(device, model.catalog, std::move(chosen));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::mismatch);
            return refused.error().message();
        };
        CHECK(refuse(made, 10 * chunk).find(residency::detail::in_bytes(made.held_bytes())) != std::string::npos);
        CHECK(refuse(made, 24 * chunk, 2 * chunk).find(residency::detail::in_bytes(2 * chunk)) != std::string::npos);
        const auto foreign = make(device, other, budget, in_order(other)).plan();
        CHECK(refuse(foreign, budget).find(std::to_string(other.catalog.hash())) != std::string::npos);
        const auto reversed = make(device, model, budget,
                                   schedule_of(model, {{11}, {10}, {9}, {8}, {7}, {6}, {5}, {4}, {3}, {2}, {1}, {0}}))
                                  .plan();
        refuse(reversed, budget);
        CHECK_FALSE(residency::plan::load(bytes, {model.catalog.hash(), budget + chunk, chunk}, "plan"));
        CHECK_FALSE(residency::plan::load(bytes, {other.catalog.hash(), budget, chunk}, "plan"));
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("strict: a divergence is an error that names both, and changes nothing") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto chosen = options(6 * chunk, in_order(model));
        chosen.strict = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        {
            auto pass = must(weights.try_begin(stream));
            run_step(device, model, pass, weights.schedule()[0], stream);
            const auto refused = pass.try_acquire(weights.schedule()[5]);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::divergence);
            CHECK(refused.error().message().find("step 1") != std::string::npos);
            CHECK(refused.error().message().find("step 5") != std::string::npos);
            for (std::uint32_t s = 1; s < 8; ++s) { run_step(device, model, pass, weights.schedule()[s], stream); }
        }
        CHECK(weights.statistics().total.divergences == 0);
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a one-shot schedule, with storages read again, runs as often as it is begun") {
    CheckedDevice device;
    const Model model = uniform_model(device, 9, 3 * chunk);
    const Stream stream = must(device.create_stream());
    const auto before = used_bytes(device);
    const Steps steps{{0}, {1}, {2}, {0}, {3}, {4}, {1}, {5}, {6}, {7}, {8}, {0, 8}};
    for (const std::uint64_t chunks : {0U, 9U, 11U, 14U, 20U, 100U}) {
        CAPTURE(chunks);
        auto weights = make(device, model, chunks * chunk, schedule_of(model, steps, Cycle::one_shot));
        const auto first = counted_pass(weights, model, stream);
        CHECK(first.demand_misses == 0);
        const auto fetched = weights.statistics().total.fetched_bytes;
        must(weights.try_drain());
        // Nothing is brought for a pass that may never come.
        CHECK(weights.statistics().total.fetched_bytes == fetched);
        for (int p = 0; p < 3; ++p) {
            run_pass(weights, model, stream);
            expect_inside_budget(device, weights, before);
        }
        CHECK(weights.statistics().last_pass.fetched_bytes <= fetched);
        const auto refused = weights.try_capture(stream, [](auto&) {});
        CHECK(refused.has_value() == !weights.statistics().streaming);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C21: several streams in a pass and from pass to pass; the end of a pass joins them") {
    CheckedDevice device;
    const Model model = uniform_model(device, 10, 2 * chunk);
    std::vector<Stream> streams{Stream{}};
    for (int i = 0; i < 3; ++i) { streams.push_back(must(device.create_stream())); }
    for (const std::uint64_t chunks : {6U, 12U, 100U}) {
        auto weights = make(device, model, chunks * chunk, in_order(model));
        for (std::size_t p = 0; p < 8; ++p) {
            auto pass = must(weights.try_begin(streams[p % 4]));
            for (std::uint32_t s = 0; s < 10; ++s) {
                const Stream on = streams[(p + s) % 4], too = streams[(p + s / 2) % 4];
                auto lease = must(pass.try_acquire(weights.schedule()[s], on));
                verify(device, model, lease, weight(s), on, std::chrono::microseconds{s % 3 == 0 ? 60 : 1});
                must(lease.try_use_on(too));
                verify(device, model, lease, weight(s), too, std::chrono::microseconds{s % 2 == 0 ? 40 : 1});
            }
            const auto verified = *model.verified;
            must(pass.try_end());
            must(device.synchronize(streams[p % 4]));
            // The pass's own stream has waited for the others.
            CHECK(*model.verified >= verified);
            CHECK(*model.verified % (20 * 2 * chunk) == 0);
        }
        CHECK(weights.statistics().total.demand_misses == 0);
        CHECK(*model.wrong == 0);
    }
    for (std::size_t i = 1; i < streams.size(); ++i) { must(device.destroy_stream(streams[i])); }
}

TEST_CASE("tickets: requested ahead, leased on any stream, or dropped") {
    CheckedDevice device;
    const Model model = uniform_model(device, 10, 2 * chunk);
    const Stream stream = must(device.create_stream()), side = must(device.create_stream());
    {
        auto weights = make(device, model, 10 * chunk, in_order(model));
        for (int p = 0; p < 5; ++p) {
            auto pass = must(weights.try_begin(stream));
            Weights::Ticket next = must(pass.try_request(weights.schedule()[0]));
            for (std::uint32_t s = 0; s < 10; ++s) {
                const Stream on = s % 3 == 0 ? side : stream;
                auto lease = must(next.try_lease(on));
                if (s + 1 < 10) { next = must(pass.try_request(weights.schedule()[s + 1])); }
                verify(device, model, lease, weight(s), on);
            }
            if (p == 2) { static_cast<void>(must(pass.try_request(weights.schedule()[5]))); }
        }
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 5 * 10 * 2 * chunk);
        expect_back_on_plan(weights, model, stream);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(side));
}

TEST_CASE("C19 C20: budgets and schedules change between passes; what stays at its place is not brought again") {
    CheckedDevice device;
    const Model model = twelve(device);
    const Stream stream = must(device.create_stream());
    const auto before = used_bytes(device);
    {
        auto weights = make(device, model, 0, in_order(model));
        std::uint64_t last = weights.statistics().held_bytes, kept_images = 0;
        for (const std::uint64_t chunks : {9U, 14U, 200U, 20U, 0U, 11U, 11U, 200U, 0U}) {
            CAPTURE(chunks);
            run_pass(weights, model, stream);
            if (chunks % 2 == 0) { run_pass(weights, model, stream); }
            const auto fetched = weights.statistics().total.fetched_bytes;
            const auto image = weights.plan().data().storage_offsets;
            const auto change = must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
            CHECK(change.held_before_bytes == last);
            CHECK(change.held_bytes == weights.statistics().held_bytes);
            last = change.held_bytes;
            expect_inside_budget(device, weights, before);
            CHECK(weights.statistics().total.fetched_bytes == fetched);
            run_pass(weights, model, stream);
            CHECK((chunks != 200 || !weights.statistics().streaming));
            if (chunks == 200 && weights.plan().data().storage_offsets == image) {
                ++kept_images;
                // Not all of it came anew.
                CHECK(weights.statistics().total.fetched_bytes - fetched < weights.statistics().held_bytes - 2 * chunk);
            }
            expect_back_on_plan(weights, model, stream);
        }
        CHECK(kept_images > 0);
        const auto too_small = weights.try_set_budget(Budget::bytes(chunk));
        REQUIRE_FALSE(too_small);
        CHECK(too_small.error().kind() == ErrorKind::budget);
        expect_back_on_plan(weights, model, stream);

        // A schedule that needs more than the budget is refused, and the old one goes on.
        Steps wide{{}};
        for (std::uint32_t w = 0; w < 12; ++w) { wide[0].push_back(w); }
        const auto refused = weights.try_set_schedule(schedule_of(model, wide));
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        expect_back_on_plan(weights, model, stream);
        must(weights.try_set_schedule(
            schedule_of(model, {{11}, {3}, {7}, {0}, {1}, {2}, {6}, {5}, {4}, {8}, {10}, {9}})));
        CHECK(weights.schedule()[1].weights[0] == weight(3));
        expect_back_on_plan(weights, model, stream);
        expect_inside_budget(device, weights, before);
        CHECK(*model.wrong == 0);
    }
    CHECK(used_bytes(device) == before);
    must(device.destroy_stream(stream));
}

TEST_CASE("C1: a bad id, a bad step and an open pass are errors without effect") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 2 * chunk, in_order(model));
        auto pass = must(weights.try_begin(stream));
        CHECK(pass.try_acquire(weight(99)).error().kind() == ErrorKind::invalid_argument);
        CHECK(weights.try_set_budget(Budget::bytes(3 * chunk)).error().kind() == ErrorKind::wrong_state);
        CHECK(weights.try_capture(stream, [](auto&) {}).error().kind() == ErrorKind::wrong_state);
        for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        auto kept = must(pass.try_acquire(weight(3)));
        must(pass.try_end());
        CHECK(weights.try_set_schedule({}).error().kind() == ErrorKind::wrong_state);
        kept.end();
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C13: the host never waits on the hot path, however late the device is") {
    CheckedDevice device;
    const Model model = uniform_model(device, 16, 4 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, in_order(model));
        run_pass(weights, model, stream);
        const auto calls = device.statistics();
        for (int p = 0; p < 3; ++p) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                verify(device, model, lease, step.weights[0], stream, std::chrono::milliseconds{5});
            }
        }
        for (const auto kind : {Device::CallKind::synchronize_event, Device::CallKind::synchronize_stream,
                                Device::CallKind::synchronize_device}) {
            CHECK(device.statistics().of(kind) == calls.of(kind));
        }
        CHECK(weights.statistics().total.host_waits == 0);
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a pool on a small budget measures the link without exceeding it") {
    auto config = small_config();
    config.allocation_granularity = std::uint64_t{64} << 10U;
    CheckedDevice device{config};
    const Model model = uniform_model(device, 64, 8 * chunk);
    const Stream stream = must(device.create_stream());
    const auto before = used_bytes(device);
    {
        auto chosen = options(100 * chunk, in_order(model));
        chosen.policies.link.reset();
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        CHECK(device.peak_used_bytes() - before <= 100 * chunk);
        run_pass(weights, model, stream);
        CHECK(device.peak_used_bytes() - before <= 100 * chunk);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a link and a rate of memory that no machine has are refused, with what is plausible and the unit") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    const auto refused = [&](auto change, const char* text) {
        auto with = options(2 * chunk, in_order(model));
        change(with.policies);
        const auto made = Weights::try_create(device, model.catalog, std::move(with));
        REQUIRE_FALSE(made);
        CAPTURE(made.error().message());
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
        CHECK(made.error().message() == text);
    };
    for (const auto& [rate, shown] : {std::pair{5.0, "5"}, {55.5, "55.5"}, {5e15, "5e+15"}, {-1.0, "-1"}}) {
        refused([given = rate](auto& policies) { policies.link->bytes_per_second = given; },
                (std::string{"policies.link.bytes_per_second is "} + shown +
                 ", and only 1e6 to 1e13 bytes per second (PCIe 4.0 x16: 25e9) are plausible: give it in this unit")
                    .c_str());
    }
    refused([](auto& policies) { policies.link->latency_seconds = 1000; },
            "policies.link.latency_seconds is 1000, and only 0 to 1 seconds (PCIe: 2.4e-6) are plausible: give it in "
            "this unit");
    refused([](auto& policies) { policies.link->node_latency_seconds = 2.7; },
            "policies.link.node_latency_seconds is 2.7, and only 0 to 1 seconds (PCIe: 2.4e-6) are plausible: give it "
            "in this unit");
    refused([](auto& policies) { policies.memory_bytes_per_second = 4200; },
            "policies.memory_bytes_per_second is 4200, and only 1e8 to 1e15 bytes per second (H200: 4.2e12) are "
            "plausible: give it in this unit");
}

TEST_SUITE_END();

}  // namespace planned_test
