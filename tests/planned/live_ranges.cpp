// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Leases that are held as long as the schedule declares (live_until): the plan goes on, and overwrites nothing under them.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/sanitized.hpp"

namespace live_ranges_test {

using namespace planned;
using namespace std::chrono_literals;
using residency::Budget;
using residency::ErrorKind;
using residency::StorageId;

namespace {

constexpr std::uint32_t layers = 24, live_until = 8;  // weight 0 is read from step 0 to step live_until
constexpr auto kernel = 80us;                         // while a chunk takes 100 µs

Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second = chunk / 100e-6;
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = 0ns;
    return config;
}
/// Weights of a chunk each, but one that takes the whole budget: for it, all others leave.
Model leaving_model(Device& device, std::uint64_t budget_chunks) {
    std::vector<Spec> specs(layers, Spec{chunk});
    specs[20].bytes = budget_chunks * chunk;
    return make_model(device, specs);
}
/// Step i reads weight i, and weight 0 with it as long as it is live.
Schedule live_schedule(const Model& model, bool declared) {
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i < layers; ++i) {
        builder.step({weight(i)}, kernel);
        if (declared && i == 0) { builder.live_until(weight(0), live_until); }
    }
    return must(builder.try_build());
}
Weights make_live(Device& device, const Model& model, bool declared = true, std::uint64_t chunks = 10) {
    auto chosen = options(chunks * chunk, live_schedule(model, declared));
    chosen.policies.link = link_of(slow_link().link);
    return must(Weights::try_create(device, model.catalog, std::move(chosen)));
}
/// Whether the plan brings a storage in each pass.
bool streams(const Weights& weights, StorageId id) {
    return std::ranges::any_of(weights.plan().copies(), [&](const auto& copy) {
        return copy.image_begin <= weights.plan().storage_offset(index(id)) &&
               weights.plan().storage_offset(index(id)) < copy.image_end;
    });
}
/// A pass that holds weight 0 until step `until` has been acquired and launched; beyond the pass where there is no such step.
struct Held {
    Weights::Lease lease;
    std::uint32_t until = live_until;
    bool by_step = false;

    template <class Pass>
    void run(Device& device, const Weights& weights, const Model& model, Pass& pass, Stream stream) {
        for (std::uint32_t i = 0; i < layers; ++i) {
            if (i == 0) {
                lease = must(pass.try_acquire(weight(0)));
                verify(device, model, lease, weight(0), stream, kernel);
            } else {
                auto other =
                    by_step ? must(pass.try_acquire(weights.schedule()[i])) : must(pass.try_acquire(weight(i)));
                verify(device, model, other, weight(i), stream, i < until && i % 5 == 0 ? kernel / 2 : kernel);
                // A kernel reads both; the two halves take what the step takes.
                if (i < until && i % 5 == 0) { verify(device, model, lease, weight(0), stream, kernel / 2); }
            }
            if (i == until) { lease = {}; }
        }
    }
};
/// Seconds from the end of a pass to the end of the next, the mean of the last eight of twenty.
template <class OnePass>
double period_of(Device& device, const OnePass& one_pass) {
    const std::string last = "w" + std::to_string(layers - 1);
    std::vector<std::int64_t> ends;
    must(device.synchronize());
    device.observe([&](const Device::ExecutedOperation& operation) {
        if (operation.name == last) { ends.push_back(operation.end_ns); }
    });
    for (int i = 0; i < 20; ++i) { one_pass(); }
    must(device.synchronize());
    device.observe({});
    REQUIRE(ends.size() == 20);
    return 1e-9 * static_cast<double>(ends[19] - ends[11]) / 8;
}

}  // namespace

TEST_SUITE_BEGIN("planned live ranges");

TEST_CASE("a lease held over its declared range costs nothing: eager passes and graphs take what the plan says") {
    for (const std::uint64_t chunks : {3U, 4U, 5U, 6U, 8U, 10U, 12U, 16U}) {
        const bool by_step = chunks % 2 == 0;
        CAPTURE(chunks);
        CheckedDevice device{slow_link()};
        const Model model = leaving_model(device, chunks);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make_live(device, model, true, chunks);
            REQUIRE(weights.statistics().streaming);
            REQUIRE(streams(weights, StorageId{0}));
            Held held;
            held.by_step = by_step;
            const auto one_pass = [&] {
                auto pass = must(weights.try_begin(stream));
                held.run(device, weights, model, pass, stream);
                must(pass.try_end());
            };
            one_pass();
            const double eager = period_of(device, one_pass);
            CHECK(eager <= weights.plan().predicted_seconds() * 1.01);
            const auto counters = weights.statistics().last_pass;
            CHECK(counters.demand_misses == 0);
            CHECK(counters.divergences == 0);
            CHECK(counters.host_waits == 0);
            CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
            CHECK(weights.statistics().held_lease.storage == residency::no_storage);

            auto graph =
                must(weights.try_capture(stream, [&](auto& pass) { held.run(device, weights, model, pass, stream); }));
            const double captured = period_of(device, [&] { must(graph.try_launch(stream)); });
            CHECK(captured <= weights.plan().predicted_seconds() * 1.01);
            MESSAGE("eager " << eager << " s, as a graph " << captured << " s, planned "
                             << weights.plan().predicted_seconds() << " s");
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("held shorter or longer than declared, over the end of the pass, or not declared: the bytes are right") {
    for (const bool declared : {true, false}) {
        for (const std::uint32_t until : {0U, 3U, live_until - 1, live_until, live_until + 1, 19U, layers}) {
            CAPTURE(declared);
            CAPTURE(until);
            CheckedDevice device{slow_link()};
            const bool leaves = until < 20;  // later there is no room for both
            const Model model = leaves ? leaving_model(device, 10) : uniform_model(device, layers, chunk);
            const Stream stream = must(device.create_stream());
            {
                auto weights = make_live(device, model, declared);
                REQUIRE((!leaves || streams(weights, StorageId{0})));
                Held held;
                held.until = until;
                for (int p = 0; p < 5; ++p) {
                    auto pass = must(weights.try_begin(stream));
                    held.run(device, weights, model, pass, stream);
                    must(pass.try_end());
                    if (until < layers) { continue; }
                    verify(device, model, held.lease, weight(0), stream, kernel);
                    held.lease = {};
                }
                const auto statistics = weights.statistics();
                if (declared && until <= live_until) {
                    CHECK(statistics.last_pass.demand_misses == 0);
                    CHECK(statistics.held_lease.storage == residency::no_storage);
                }
                if (until > live_until && until < layers) {
                    CHECK(statistics.held_lease.storage == StorageId{0});
                    CHECK(statistics.held_lease.until == until);
                }
                expect_back_on_plan(weights, model, stream);
            }
            CHECK(*model.wrong == 0);
            must(device.destroy_stream(stream));
        }
    }
}

TEST_CASE("another budget while such a lease is open: the plan that follows leaves its bytes alone") {
    for (const std::uint64_t next : {6U, 16U, 24U}) {
        CAPTURE(next);
        CheckedDevice device{slow_link()};
        const Model model = uniform_model(device, layers, chunk);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make_live(device, model);
            Held held;
            held.until = layers;
            auto pass = must(weights.try_begin(stream));
            held.run(device, weights, model, pass, stream);
            must(pass.try_end());
            must(weights.try_set_budget(Budget::bytes(next * chunk)));
            for (int p = 0; p < 3; ++p) {
                run_pass(weights, model, stream);
                verify(device, model, held.lease, weight(0), stream, kernel);
            }
            held.lease = {};
            expect_back_on_plan(weights, model, stream);
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("random programs that hold leases over declared ranges, or not as declared") {
    std::uint64_t held_on = 0, within = 0, off_range = 0, graphs = 0, not_captured = 0, budgets = 0, streaming = 0;
    for (std::uint64_t seed = 0; seed < support::random_cases(150); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed + 77};
        const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
        auto config = slow_link();
        config.link.to_device_bytes_per_second *= below(3) == 0 ? 8 : 1;
        CheckedDevice device{config};
        std::vector<Spec> specs;
        for (std::uint32_t i = 6 + below(12); i > 0; --i) { specs.push_back({1 + random() % (3 * chunk)}); }
        const Model model = make_model(device, specs);
        const auto count = static_cast<std::uint32_t>(specs.size());
        std::vector<Stream> streams;
        for (int i = 0; i < 3; ++i) { streams.push_back(must(device.create_stream())); }
        {
            residency::ScheduleBuilder builder{model.catalog};
            std::vector<std::uint32_t> last(count);
            for (std::uint32_t i = 0; i < count; ++i) {
                builder.step({weight(i)}, below(2) == 0 ? 2us : 150us);
                last[i] = below(3) == 0 ? (std::min)(count - 1, i + below(count)) : i;
                if (last[i] > i) { builder.live_until(weight(i), last[i]); }
            }
            const Schedule schedule = must(builder.try_build());
            auto smallest = make(device, model, 0, schedule);
            const std::uint64_t floor = smallest.statistics().floor_bytes, total = smallest.budget().total_bytes;
            must(smallest.try_set_budget(Budget::bytes(floor)));
            const auto any_budget = [&] { return floor + random() % (total - floor + chunk); };
            auto weights = make(device, model, any_budget(), schedule);
            struct Open {
                std::uint32_t weight;
                std::uint32_t end;  // a step; count: goes on into the next pass
                Weights::Lease lease;
            };
            std::vector<Open> open;
            // `wild`: leases end when they like, and steps come in any order.
            const auto run = [&](auto& pass, bool wild, Stream stream) -> residency::Status {
                for (std::uint32_t i = 0; i < count; ++i) {
                    const std::uint32_t at = wild && below(6) == 0 ? below(count) : i;
                    const bool by_step = below(3) == 0;
                    const Stream on = wild ? streams[below(streams.size())] : stream;
                    auto lease = by_step ? pass.try_acquire(schedule[at], on) : pass.try_acquire(weight(at), on);
                    if (!lease) { return lease.error(); }
                    verify(device, model, *lease, weight(at), on);
                    if (wild && below(4) == 0) {
                        const Stream second = streams[below(streams.size())];
                        must(lease->try_use_on(second));
                        verify(device, model, *lease, weight(at), second);
                    }
                    for (auto& each : open) {
                        verify(device, model, each.lease, weight(each.weight), each.lease.stream());
                    }
                    std::erase_if(open, [&](const Open& each) { return each.end <= i; });
                    // A lease of a whole step lives as long as the shortest of its weights.
                    std::uint32_t end = last[at];
                    for (const auto id : by_step ? schedule[at].weights : std::span<const WeightId>{}) {
                        end = (std::min)(end, last[index(id)]);
                    }
                    if (wild && below(3) == 0) {
                        end = below(count + 1);
                        ++off_range;
                    }
                    if (end <= i) { continue; }
                    within += wild ? 0 : 1;
                    ++held_on;
                    open.push_back({at, end, std::move(*lease)});
                }
                return {};
            };
            for (int p = 0; p < 10; ++p) {
                const bool wild = below(2) == 0;
                const Stream stream = streams[below(streams.size())];
                {
                    auto pass = must(weights.try_begin(stream));
                    const auto ran = run(pass, wild, stream);
                    if (!ran) {
                        CHECK(ran.error().kind() == ErrorKind::budget);
                        open.clear();
                    }
                    must(pass.try_end());
                }
                if (below(4) == 0) {
                    const auto changed = weights.try_set_budget(Budget::bytes(any_budget()));
                    budgets += changed && !open.empty() ? 1 : 0;
                    // An image that stays for an open lease may not fit.
                    CHECK((changed || changed.error().message().find("is open") != std::string::npos));
                }
                if (below(2) == 0) { open.clear(); }
                if (below(4) == 0) {
                    open.clear();
                    auto graph = weights.try_capture(stream, [&](auto& pass) { return run(pass, false, stream); });
                    open.clear();
                    if (!graph) {
                        ++not_captured;
                        continue;
                    }
                    for (int launch = 0; launch < 2; ++launch) { must(graph->try_launch(stream)); }
                    ++graphs;
                }
            }
            open.clear();
            streaming += weights.statistics().streaming ? 1 : 0;
            expect_back_on_plan(weights, model, streams[0]);
            // As declared, and on one stream: on the plan.
            for (int p = 0; p < 2; ++p) {
                auto pass = must(weights.try_begin(streams[0]));
                REQUIRE(run(pass, false, streams[0]));
                must(pass.try_end());
                CHECK(open.empty());
                CHECK(weights.statistics().last_pass.demand_misses == 0);
                CHECK(weights.statistics().last_pass.fetched_bytes == bytes_of(weights.plan()));
            }
        }
        CHECK(*model.wrong == 0);
        for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
    }
    MESSAGE(held_on << " leases held on, " << within << " as declared, " << off_range << " not, " << graphs
                    << " graphs, " << not_captured << " not captured, " << budgets << " budgets, " << streaming
                    << " stream");
    CHECK(within > support::random_cases(1000));
    CHECK(off_range > support::random_cases(500));
    CHECK(graphs > support::random_cases(50));
    CHECK(not_captured == 0);
    CHECK(budgets > support::random_cases(20));
    CHECK(streaming > support::random_cases(80));
}

TEST_SUITE_END();

}  // namespace live_ranges_test
